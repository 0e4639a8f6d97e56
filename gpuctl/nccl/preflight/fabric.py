"""Rules on network adapters, their path to GPU memory, and the memory that a job may lock."""

from __future__ import annotations

from gpuctl.domain.findings import Finding, Verdict, fail, ok, or_ok, warn
from gpuctl.domain.node_facts import Facts, Fleet, equal, get, unread, usual, why
from gpuctl.nccl.preflight import unknown_ports
from gpuctl.nccl.topology.adapters import ACTIVE, Adapters, adapters, name, peer_memory

EFA_NAMES = ("rdmap", "efa_")  # the kernel's, of newer and of older instances
GIB = 2**30
MEMLOCK_ENOUGH = 16 * GIB  # awsome-distributed-training warns below it
MEMLOCK_DEFAULT = 8 * 2**20  # the kernel's and containers' (nvidia-container-toolkit#2037): registering buffers fails


def adapters_(fleet: Fleet) -> list[Finding]:
    """Check that all nodes have the same number of active fabric ports, of one kind and rate."""
    rule = "adapters"
    by_node = {node: adapters(facts) for node, facts in fleet.items()}
    findings = [
        unread(rule, node, "its RDMA adapters are", why(facts, "rdma", "ports"))
        for node, facts in fleet.items()
        if by_node[node] is None
    ]
    unsure = unknown_ports.unreadable_ports(rule, fleet)
    findings += unsure.values()
    # A node with unknown ports may have the same as the others.
    shown = {node: str(a) for node, a in by_node.items() if a is not None and node not in unsure}
    for node in unknown_ports.unplaced(shown, fleet):
        reason = "of its ports, or of its routes, less is known than of other nodes'"
        findings.append(unread(rule, node, f"{shown.pop(node)}; which of them are the fabric's is", reason))
    advice = "look at its ports: ibstat, or fi_info -p efa on EFA; a cable, a switch port, or the device itself"
    findings += [_named(f, by_node, fleet) for f in equal(rule, "{}", shown, advice)]
    findings += _down(by_node, {f.subject for f in findings})
    findings += [finding for node, a in by_node.items() if a for finding in _slow(node, a)]
    findings += [finding for node, facts in fleet.items() for finding in _efa(node, facts)]
    if not findings and not any(a and a.kind for a in by_node.values()):
        advice = "fine only where TCP is all you have"
        return [warn(rule, "", "no node has an active RDMA port: NCCL will use TCP", advice)]
    return or_ok(rule, "", findings, f"{usual(shown)} active on each node")


def _named(finding: Finding, by_node: dict[str, Adapters | None], fleet: Fleet) -> Finding:
    """Finding for a node that differs, with its inactive ports."""
    odd = by_node.get(finding.subject)
    down = [f"{name(p)} {p['state']}/{p['physical']}" for p, _ in odd.others if _is_down(p)] if odd else []
    message = f"{finding.message}; not active there: {', '.join(down)}" if down else finding.message
    return Finding(finding.check, finding.subject, finding.verdict, message, finding.numbers, finding.hint)


def _is_down(port: Facts) -> bool:
    return port["state"] not in (None, ACTIVE)


def _down(by_node: dict[str, Adapters | None], reported: set[str]) -> list[Finding]:
    """Warn about ports that are down on nodes like the others: they may never have been cabled."""
    findings = []
    for node, a in by_node.items():
        down = [name(port) for port, _ in a.others if _is_down(port)] if a else []
        if down and node not in reported:
            advice = "where they belong to the fabric: cable, switch port, subnet manager"
            findings.append(warn("adapters", node, f"not active, and so not used: {', '.join(down)}", advice))
    return findings


def _slow(node: str, found: Adapters) -> list[Finding]:
    """Warn about an active port that is slower than those of its kind, where it completes their number to 2, 4, 8, …

    Ports of storage are slower by design, and come beside a complete set.
    """
    kind = {port["link"] for port in found.fabric}
    slow = [
        port for port, _ in found.others if port["state"] == ACTIVE and port["link"] in kind and _is_slower(port, found)
    ]
    total = len(slow) + len(found.fabric)
    if not slow or len(slow) >= len(found.fabric) or total & (total - 1):
        return []
    shown = ", ".join(f"{name(port)} {port['rate_gbps']:g}" for port in slow)
    message = f"slower than the {len(found.fabric)} other ports of {found.rate_gbps:g} Gb/s: {shown} Gb/s"
    return [warn("adapters", node, message, "unless it serves storage: cable, transceiver and switch port")]


def _is_slower(port: Facts, found: Adapters) -> bool:
    rate = port["rate_gbps"]
    return rate is not None and found.rate_gbps is not None and rate < found.rate_gbps and not port["efa"]


def _efa(node: str, facts: Facts) -> list[Finding]:
    """Check that the driver serves every EFA device on the bus, and that libfabric offers it."""
    efa = get(facts, "rdma", "efa")
    if efa is None:
        return []
    if efa["domains"] is None:
        reason = why(facts, "rdma", "efa domains")
        return [unread("adapters", node, "libfabric's EFA devices are", reason, "install the EFA software")]
    every = get(facts, "rdma", "ports")
    if every is None or any(port["efa"] is None for port in every):
        return []  # reported elsewhere
    ports = [port["device"] for port in every if port["efa"]]
    # A p6-b200 has two more devices, with other names, which libfabric does not offer.
    named = [device for device in ports if device and device.startswith(EFA_NAMES)]
    advice = "dmesg; modprobe -r efa && modprobe efa, or stop and start the instance"
    if efa["on_bus"] is not None and len(ports) < efa["on_bus"]:
        message = f"the driver serves {len(ports)} EFA devices, the bus shows {efa['on_bus']}"
        return [fail("adapters", node, message, advice, served=len(ports), on_bus=efa["on_bus"])]
    if efa["domains"] < len(named):
        message = f"libfabric offers {efa['domains']} EFA devices, the driver serves {len(named)}"
        return [fail("adapters", node, message, advice, domains=efa["domains"], served=len(named))]
    return []


def peer_memory_(fleet: Fleet) -> list[Finding]:
    """Check GPUDirect RDMA: DMA-BUF or a peer memory module moves data between adapter and GPU."""
    rule, by_node = "gdr", {}
    findings, unsure = [], unknown_ports.unreadable_ports("gdr", fleet)
    for node, facts in fleet.items():
        ports = adapters(facts)
        if ports is None:
            findings.append(unread(rule, node, "its RDMA adapters are", why(facts, "rdma", "ports")))
            continue
        if not ports.kind:
            findings += [unsure[node]] if node in unsure else []
            continue
        by_node[node] = peer_memory(facts)
        if by_node[node] is None:
            findings.append(unread(rule, node, "the way from adapter to GPU memory is", _why_no_way(facts, ports.kind)))
        elif not by_node[node] and node in unsure:
            findings.append(unsure[node])
        elif not by_node[node]:
            message = "neither DMA-BUF nor a peer memory module: every byte takes a detour through the host's memory"
            advice = "modprobe nvidia_peermem, or use Linux 5.12 and NVIDIA's open kernel module"
            findings.append(fail(rule, node, message, advice))
    if not by_node and not findings:
        return [ok(rule, "", "not asked: no node has an active RDMA port")]
    used = {node: path for node, path in by_node.items() if path}
    findings += equal(rule, "{}", used, "make the nodes alike", Verdict.WARN)
    return or_ok(rule, "", findings, f"by {usual(used)} on each node")


def _why_no_way(facts: Facts, kind: str) -> str:
    if get(facts, "peer_memory", "modules") is None:
        return why(facts, "peer_memory", "modules")
    if kind == "efa":
        return "no efa_nv_peermem and no DMA-BUF was found, and old EFA drivers need neither: see a run's log (GDRDMA)"
    return f"no peer memory module, and whether DMA-BUF works is not known: {why(facts, 'gpu', 'module')}"


def memlock(fleet: Fleet) -> list[Finding]:
    """Check that the job's user may lock enough memory, which RDMA pins."""
    unsure = unknown_ports.unreadable_ports("memlock", fleet)
    findings = [finding for node, facts in fleet.items() for finding in _memlock(node, facts, unsure.get(node))]
    users = sorted({str(get(facts, "limits", "user")) for facts in fleet.values()})
    return or_ok("memlock", "", findings, f"enough for user {', '.join(users)} on each node")


def _memlock(node: str, facts: Facts, unsure: Finding | None) -> list[Finding]:
    rule, value, user = "memlock", get(facts, "limits", "memlock"), get(facts, "limits", "user")
    ports = adapters(facts)
    if value is None:
        return [unread(rule, node, "the memory its user may lock is", why(facts, "limits", "memlock"))]
    if value == "unlimited" or value >= MEMLOCK_ENOUGH:
        return []
    if ports is not None and not ports.kind:
        return [unsure] if unsure else []
    advice = "memlock unlimited in /etc/security/limits.d, then log in again (gpuctl tune-nodes does it)"
    message = f"user {user} may lock {_size(value)} of memory"
    if ports is None:
        reason = why(facts, "rdma", "ports")
        return [unread(rule, node, f"{message}; whether it needs more for RDMA is", reason, advice)]
    if value <= MEMLOCK_DEFAULT:
        return [fail(rule, node, f"{message}: RDMA cannot register its buffers", advice, memlock_bytes=value)]
    return [warn(rule, node, f"{message}, less than {_size(MEMLOCK_ENOUGH)}", advice, memlock_bytes=value)]


def _size(value: int) -> str:
    for unit, size in (("GiB", GIB), ("MiB", 2**20), ("KiB", 2**10)):
        if value >= size:
            return f"{value / size:g} {unit}"
    return f"{value} bytes"
