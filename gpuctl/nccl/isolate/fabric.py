"""Which network every node used over all runs of an isolation, and which adapters all nodes have."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import replace

from gpuctl.domain.findings import Finding
from gpuctl.nccl.baselines.model import Book
from gpuctl.nccl.context import RunContext
from gpuctl.nccl.isolate.model import Fleet
from gpuctl.nccl.judge.expected import SOCKET, word
from gpuctl.nccl.judge.transport import transport
from gpuctl.nccl.model import LaunchResult, Outcome, Rank, Run, Transport
from gpuctl.nccl.topology.adapters import in_order

_WHOLE = (Outcome.COMPLETE, Outcome.CORRUPT)  # of these every rank had the time to say its network
EFA = re.compile(r"rdmap|efa_")  # the kernel's names for EFA's adapters


def findings(fleet: Fleet, history: Sequence[LaunchResult]) -> list[Finding]:
    """What the rule "transport" finds in all runs over all adapters taken together; nothing where none was whole."""
    if not any(ended.run.outcome in _WHOLE or ended.run.transports for ended in history):
        return []
    whole = _together(_ours(fleet, history))
    about = RunContext(nodes=len(fleet.nodes), ranks=len(whole.ranks), network=fleet.network)
    return list(transport(whole, about, Book({}, ())))


def rails(fleet: Fleet, history: Sequence[LaunchResult]) -> tuple[str, ...]:
    """The adapters that NCCL opened on every node, in the order of their numbers; none where a node did not say.

    None where they are EFA's, either: NCCL_IB_HCA does not choose among these.
    """
    opened: dict[str, set[str]] = {}
    for ended in _ours(fleet, history):
        hosts = {rank.rank: rank.host for rank in ended.run.ranks}
        for one in ended.run.transports:
            node = one.host or hosts.get(-1 if one.rank is None else one.rank)
            if node and word(one) != SOCKET:
                opened.setdefault(node, set()).update(map(_name, one.nics))
    if not set(fleet.nodes) <= set(opened):
        return ()
    common = set.intersection(*(opened[node] for node in fleet.nodes))
    return () if any(EFA.match(name) for name in common) else tuple(sorted(common, key=in_order))


def of_efa(history: Sequence[LaunchResult]) -> bool:
    """Whether the adapters are EFA's."""
    return any(EFA.match(nic) for ended in history for one in ended.run.transports for nic in one.nics)


def _ours(fleet: Fleet, history: Sequence[LaunchResult]) -> Iterator[LaunchResult]:
    """The runs of the fleet's nodes over all of their adapters."""
    members = set(fleet.nodes)
    return (ended for ended in history if not ended.launch.rail and members.issuperset(ended.launch.nodes))


def _together(history: Iterator[LaunchResult]) -> Run:
    """All runs as if they were one: their ranks numbered on. Of a run that broke off only ranks that spoke count."""
    ranks: list[Rank] = []
    told: list[Transport] = []
    first = 0
    for ended in history:
        spoke, own = ended.run.transports, _counted(ended)
        told += (one if one.rank is None else replace(one, rank=first + one.rank) for one in spoke)
        ranks += (replace(rank, rank=first + rank.rank) for rank in own)
        first += 1 + max([0, *(rank.rank for rank in own), *(one.rank or 0 for one in spoke)])
    return Run(Outcome.COMPLETE, None, None, (), None, None, tuple(ranks), tuple(told))


def _counted(ended: LaunchResult) -> list[Rank]:
    """The ranks that are asked about; where none are listed, one for each of its nodes."""
    run, nodes = ended.run, ended.launch.nodes
    listed = run.ranks or tuple(Rank(number, node, None, None, None) for number, node in enumerate(nodes))
    spoke = {one.rank for one in run.transports}
    hosts = {one.host for one in run.transports if one.rank is None}
    whole = run.outcome in _WHOLE
    return [rank for rank in listed if whole or rank.rank in spoke or rank.host in hosts]


def _name(nic: str) -> str:
    """As NCCL_IB_HCA takes it: mlx5_5 of "mlx5_5:1/RoCE"."""
    return nic.partition("/")[0].partition(":")[0]
