"""NCCL variables and the interfaces they name, compared between pods and with the cluster file."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from gpuctl.cluster.clusterfile import variables
from gpuctl.cluster.doctor.findings import odd
from gpuctl.cluster.doctor.hang.job import MEETING
from gpuctl.cluster.doctor.interface_names import exact, takes
from gpuctl.cluster.doctor.model import Facts, PodFacts
from gpuctl.core.text import named
from gpuctl.domain.findings import Finding, fail, or_ok, warn

# Variables that may differ between ranks.
PER_RANK = re.compile(r"NCCL_(DEBUG\w*|HOSTID|TOPO_DUMP_FILE|GRAPH_DUMP_FILE)|FI_LOG_\w+|TORCH_NCCL_DEBUG_INFO\w*")
# Not OMPI_MCA_*: mpirun gives each process different values.
SHARED = re.compile(r"(NCCL|FI|UCX|GLOO|TORCH_NCCL|RCCL)_\w+")
# Variables that differ between kinds of nodes, or have no effect between ranks: only a warning.
LOCAL = re.compile(
    r"NCCL_(IB_HCA|SOCKET_IFNAME|OOB_NET_IFNAME|TOPO_FILE|NET_PLUGIN|TUNER_\w+|PROFILER_\w+)|"
    r"(GLOO|TORCH_NCCL)_\w+|UCX_(NET_DEVICES|LOG_\w+)"
)
EQUALIZE = "`gpuctl cluster deploy` makes all pods equal; a job that sets it has to set it for every rank"


def used(inside: PodFacts) -> Mapping[str, str]:
    """Return the variables that a job uses: those of a rank, else those of the container."""
    ranks = inside.get("jobs", "ranks") or []
    variables_used: Mapping[str, str] = ranks[0]["variables"] if ranks else inside.values.get("variables") or {}
    return variables_used


def settings(facts: Facts) -> list[Finding]:
    """Check that variables are equal in all pods, and match the cluster file."""
    check, answers = "settings", facts.answering("variables", "jobs")
    if not answers:
        return []
    desired = (
        {variable.name: variable.value for variable in variables.all_of(facts.env.cluster, facts.env.mode)}
        if facts.mode
        else {}
    )
    findings = [finding for variable, value in desired.items() for finding in _otherwise(answers, variable, value)]
    return or_ok(check, facts.env.name, [*findings, *_differ(answers)])


def _otherwise(answers: Mapping[str, PodFacts], variable: str, value: str) -> list[Finding]:
    """Find containers that differ from the file; only a warning if all have the same value: then the file is newer."""
    if not SHARED.fullmatch(variable):
        return []
    values = {
        name: str((inside.values.get("variables") or {}).get(variable, "not set")) for name, inside in answers.items()
    }
    report = fail if len(set(values.values())) > 1 and _matters(variable) else warn
    message = f"{variable} is {{}}, the cluster file has {value}"
    return [report("settings", f"Pod {n}", message.format(has), EQUALIZE) for n, has in values.items() if has != value]


def _differ(answers: Mapping[str, PodFacts]) -> list[Finding]:
    """Compare the variables of the pods' jobs."""
    jobs = {name: dict(used(inside)) for name, inside in answers.items() if inside.get("jobs", "ranks")}
    names = {name for variables_of in jobs.values() for name in variables_of if _matters(name)}
    return [
        finding
        for variable in sorted(names)
        for finding in odd(
            "settings",
            {pod: variables_of.get(variable, "not set") for pod, variables_of in jobs.items()},
            f"its job has {variable} {{}}",
            EQUALIZE,
            warn if LOCAL.fullmatch(variable) else fail,
        )
    ]


def _matters(name: str) -> bool:
    return name in MEETING or bool(SHARED.fullmatch(name) and not PER_RANK.fullmatch(name))


# ---- interfaces -----------------------------------------------------------------------------------------------------


def interfaces(facts: Facts) -> list[Finding]:
    """Check that NCCL_SOCKET_IFNAME selects an interface that is up in each pod."""
    check, findings = "interfaces", []
    for name, inside in facts.answering("network").items():
        existing: Mapping[str, Any] = inside.get("network", "interfaces")
        pattern = used(inside).get("NCCL_SOCKET_IFNAME", "")
        fit = [interface for interface in existing if takes(pattern, interface) and (interface != "lo" or pattern)]
        up = [interface for interface in fit if existing[interface]["state"] in ("up", "unknown")]
        setting = f"NCCL_SOCKET_IFNAME={pattern}" if pattern else "without NCCL_SOCKET_IFNAME"
        missing = [interface for interface in exact(pattern) if interface not in existing]
        if missing:  # NCCL uses those that exist
            message = f"{setting} names {named(missing)}, which do not exist; there are {named(sorted(existing))}"
            findings.append((warn if up else fail)(check, f"Pod {name}", message, _hint(facts)))
        elif not up:
            message = f"{setting} selects no interface that is up; there are {named(sorted(existing))}"
            findings.append(fail(check, f"Pod {name}", message, _hint(facts)))
    return or_ok(check, facts.env.name, findings) if facts.answering("network") else []


def _hint(facts: Facts) -> str:
    if facts.env.rdma and facts.env.cluster.network.rdma.attachments:
        return "the network attachment is missing: see the annotation k8s.v1.cni.cncf.io/network-status"
    return "correct network.rdma.interfaces or network.tcp.interface_exclude"


def mtu(facts: Facts) -> list[Finding]:
    """Compare the MTUs of interfaces with the same name. Both ends use the smaller; a switch may allow less."""
    check, sizes = "mtu", dict[str, dict[str, object]]()
    for name, inside in facts.answering("network").items():
        pattern = used(inside).get("NCCL_SOCKET_IFNAME", "")
        for interface, info in inside.get("network", "interfaces").items():
            if interface != "lo" and info["mtu"] is not None and info["state"] == "up" and takes(pattern, interface):
                sizes.setdefault(interface, {})[name] = info["mtu"]
    hint = (
        "set the same MTU on nodes and switches, or in the network attachment; `ping -M do -s` shows what gets through"
    )
    templates = [(by_pod, f"the MTU of {interface} is {{}}") for interface, by_pod in sorted(sizes.items())]
    findings = [finding for by_pod, what in templates for finding in odd(check, by_pod, what, hint, warn)]
    return or_ok(check, facts.env.name, findings) if facts.answering("network") else []
