"""RDMA adapters as each pod sees them: there, active, and with the address that NCCL is told to use."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from gpuctl.cluster.doctor.hang.settings import used
from gpuctl.cluster.doctor.interface_names import absent, exact, takes
from gpuctl.cluster.doctor.model import Facts, Inside
from gpuctl.core.text import named
from gpuctl.domain.findings import Finding, fail, or_ok, unknown, warn

Port = Mapping[str, Any]
ACTIVE, V2 = "ACTIVE", "RoCE v2"
CABLE = "look at its node: `ibstat`, the cable, the switch's port"
LINK = "fe80:"  # goes no farther than a switch


def adapters(facts: Facts) -> list[Finding]:
    """The devices that NCCL is to use are there, with ports that are active; as many as the pod asked for."""
    if not facts.env.rdma:
        return []
    check, findings = "adapters", []
    ports_by_pod = {name: inside.get("rdma", "ports") for name, inside in facts.asked().items()}
    anywhere = {port["device"] for ports in ports_by_pod.values() for port in ports or ()}
    for name, ports in ports_by_pod.items():
        inside, subject = facts.inside[name], f"Pod {name}"
        if ports is None:
            findings.append(unknown(check, subject, f"its adapters are not known: {_unread(inside)}"))
        elif not ports:
            resources = ", ".join(facts.env.cluster.network.rdma.resources) or "network.rdma.resources"
            findings.append(fail(check, subject, "it sees no RDMA adapter", f"does it ask for them ({resources})?"))
        else:
            chosen_names = used(inside).get("NCCL_IB_HCA", "")
            findings += [*_absent(subject, chosen_names, ports, anywhere), *_down(subject, chosen_names, ports)]
            findings += _fewer(facts, subject, ports)
    return or_ok(check, facts.env.name, findings) if facts.asked() else []


def _unread(inside: Inside) -> str:
    return inside.unread("rdma") or str((inside.get("rdma", "unread") or {}).get("ports") or "it was not told")


def _absent(subject: str, chosen_names: str, ports: Sequence[Port], anywhere: set[str]) -> list[Finding]:
    """Adapters that are named and not there. A list may name those of all kinds of nodes: NCCL takes what it finds."""
    devices = {port["device"] for port in ports}
    hint, available = "mend network.rdma.devices", f"there are {named(sorted(devices))}"
    missing = absent(exact(chosen_names), devices)
    chosen = [port for port in ports if _chosen(chosen_names, port)]
    if missing:
        lost = not chosen or absent(missing, anywhere) != missing
        message = f"NCCL_IB_HCA names {named(missing)}, which it has not; {available}"
        return [(fail if lost else warn)("adapters", subject, message, hint)]
    if not chosen:
        return [fail("adapters", subject, f"NCCL_IB_HCA={chosen_names} fits none of its adapters; {available}", hint)]
    return []


def _down(subject: str, chosen_names: str, ports: Sequence[Port]) -> list[Finding]:
    """Adapters without a port that is active. Named ones are to be used; of others one is enough."""
    chosen = [port for port in ports if _chosen(chosen_names, port)]
    unread = [port for port in chosen if port["state"] is None]
    if unread:
        message = f"the state of {named(map(_name, unread))} cannot be read"
        return [unknown("adapters", subject, message)]
    alive = {port["device"] for port in chosen if port["state"] == ACTIVE}
    down = [port for port in chosen if port["device"] not in alive]
    if not down or not (exact(chosen_names) or len(down) == len(chosen)):
        return []
    states = named(f"{_name(port)} is {port['state']}" for port in down)
    return [fail("adapters", subject, f"{states}, not {ACTIVE}", CABLE)]


def _name(port: Port) -> str:
    return f"{port['device']}:{port['port']}"


def _fewer(facts: Facts, subject: str, ports: Sequence[Port]) -> list[Finding]:
    """Fewer than it asked for; a plugin that shares adapters counts otherwise, so only EFA's number is sure."""
    rdma, devices = facts.env.cluster.network.rdma, {port["device"] for port in ports}
    most = max(rdma.resources.values(), default=0)
    if most < 2 or len(devices) >= most:
        return []
    say = fail if rdma.fabric == "efa" else warn
    message = f"it asked for {most} adapters and sees {len(devices)}"
    return [say("adapters", subject, message, "is the device plugin well on its node?")]


def _chosen(chosen_names: str, port: Port) -> bool:
    return takes(chosen_names, str(port["device"]), str(port["port"]))


def addresses(facts: Facts) -> list[Finding]:
    """RoCE: the address of NCCL_IB_GID_INDEX is there and of version 2; without it, one that NCCL can find."""
    if not facts.env.rdma:
        return []
    check, findings = "addresses", []
    for name, inside in facts.asked().items():
        index = used(inside).get("NCCL_IB_GID_INDEX", "")
        chosen_names = used(inside).get("NCCL_IB_HCA", "")
        for port in inside.get("rdma", "ports") or ():
            if port["state"] != ACTIVE or port["link"] != "Ethernet" or port["efa"] or not _chosen(chosen_names, port):
                continue
            findings += _address(f"Pod {name}", port, int(index) if index.isdigit() else None)
    any_known = any(inside.get("rdma", "ports") for inside in facts.asked().values())
    return or_ok(check, facts.env.name, findings) if any_known else []


def _address(subject: str, port: Port, index: int | None) -> list[Finding]:
    who, hint = _name(port), "mend network.rdma.gid_index; NCCL 2.21 and newer finds it itself"
    good = sorted(gid["index"] for gid in port["gids"] if gid["type"] == V2 and not gid["gid"].startswith(LINK))
    available = f"RoCE v2 is at {named(map(str, good)) or 'no index'}"
    if index is None:
        message = f"{who} has no RoCE v2 address but that of the link: its interface has no address"
        return [] if good else [warn("addresses", subject, message, "give the interface an address, by its attachment")]
    entry = next((gid for gid in port["gids"] if gid["index"] == index), None)
    if entry is None:
        return [fail("addresses", subject, f"{who} has no address {index} (NCCL_IB_GID_INDEX); {available}", hint)]
    if entry["type"] != V2:
        return [fail("addresses", subject, f"{who}: address {index} is {entry['type']}, not {V2}; {available}", hint)]
    return []
