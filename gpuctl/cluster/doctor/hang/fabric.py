"""RDMA adapters as each pod sees them: present, active, and with the address that NCCL is configured to use."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from gpuctl.cluster.doctor.hang.settings import used
from gpuctl.cluster.doctor.interface_names import absent, exact, takes
from gpuctl.cluster.doctor.model import Facts, PodFacts
from gpuctl.core.text import named
from gpuctl.domain.findings import Finding, fail, or_ok, unknown, warn

Port = Mapping[str, Any]
ACTIVE, V2 = "ACTIVE", "RoCE v2"
CABLE = "check its node: `ibstat`, the cable, the switch port"
LINK = "fe80:"  # link-local: not routed


def adapters(facts: Facts) -> list[Finding]:
    """Check that the adapters NCCL is configured to use exist with active ports, as many as the pod requests."""
    if not facts.env.rdma:
        return []
    check, findings = "adapters", []
    ports_by_pod = {name: inside.get("rdma", "ports") for name, inside in facts.answered().items()}
    anywhere = {port["device"] for ports in ports_by_pod.values() for port in ports or ()}
    for name, ports in ports_by_pod.items():
        inside, subject = facts.inside[name], f"Pod {name}"
        if ports is None:
            findings.append(unknown(check, subject, f"its adapters are unknown: {_unread(inside)}"))
        elif not ports:
            resources = ", ".join(facts.env.cluster.network.rdma.resources) or "network.rdma.resources"
            findings.append(
                fail(check, subject, "it sees no RDMA adapter", f"check that it requests them ({resources})")
            )
        else:
            chosen_names = used(inside).get("NCCL_IB_HCA", "")
            findings += [*_absent(subject, chosen_names, ports, anywhere), *_down(subject, chosen_names, ports)]
            findings += _fewer(facts, subject, ports)
    return or_ok(check, facts.env.name, findings) if facts.answered() else []


def _unread(inside: PodFacts) -> str:
    return inside.unread("rdma") or str(
        (inside.get("rdma", "unread") or {}).get("ports") or "the probe did not report it"
    )


def _absent(subject: str, chosen_names: str, ports: Sequence[Port], anywhere: set[str]) -> list[Finding]:
    """Find adapters that are configured and missing; a list may name those of several kinds of nodes: a warning."""
    devices = {port["device"] for port in ports}
    hint, available = "correct network.rdma.devices", f"there are {named(sorted(devices))}"
    missing = absent(exact(chosen_names), devices)
    chosen = [port for port in ports if _chosen(chosen_names, port)]
    if missing:
        lost = not chosen or absent(missing, anywhere) != missing
        message = f"NCCL_IB_HCA names {named(missing)}, which do not exist; {available}"
        return [(fail if lost else warn)("adapters", subject, message, hint)]
    if not chosen:
        return [
            fail("adapters", subject, f"NCCL_IB_HCA={chosen_names} matches none of its adapters; {available}", hint)
        ]
    return []


def _down(subject: str, chosen_names: str, ports: Sequence[Port]) -> list[Finding]:
    """Find adapters without an active port; if none is configured by name, one active adapter is enough."""
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
    """Compare with the requested number, which is exact for EFA only: other plugins may share adapters."""
    rdma, devices = facts.env.cluster.network.rdma, {port["device"] for port in ports}
    most = max(rdma.resources.values(), default=0)
    if most < 2 or len(devices) >= most:
        return []
    report = fail if rdma.fabric == "efa" else warn
    message = f"it requests {most} adapters and sees {len(devices)}"
    return [report("adapters", subject, message, "check the device plugin on its node")]


def _chosen(chosen_names: str, port: Port) -> bool:
    return takes(chosen_names, str(port["device"]), str(port["port"]))


def addresses(facts: Facts) -> list[Finding]:
    """RoCE: check that the address of NCCL_IB_GID_INDEX exists and is of version 2; if it is unset, that any is."""
    if not facts.env.rdma:
        return []
    check, findings = "addresses", []
    for name, inside in facts.answered().items():
        index = used(inside).get("NCCL_IB_GID_INDEX", "")
        chosen_names = used(inside).get("NCCL_IB_HCA", "")
        for port in inside.get("rdma", "ports") or ():
            if port["state"] != ACTIVE or port["link"] != "Ethernet" or port["efa"] or not _chosen(chosen_names, port):
                continue
            findings += _address(f"Pod {name}", port, int(index) if index.isdigit() else None)
    any_known = any(inside.get("rdma", "ports") for inside in facts.answered().values())
    return or_ok(check, facts.env.name, findings) if any_known else []


def _address(subject: str, port: Port, index: int | None) -> list[Finding]:
    who, hint = _name(port), "correct network.rdma.gid_index; NCCL 2.21 and newer find it themselves"
    good = sorted(gid["index"] for gid in port["gids"] if gid["type"] == V2 and not gid["gid"].startswith(LINK))
    available = f"RoCE v2 is at {named(map(str, good)) or 'no index'}"
    if index is None:
        message = f"{who} has only a link-local RoCE v2 address: its interface has no IP address"
        return (
            []
            if good
            else [warn("addresses", subject, message, "assign the interface an IP address in its network attachment")]
        )
    entry = next((gid for gid in port["gids"] if gid["index"] == index), None)
    if entry is None:
        return [fail("addresses", subject, f"{who} has no address {index} (NCCL_IB_GID_INDEX); {available}", hint)]
    if entry["type"] != V2:
        return [fail("addresses", subject, f"{who}: address {index} is {entry['type']}, not {V2}; {available}", hint)]
    return []
