"""NCCL's variables and the interfaces they name, in each pod against the others and against the cluster file."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from gpuctl.cluster.clusterfile import variables
from gpuctl.cluster.doctor.findings import odd
from gpuctl.cluster.doctor.hang.job import MEETING
from gpuctl.cluster.doctor.interface_names import exact, takes
from gpuctl.cluster.doctor.model import Facts, Inside
from gpuctl.core.text import named
from gpuctl.domain.findings import Finding, fail, or_ok, warn

# What ranks may well have each for itself.
OWN = re.compile(r"NCCL_(DEBUG\w*|HOSTID|TOPO_DUMP_FILE|GRAPH_DUMP_FILE)|FI_LOG_\w+|TORCH_NCCL_DEBUG_INFO\w*")
# mpirun gives each process OMPI_MCA_* of its own; those are of no use here.
SHARED = re.compile(r"(NCCL|FI|UCX|GLOO|TORCH_NCCL|RCCL)_\w+")
# What nodes of another kind call otherwise, and what decides nothing between ranks.
LOCAL = re.compile(
    r"NCCL_(IB_HCA|SOCKET_IFNAME|OOB_NET_IFNAME|TOPO_FILE|NET_PLUGIN|TUNER_\w+|PROFILER_\w+)|"
    r"(GLOO|TORCH_NCCL)_\w+|UCX_(NET_DEVICES|LOG_\w+)"
)
AGAIN = "`gpuctl cluster deploy` gives all pods the same; a job that sets it has to in every rank"


def used(inside: Inside) -> Mapping[str, str]:
    """The variables a job uses: those of a rank, else those of the container."""
    ranks = inside.get("jobs", "ranks") or []
    variables_used: Mapping[str, str] = ranks[0]["variables"] if ranks else inside.said.get("variables") or {}
    return variables_used


def settings(facts: Facts) -> list[Finding]:
    """Variables are equal everywhere, and as in the cluster file."""
    check, answers = "settings", facts.telling("variables", "jobs")
    if not answers:
        return []
    desired = (
        {variable.name: variable.value for variable in variables.all_of(facts.env.cluster, facts.env.mode)}
        if facts.mode
        else {}
    )
    findings = [finding for variable, value in desired.items() for finding in _otherwise(answers, variable, value)]
    return or_ok(check, facts.env.name, [*findings, *_differ(answers)])


def _otherwise(answers: Mapping[str, Inside], variable: str, value: str) -> list[Finding]:
    """Containers that have it otherwise than the file. Where all have the same, only the file is newer: a warning."""
    if not SHARED.fullmatch(variable):
        return []
    values = {
        name: str((inside.said.get("variables") or {}).get(variable, "not set")) for name, inside in answers.items()
    }
    say = fail if len(set(values.values())) > 1 and _matters(variable) else warn
    message = f"{variable} is {{}}, and the cluster file has {value}"
    return [say("settings", f"Pod {n}", message.format(has), AGAIN) for n, has in values.items() if has != value]


def _differ(answers: Mapping[str, Inside]) -> list[Finding]:
    """Between the jobs of pods, where they have one."""
    jobs = {name: dict(used(inside)) for name, inside in answers.items() if inside.get("jobs", "ranks")}
    names = {name for variables_of in jobs.values() for name in variables_of if _matters(name)}
    return [
        finding
        for variable in sorted(names)
        for finding in odd(
            "settings",
            {pod: variables_of.get(variable, "not set") for pod, variables_of in jobs.items()},
            f"its job has {variable} {{}}",
            AGAIN,
            warn if LOCAL.fullmatch(variable) else fail,
        )
    ]


def _matters(name: str) -> bool:
    return name in MEETING or bool(SHARED.fullmatch(name) and not OWN.fullmatch(name))


# ---- interfaces -----------------------------------------------------------------------------------------------------


def interfaces(facts: Facts) -> list[Finding]:
    """NCCL_SOCKET_IFNAME leaves each pod an interface that is up."""
    check, findings = "interfaces", []
    for name, inside in facts.telling("network").items():
        existing: Mapping[str, Any] = inside.get("network", "interfaces")
        pattern = used(inside).get("NCCL_SOCKET_IFNAME", "")
        fit = [interface for interface in existing if takes(pattern, interface) and (interface != "lo" or pattern)]
        up = [interface for interface in fit if existing[interface]["state"] in ("up", "unknown")]
        setting = f"NCCL_SOCKET_IFNAME={pattern}" if pattern else "without NCCL_SOCKET_IFNAME"
        missing = [interface for interface in exact(pattern) if interface not in existing]
        if missing:  # of several NCCL takes those that are there
            message = f"{setting} names {named(missing)}, which it has not; there are {named(sorted(existing))}"
            findings.append((warn if up else fail)(check, f"Pod {name}", message, _hint(facts)))
        elif not up:
            message = f"{setting} leaves no interface that is up; there are {named(sorted(existing))}"
            findings.append(fail(check, f"Pod {name}", message, _hint(facts)))
    return or_ok(check, facts.env.name, findings) if facts.telling("network") else []


def _hint(facts: Facts) -> str:
    if facts.env.rdma and facts.env.cluster.network.rdma.attachments:
        return "the network attachment was not brought in: see the annotation k8s.v1.cni.cncf.io/network-status"
    return "mend network.rdma.interfaces or network.tcp.interface_exclude"


def mtu(facts: Facts) -> list[Finding]:
    """Interfaces of one name have one MTU. Both ends agree on the smaller; a switch between them may allow less."""
    check, sizes = "mtu", dict[str, dict[str, object]]()
    for name, inside in facts.telling("network").items():
        pattern = used(inside).get("NCCL_SOCKET_IFNAME", "")
        for interface, info in inside.get("network", "interfaces").items():
            if interface != "lo" and info["mtu"] is not None and info["state"] == "up" and takes(pattern, interface):
                sizes.setdefault(interface, {})[name] = info["mtu"]
    hint = "set it alike on nodes and switches, or in the network attachment; `ping -M do -s` shows what gets through"
    templates = [(by_pod, f"the MTU of {interface} is {{}}") for interface, by_pod in sorted(sizes.items())]
    findings = [finding for by_pod, what in templates for finding in odd(check, by_pod, what, hint, warn)]
    return or_ok(check, facts.env.name, findings) if facts.telling("network") else []
