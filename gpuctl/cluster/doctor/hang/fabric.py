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
    check, found = "adapters", []
    told = {name: inside.get("rdma", "ports") for name, inside in facts.asked().items()}
    anywhere = {port["device"] for ports in told.values() for port in ports or ()}
    for name, ports in told.items():
        inside, subject = facts.inside[name], f"Pod {name}"
        if ports is None:
            found.append(unknown(check, subject, f"its adapters are not known: {_unread(inside)}"))
        elif not ports:
            asked = ", ".join(facts.env.cluster.network.rdma.resources) or "network.rdma.resources"
            found.append(fail(check, subject, "it sees no RDMA adapter", f"does it ask for them ({asked})?"))
        else:
            wanted = used(inside).get("NCCL_IB_HCA", "")
            found += [*_absent(subject, wanted, ports, anywhere), *_down(subject, wanted, ports)]
            found += _fewer(facts, subject, ports)
    return or_ok(check, facts.env.name, found) if facts.asked() else []


def _unread(inside: Inside) -> str:
    return inside.unread("rdma") or str((inside.get("rdma", "unread") or {}).get("ports") or "it was not told")


def _absent(subject: str, wanted: str, ports: Sequence[Port], anywhere: set[str]) -> list[Finding]:
    """Adapters that are named and not there. A list may name those of all kinds of nodes: NCCL takes what it finds."""
    devices = {port["device"] for port in ports}
    hint, there = "mend network.rdma.devices", f"there are {named(sorted(devices))}"
    missing = absent(exact(wanted), devices)
    chosen = [port for port in ports if _chosen(wanted, port)]
    if missing:
        lost = not chosen or absent(missing, anywhere) != missing
        words = f"NCCL_IB_HCA names {named(missing)}, which it has not; {there}"
        return [(fail if lost else warn)("adapters", subject, words, hint)]
    if not chosen:
        return [fail("adapters", subject, f"NCCL_IB_HCA={wanted} fits none of its adapters; {there}", hint)]
    return []


def _down(subject: str, wanted: str, ports: Sequence[Port]) -> list[Finding]:
    """Adapters without a port that is active. Named ones are to be used; of others one is enough."""
    chosen = [port for port in ports if _chosen(wanted, port)]
    unread = [port for port in chosen if port["state"] is None]
    if unread:
        words = f"the state of {named(map(_name, unread))} cannot be read"
        return [unknown("adapters", subject, words)]
    alive = {port["device"] for port in chosen if port["state"] == ACTIVE}
    down = [port for port in chosen if port["device"] not in alive]
    if not down or not (exact(wanted) or len(down) == len(chosen)):
        return []
    told = named(f"{_name(port)} is {port['state']}" for port in down)
    return [fail("adapters", subject, f"{told}, not {ACTIVE}", CABLE)]


def _name(port: Port) -> str:
    return f"{port['device']}:{port['port']}"


def _fewer(facts: Facts, subject: str, ports: Sequence[Port]) -> list[Finding]:
    """Fewer than it asked for; a plugin that shares adapters counts otherwise, so only EFA's number is sure."""
    rdma, devices = facts.env.cluster.network.rdma, {port["device"] for port in ports}
    most = max(rdma.resources.values(), default=0)
    if most < 2 or len(devices) >= most:
        return []
    say = fail if rdma.fabric == "efa" else warn
    words = f"it asked for {most} adapters and sees {len(devices)}"
    return [say("adapters", subject, words, "is the device plugin well on its node?")]


def _chosen(wanted: str, port: Port) -> bool:
    return takes(wanted, str(port["device"]), str(port["port"]))


def addresses(facts: Facts) -> list[Finding]:
    """RoCE: the address of NCCL_IB_GID_INDEX is there and of version 2; without it, one that NCCL can find."""
    if not facts.env.rdma:
        return []
    check, found = "addresses", []
    for name, inside in facts.asked().items():
        index = used(inside).get("NCCL_IB_GID_INDEX", "")
        wanted = used(inside).get("NCCL_IB_HCA", "")
        for port in inside.get("rdma", "ports") or ():
            if port["state"] != ACTIVE or port["link"] != "Ethernet" or port["efa"] or not _chosen(wanted, port):
                continue
            found += _address(f"Pod {name}", port, int(index) if index.isdigit() else None)
    known = any(inside.get("rdma", "ports") for inside in facts.asked().values())
    return or_ok(check, facts.env.name, found) if known else []


def _address(subject: str, port: Port, index: int | None) -> list[Finding]:
    who, hint = _name(port), "mend network.rdma.gid_index; NCCL 2.21 and newer finds it itself"
    good = sorted(each["index"] for each in port["gids"] if each["type"] == V2 and not each["gid"].startswith(LINK))
    there = f"RoCE v2 is at {named(map(str, good)) or 'no index'}"
    if index is None:
        words = f"{who} has no RoCE v2 address but that of the link: its interface has no address"
        return [] if good else [warn("addresses", subject, words, "give the interface an address, by its attachment")]
    own = next((each for each in port["gids"] if each["index"] == index), None)
    if own is None:
        return [fail("addresses", subject, f"{who} has no address {index} (NCCL_IB_GID_INDEX); {there}", hint)]
    if own["type"] != V2:
        return [fail("addresses", subject, f"{who}: address {index} is {own['type']}, not {V2}; {there}", hint)]
    return []
