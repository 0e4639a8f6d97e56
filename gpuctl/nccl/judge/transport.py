"""transport: every rank uses the expected network, as many adapters as the others, and GPUDirect RDMA.

A run that fell back to TCP completes, only slowly: the network shows in NCCL's start messages (NCCL_DEBUG=INFO).
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence, Set

from gpuctl.domain.findings import Finding, Verdict
from gpuctl.nccl.baselines.model import Book
from gpuctl.nccl.context import RunContext
from gpuctl.nccl.messages import Numbers, names, plural
from gpuctl.nccl.model import Outcome, Rank, Run, Transport
from gpuctl.nccl.networks import SOCKET, describe, suits, word

RULE = "transport"
LOG_NETWORK = "run it again with NCCL_DEBUG=INFO NCCL_DEBUG_SUBSYS=INIT,NET on every rank"
ALONE = "; a single node uses no network: give --nodes 1"
FALL_BACK = "check the driver, the plugin and the adapters there; set NCCL_NET so that NCCL fails instead"
ADAPTERS = "check for adapters that are down or missing, and that NCCL_IB_HCA names all; see NCCL's NET lines"
GDR = "check for nvidia_peermem or DMA-BUF there, and for the kernel module that EFA needs (efa_nv_peermem)"

Nodes = Mapping[str, Sequence[Transport]]


def transport(run: Run, about: RunContext, book: Book) -> Iterator[Finding]:
    if run.outcome is Outcome.EMPTY or about.nodes == 1:
        return  # one node alone uses no network
    system = book.systems.get(about.system or "")
    expected = about.network or (system.network if system else None)
    by_node = _by_node(run)
    findings = [*_networks(by_node, expected), *_fewer_adapters(by_node), *_staged(by_node)]
    yield from findings
    silent = _silent(run, about)
    if silent is not None:
        numbers: Numbers = {"ranks": about.ranks, "ranks_reported": len(_ranks_with_network(run)), "expected": expected}
        yield Finding(RULE, "", Verdict.UNKNOWN, silent, numbers, LOG_NETWORK + (ALONE if about.nodes is None else ""))
    elif not findings:
        yield _good(by_node, expected)


def _by_node(run: Run) -> Nodes:
    """Group transports by node; a rank whose node is unknown is a group of its own."""
    hosts = {rank.rank: rank.host for rank in run.ranks}
    by_node = defaultdict(list)
    for one in run.transports:
        named = f"rank {one.rank}" if one.rank is not None else "a rank without a number"
        by_node[one.host or hosts.get(-1 if one.rank is None else one.rank) or named].append(one)
    return by_node


def _ranks_with_network(run: Run) -> set[int]:
    """Ranks whose network is known.

    A process that reported without a rank counts as any one rank of its node, or as all of them if one process has
    them all.
    """
    ranks_reported = {one.rank for one in run.transports if one.rank is not None and one.network}
    nameless = Counter(one.host for one in run.transports if one.rank is None and one.network)
    on: dict[str | None, list[Rank]] = defaultdict(list)
    for rank in run.ranks:
        on[rank.host].append(rank)
    for host, processes in nameless.items():
        on_host = on[host]
        alone = len({rank.pid for rank in on_host}) == 1
        ranks_reported.update(
            [rank.rank for rank in on_host if rank.rank not in ranks_reported][: None if alone else processes]
        )
    return ranks_reported


def _silent(run: Run, about: RunContext) -> str | None:
    """Ranks that have not reported a network, as text; None if all have."""
    ranks_reported = _ranks_with_network(run)
    if not ranks_reported:
        return "the log does not name the network that the ranks used"
    if about.ranks is None:
        return f"{plural(len(ranks_reported), 'rank')} reported a network; the number of ranks is unknown"
    if len(ranks_reported) >= about.ranks:
        return None
    missing = {rank.host for rank in run.ranks if rank.rank not in ranks_reported}
    where = f", on {names(missing)}" if missing else ""
    silent_ranks = about.ranks - len(ranks_reported)
    return f"{silent_ranks} of {plural(about.ranks, 'rank')} did not report a network{where}"


def _networks(by_node: Nodes, expected: str | None) -> Iterator[Finding]:
    """Nodes with a rank on an unexpected network; without an expectation, on a socket or unlike the others."""
    used = {node: {word(one) for one in ones if one.network} for node, ones in by_node.items()}
    kinds = {kind for kinds_used in used.values() for kind in kinds_used}
    if expected is not None:
        for node, ones in sorted(by_node.items()):
            yield from _not_as_expected(node, [one for one in ones if one.network], expected)
    elif len(kinds) > 1:
        yield from _unlike(used)
    elif kinds == {SOCKET}:
        message = "every rank uses TCP sockets; the expected network is unknown"
        advice = f"if this fabric has nothing faster, pass --network socket; else {FALL_BACK}"
        yield Finding(RULE, names(used), Verdict.UNKNOWN, message, {"network": SOCKET}, advice)


def _not_as_expected(node: str, ones: Sequence[Transport], expected: str) -> Iterator[Finding]:
    other = [one for one in ones if suits(one, expected) is False]
    unsure = [one for one in ones if suits(one, expected) is None]
    reported = names(map(describe, other or unsure))
    ranks = {"ranks": len(other or unsure), "ranks_reported": len(ones)}
    numbers: Numbers = {"expected": expected, "network": reported, **ranks}
    if other:
        what = "socket fallback" if any(word(one) == SOCKET for one in other) else f"{reported} instead of {expected}"
        message = f"{what} on {node} ({len(other)} of {plural(len(ones), 'rank')} that reported)"
        yield Finding(RULE, node, Verdict.FAIL, message, numbers, FALL_BACK)
    elif unsure:
        message = f"{node} uses {reported}; the log does not show whether that is {expected}"
        yield Finding(RULE, node, Verdict.UNKNOWN, message, numbers, LOG_NETWORK)


def _unlike(used: Mapping[str, Set[str]]) -> Iterator[Finding]:
    """Nodes that disagree: those on a socket, else the minority; without a majority, all of them."""
    count = Counter(kind for kinds in used.values() for kind in kinds if kind != SOCKET).most_common(2)
    usual, most = count[0]
    if len(count) > 1 and count[1][1] == most:
        message = "the nodes use different networks: " + "; ".join(
            f"{node} {names(kinds)}" for node, kinds in used.items()
        )
        yield Finding(RULE, names(used), Verdict.FAIL, message, {"networks": len(count)}, FALL_BACK)
        return
    for node, kinds in sorted(used.items()):
        other = kinds - {usual}
        if other:
            what = "socket fallback" if SOCKET in other else f"{names(other)} instead of {usual}"
            message = f"{what} on {node}, while {plural(most, 'node')} used {usual}"
            numbers: Numbers = {"expected": usual, "network": names(other), "nodes_as_expected": most}
            yield Finding(RULE, node, Verdict.FAIL, message, numbers, FALL_BACK)


def _fewer_adapters(by_node: Nodes) -> Iterator[Finding]:
    """Nodes that opened fewer adapters than another did; TCP interfaces are not adapters of a fabric."""
    fabric = {node: [one for one in ones if word(one) != SOCKET] for node, ones in by_node.items()}
    opened = {node: len({nic for one in ones for nic in one.nics}) for node, ones in fabric.items() if ones}
    most = max(opened.values(), default=0)
    for node, count in sorted(opened.items()):
        if 0 < count < most:
            message = f"{node} opened {plural(count, 'adapter')}, other nodes {most}"
            names_opened = names({nic for one in by_node[node] for nic in one.nics}, most=64)
            numbers: Numbers = {"adapters": count, "most": most, "opened": names_opened}
            yield Finding(RULE, node, Verdict.FAIL, message, numbers, ADAPTERS)
        elif count < most:
            message = f"{node} did not report its adapters, other nodes did"
            yield Finding(RULE, node, Verdict.UNKNOWN, message, {"adapters": None, "most": most}, LOG_NETWORK)


def _staged(by_node: Nodes) -> Iterator[Finding]:
    """Data staged through host memory: a fault on some nodes, worth a look on all of them."""
    gdr = {node: {one.gdr for one in ones if one.gdr is not None} for node, ones in by_node.items()}
    without = [node for node, states in gdr.items() if False in states]
    if not without:
        return
    if any(True in states for states in gdr.values()):
        for node in sorted(without):
            message = f"no GPUDirect RDMA on {node}: data goes through the host's memory; other nodes use it"
            yield Finding(RULE, node, Verdict.FAIL, message, {"gdr": 0, "nodes_without": len(without)}, GDR)
    else:
        message = (
            f"no GPUDirect RDMA on any node that reports it: data goes through the host's memory on {names(without)}"
        )
        yield Finding(RULE, names(without), Verdict.WARN, message, {"gdr": 0, "nodes_without": len(without)}, GDR)


def _good(by_node: Nodes, expected: str | None) -> Finding:
    every = [one for ones in by_node.values() for one in ones]
    used = names({describe(one) for one in every if one.network})
    adapters = sorted({len({nic for one in ones for nic in one.nics}) for ones in by_node.values()})
    gdr = "" if any(one.gdr for one in every) else "; the log does not show whether GPUDirect RDMA is used"
    as_expected = f", as expected ({expected})" if expected else "; no particular network was expected"
    message = f"every rank on {plural(len(by_node), 'node')} uses {used}{as_expected}{gdr}"
    numbers: Numbers = {
        "nodes": len(by_node),
        "network": used,
        "expected": expected,
        "adapters_per_node": adapters[-1] or None,
    }
    return Finding(RULE, "", Verdict.OK, message, numbers)
