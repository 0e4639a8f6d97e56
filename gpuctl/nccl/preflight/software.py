"""Rules on installed software: nccl-tests, MPI, NCCL and its settings."""

from __future__ import annotations

from collections.abc import Mapping

from gpuctl.domain.findings import Finding, Verdict, fail, or_ok, warn
from gpuctl.domain.node_facts import Facts, Fleet, equal, get, unread, usual, why

GET_TESTS = "build github.com/NVIDIA/nccl-tests with `make MPI=1`, and put it into /opt/nccl-tests/build on every node"
GET_MPI = "install Open MPI in one version on all nodes (openmpi-bin, openmpi; on AWS it comes with EFA)"


def tests(fleet: Fleet) -> list[Finding]:
    """Check that every node has all_reduce_perf at one path, of one build, with MPI if there are several nodes."""
    rule, findings = "nccl-tests", []
    for node, facts in fleet.items():
        if _is_search_missing(facts, "test"):
            findings.append(unread(rule, node, "whether it has nccl-tests is", why(facts, "programs", "*")))
        elif get(facts, "programs", "test") is None:
            findings.append(fail(rule, node, why(facts, "programs", "test"), GET_TESTS))
        elif get(facts, "programs", "test_sha256") is None:
            findings.append(unread(rule, node, "its build is", why(facts, "programs", "test_sha256")))
        elif len(fleet) > 1 and get(facts, "programs", "test_mpi") is None:
            findings.append(unread(rule, node, "whether it was built with MPI is", why(facts, "programs", "test_mpi")))
        elif len(fleet) > 1 and not get(facts, "programs", "test_mpi"):
            message = "it was built without MPI: each rank would run a test of its own"
            findings.append(fail(rule, node, message, GET_TESTS))
    builds = {node: _short(get(facts, "programs", "test_sha256")) for node, facts in fleet.items()}
    paths = {node: get(facts, "programs", "test") for node, facts in fleet.items()}
    findings += equal(rule, "build {}", builds, "copy one build to all nodes")
    findings += equal(rule, "{}", paths, "put it at the same place on all nodes: mpirun starts it by its path")
    return or_ok(rule, "", findings, f"{usual(paths)}, one build ({usual(builds)}) on each node")


def _is_search_missing(facts: Facts, program: str) -> bool:
    """True if the search for a program has no result; a failed search records where it looked."""
    unread: Mapping[str, str] = facts.get("programs", {}).get("unread", {})
    return get(facts, "programs", program) is None and program not in unread


def _short(sha256: str | None) -> str | None:
    return None if sha256 is None else sha256[:12]


def mpi(fleet: Fleet) -> list[Finding]:
    """Check that every node has mpirun of one version; a single node needs none."""
    if len(fleet) < 2:
        return or_ok("mpi", "", [], "a single node needs none")
    rule, findings = "mpi", []
    for node, facts in fleet.items():
        if _is_search_missing(facts, "mpirun"):
            findings.append(unread(rule, node, "whether it has MPI is", why(facts, "programs", "*")))
        elif get(facts, "programs", "mpirun") is None:
            findings.append(fail(rule, node, why(facts, "programs", "mpirun"), GET_MPI))
        elif get(facts, "programs", "mpi") is None:
            findings.append(unread(rule, node, "its MPI's version is", why(facts, "programs", "mpi")))
    for name in ("mpi", "mpirun"):
        findings += equal(rule, "{}", {node: get(facts, "programs", name) for node, facts in fleet.items()}, GET_MPI)
    versions = {node: get(facts, "programs", "mpi") for node, facts in fleet.items()}
    return or_ok(rule, "", findings, f"{usual(versions)} on each node")


def nccl(fleet: Fleet) -> list[Finding]:
    """Check that NCCL has one version. A test may be linked statically, so a missing libnccl is no fault."""
    versions = {node: get(facts, "programs", "nccl") for node, facts in fleet.items()}
    advice = "install one version on all nodes: ranks of different versions cannot communicate"
    findings = equal("nccl", "NCCL {}", versions, advice)
    missing = [node for node, version in versions.items() if version is None]
    if not findings and 0 < len(missing) < len(fleet):
        message = f"libnccl is not found, the others have {usual(versions)}"
        findings = [Finding("nccl", node, Verdict.WARN, message, hint=advice) for node in missing]
    none = "no libnccl is found: the test may be linked statically"
    message = f"NCCL {usual(versions)} on each node" if usual(versions) else none
    return or_ok("nccl", "", [*findings, *_plugin(fleet)], message)


def _plugin(fleet: Fleet) -> list[Finding]:
    """Check aws-ofi-nccl on EFA: without it NCCL falls back to TCP, which only a debug line reports."""
    lacking = [n for n, facts in fleet.items() if get(facts, "rdma", "efa") and not get(facts, "programs", "plugin")]
    message = "aws-ofi-nccl is not found in /opt/amazon/ofi-nccl: NCCL would fall back to TCP"
    advice = "install it (the EFA installer contains it), or make sure that the job finds it elsewhere"
    findings = [warn("nccl", node, message, advice) for node in lacking]
    plugins = {n: _names(get(facts, "programs", "net_plugins")) for n, facts in fleet.items() if n not in lacking}
    advice = "install the same on all nodes: ranks that use different networks do not find each other"
    return findings + equal("nccl", "net plugins: {}", plugins, advice, Verdict.WARN)


def _names(paths: list[str] | None) -> str | None:
    return None if paths is None else ", ".join(sorted({path.rpartition("/")[2] for path in paths})) or "none"


def settings(fleet: Fleet) -> list[Finding]:
    """Check that /etc/nccl.conf is alike: it applies to every job, and is not visible in the environment."""
    confs = {node: _conf(facts) for node, facts in fleet.items()}
    findings = equal("settings", "/etc/nccl.conf: {}", confs, "make it alike on all nodes", Verdict.WARN)
    return or_ok("settings", "", findings, f"/etc/nccl.conf: {usual(confs)}")


def _conf(facts: Facts) -> str | None:
    conf = get(facts, "programs", "conf")
    return None if conf is None else ", ".join(f"{k}={v}" for k, v in sorted(conf.items())) or "sets nothing"
