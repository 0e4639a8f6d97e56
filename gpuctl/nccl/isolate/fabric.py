"""The network that every node used over all runs of an isolation, and the adapters that all nodes have."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import replace

from gpuctl.domain.findings import Finding
from gpuctl.nccl.baselines.model import Book
from gpuctl.nccl.context import RunContext
from gpuctl.nccl.isolate.model import Fleet
from gpuctl.nccl.judge.transport import transport
from gpuctl.nccl.model import LaunchResult, Outcome, Rank, Run, Transport
from gpuctl.nccl.networks import SOCKET, word
from gpuctl.nccl.topology.adapters import in_order

_WHOLE = (Outcome.COMPLETE, Outcome.CORRUPT)  # runs long enough for every rank to print its network
EFA = re.compile(r"rdmap|efa_")  # kernel names of EFA adapters


def findings(fleet: Fleet, history: Sequence[LaunchResult]) -> list[Finding]:
    """The findings of the rule "transport" over all runs together; none if no run was long enough to tell."""
    if not any(result.run.outcome in _WHOLE or result.run.transports for result in history):
        return []
    whole = _together(_over_all_adapters(fleet, history))
    about = RunContext(nodes=len(fleet.nodes), ranks=len(whole.ranks), network=fleet.network)
    return list(transport(whole, about, Book({}, ())))


def rails(fleet: Fleet, history: Sequence[LaunchResult]) -> tuple[str, ...]:
    """The adapters that NCCL opened on every node, in the order of their numbers.

    Empty if a node did not print them, and for EFA, as NCCL_IB_HCA does not choose among EFA adapters.
    """
    opened: dict[str, set[str]] = {}
    for result in _over_all_adapters(fleet, history):
        hosts = {rank.rank: rank.host for rank in result.run.ranks}
        for used in result.run.transports:
            node = used.host or hosts.get(-1 if used.rank is None else used.rank)
            if node and word(used) != SOCKET:
                opened.setdefault(node, set()).update(map(_name, used.nics))
    if not set(fleet.nodes) <= set(opened):
        return ()
    common = set.intersection(*(opened[node] for node in fleet.nodes))
    return () if any(EFA.match(name) for name in common) else tuple(sorted(common, key=in_order))


def of_efa(history: Sequence[LaunchResult]) -> bool:
    """True if a run used EFA adapters."""
    return any(EFA.match(nic) for result in history for used in result.run.transports for nic in used.nics)


def _over_all_adapters(fleet: Fleet, history: Sequence[LaunchResult]) -> Iterator[LaunchResult]:
    """The runs of the fleet's nodes over all of their adapters."""
    members = set(fleet.nodes)
    return (result for result in history if not result.launch.rail and members.issuperset(result.launch.nodes))


def _together(history: Iterator[LaunchResult]) -> Run:
    """All runs as one, with consecutive rank numbers. An incomplete run adds only the ranks that printed a network."""
    ranks: list[Rank] = []
    transports: list[Transport] = []
    first = 0
    for result in history:
        used, counted = result.run.transports, _counted(result)
        transports += (one if one.rank is None else replace(one, rank=first + one.rank) for one in used)
        ranks += (replace(rank, rank=first + rank.rank) for rank in counted)
        first += 1 + max([0, *(rank.rank for rank in counted), *(one.rank or 0 for one in used)])
    return Run(Outcome.COMPLETE, None, None, (), None, None, tuple(ranks), tuple(transports))


def _counted(result: LaunchResult) -> list[Rank]:
    """The ranks whose network is judged; if the output lists none, one for each node."""
    run, nodes = result.run, result.launch.nodes
    listed = run.ranks or tuple(Rank(number, node, None, None, None) for number, node in enumerate(nodes))
    heard = {used.rank for used in run.transports}
    hosts = {used.host for used in run.transports if used.rank is None}
    whole = run.outcome in _WHOLE
    return [rank for rank in listed if whole or rank.rank in heard or rank.host in hosts]


def _name(nic: str) -> str:
    """The name that NCCL_IB_HCA takes: mlx5_5 of "mlx5_5:1/RoCE"."""
    return nic.partition("/")[0].partition(":")[0]
