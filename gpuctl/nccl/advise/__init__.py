"""Derive NCCL's environment from node facts, with reasons; nodes that need different values get their own. No I/O."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from gpuctl.domain.findings import Finding, Verdict
from gpuctl.domain.node_facts import get, some, unread, why
from gpuctl.nccl.advise import efa, fabric, gpu, sockets
from gpuctl.nccl.advise.model import Advice, Setting
from gpuctl.nccl.topology.adapters import ACTIVE, Facts, adapters, in_order, name

# Facts that advice needs: (subject, value) -> its name in messages, and the advice that is missing without it.
NEEDED = {
    ("rdma", "ports"): (
        "its RDMA adapters are",
        "NCCL_IB_HCA, NCCL_NET and the settings that depend on them are not derived",
    ),
    ("gpu", "gpus"): ("its GPUs are", "NVLS is not advised on"),
    ("names", "interfaces"): ("its network interfaces are", "NCCL_SOCKET_IFNAME and NCCL_CROSS_NIC are not derived"),
}
UNSET_WINS = ("NCCL_NET",)  # what a node must not have, no node gets: all have to use one network
DERIVED: tuple[Callable[[Facts], list[Setting]], ...] = (
    fabric.net,
    fabric.hca,
    fabric.gid_index,
    fabric.cross_nic,
    gpu.dmabuf,
    gpu.nvls,
    sockets.ifname,
    efa.settings,
)


def advise(fleet: Mapping[str, Facts]) -> Advice:
    """Derive the environment of every rank of a run on these nodes; see advise/model.py."""
    by_node = {node: [setting for derive in DERIVED for setting in derive(facts)] for node, facts in fleet.items()}
    by_name: dict[str, dict[str, Setting]] = {}
    for node, settings in by_node.items():
        for setting in settings:
            by_name.setdefault(setting.name, {})[node] = setting
    merged = [_merge(nodes, fleet) for nodes in by_name.values()]
    findings = [finding for _, conflict in merged for finding in conflict]
    chosen = tuple(setting for same, _ in merged for setting in same)
    return Advice(chosen, (*_unread(fleet), *findings, *_already_set(chosen, fleet)), _left_out(fleet))


def _unread(fleet: Mapping[str, Facts]) -> list[Finding]:
    """Facts that advice needs but that are missing; silence would look like "nothing is needed"."""
    return [
        unread("environment", node, what, why(facts, *needed), so)
        for needed, (what, so) in NEEDED.items()
        for node, facts in fleet.items()
        if get(facts, *needed) is None
    ]


def _merge(nodes: Mapping[str, Setting], fleet: Mapping[str, Facts]) -> tuple[list[Setting], list[Finding]]:
    """Merge to one setting for all; where nodes differ, one list of names that fits all, or one value a node."""
    by_value: dict[str | None, list[str]] = {}
    for node, setting in nodes.items():
        by_value.setdefault(setting.value, []).append(node)
    first = next(iter(nodes.values()))
    if len(by_value) == 1:
        return [first], []
    if first.name in UNSET_WINS and None in by_value:
        return [nodes[by_value[None][0]]], []
    shown = "; ".join(f"{value or 'unset'} on {some(members)}" for value, members in by_value.items())
    union = _union(first.name, list(by_value), fleet)
    if union:
        reason = f"{first.why} Nodes have different ones; this list fits each of them."
        message = f"{first.name}: nodes have different ones ({shown}); one list of all of them fits each"
        return [Setting(first.name, union, reason, first.source)], [Finding("environment", "", Verdict.WARN, message)]
    message = f"{first.name} must differ between nodes: {shown}"
    advice = "give mpirun none; set it in /etc/nccl.conf of each node, or make the nodes alike"
    conflict = Finding("environment", "", Verdict.FAIL, message, {"values": len(by_value)}, advice)
    merged = [Setting(first.name, v, nodes[m[0]].why, first.source, tuple(m)) for v, m in by_value.items()]
    return merged, [conflict]


def _union(setting: str, values: list[str | None], fleet: Mapping[str, Facts]) -> str:
    """A list of exact names can be shared if no node uses one of the names for something else."""
    taken = {"NCCL_IB_HCA": _adapters_not_for_nccl, "NCCL_SOCKET_IFNAME": sockets.others}.get(setting)
    if taken is None or None in values:
        return ""
    names = sorted({word for value in values if value for word in value.lstrip("=").split(",")}, key=in_order)
    clash = any(taken(facts) & {*names} for facts in fleet.values())
    return "" if clash else "=" + ",".join(names)


def _adapters_not_for_nccl(facts: Facts) -> set[str]:
    """Ports that NCCL must be kept away from; it ignores inactive ports by itself."""
    ports = adapters(facts)
    active = [port for port, _ in ports.others if port["state"] == ACTIVE] if ports else []
    return {word for port in active for word in (port["device"], name(port))}


def _already_set(settings: tuple[Setting, ...], fleet: Mapping[str, Facts]) -> list[Finding]:
    """Conflicts with /etc/nccl.conf, which applies wherever the environment does not set a variable."""
    findings = []
    for node, facts in fleet.items():
        conf = facts.get("programs", {}).get("conf") or {}
        for s in settings:
            if s.name in conf and conf[s.name] != s.value and (not s.nodes or node in s.nodes):
                message = f"/etc/nccl.conf sets {s.name}={conf[s.name]}, advised is {s.value or 'to leave it unset'}"
                findings.append(Finding("environment", node, Verdict.WARN, message, hint="take it out of that file"))
    return findings


def _left_out(fleet: Mapping[str, Facts]) -> dict[str, tuple[str, ...]]:
    reasons = {}
    for node, facts in fleet.items():
        ports = adapters(facts)
        if ports and ports.others:
            reasons[node] = tuple(f"{name(port)}: {reason}" for port, reason in ports.others)
    return reasons
