"""Facts about the fabric of a run, from its log or from options. None means unknown."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

from gpuctl.nccl import bandwidth
from gpuctl.nccl.model import Run
from gpuctl.nccl.parsing import algorithms

DEFAULT = "default"  # NCCL's own choice of an algorithm


@dataclass(frozen=True)
class RunContext:
    """Facts that a run is judged by, besides its numbers.

    `system`: an instance type or a site's own name for its machines. `algorithm`: the value of NCCL_ALGO, or
    "default" if it is known to be unset; `chosen`: the algorithms NCCL used, forced or not. `network`: the expected
    one: "efa", "ib", "roce", "socket" or NCCL's own word. The rest are counts.
    """

    system: str | None = None
    nodes: int | None = None
    gpus_per_node: int | None = None
    processes_per_node: int | None = None
    ranks: int | None = None
    gpu: str | None = None
    algorithm: str | None = None
    network: str | None = None
    collective: str | None = None
    chosen: tuple[str, ...] = ()


def infer(run: Run, stated: RunContext | None = None) -> RunContext:
    """Complete the stated context with facts from the run; stated facts win.

    A device list with gaps, or one that the bus factor contradicts, is incomplete and does not count nodes.
    """
    stated = stated or RunContext()
    collective = stated.collective or run.collective or _collective(run)
    ranks = stated.ranks or _ranks(run, collective or "")
    whole = bool(run.ranks) and ranks == len(run.ranks)
    nodes = stated.nodes or (len({rank.host for rank in run.ranks}) if whole else None)
    per_node = _even(Counter(rank.host for rank in run.ranks)) if whole else _share(ranks, nodes)
    return RunContext(
        stated.system,
        nodes,
        stated.gpus_per_node or per_node,
        stated.processes_per_node or (_processes(run) if whole else None),
        ranks,
        stated.gpu or _same_gpu(run),
        algorithm(run, stated),
        stated.network,
        collective,
        tuple(dict.fromkeys(run.algorithms)),
    )


def algorithm(run: Run, stated: RunContext) -> str | None:
    """Stated algorithm, else the one the log shows as forced; "default" if NCCL used several, so it chose.

    Only settings for this collective count, as NCCL_ALGO may name one for each. A forced algorithm in the log
    overrides a stated "default". A single algorithm in use may have been forced or not, so it stays unknown.
    """
    collective = stated.collective or run.collective or "all_reduce"
    requested = () if stated.algorithm in (None, DEFAULT) else algorithms.requested(stated.algorithm)
    for names in (requested, run.forced_algorithms):
        if applicable := algorithms.of_collective(names, collective):
            return ",".join(applicable)
    # Where NCCL_ALGO names other collectives alone, NCCL chose for this one.
    return DEFAULT if stated.algorithm is not None or len(set(run.algorithms)) > 1 else None


def _collective(run: Run) -> str | None:
    """Collective of a log that names none: only an all-reduce has a busbw well above its algbw."""
    halves = [row.out_of_place for row in run.rows if row.out_of_place]
    above = any(half.algbw_gbs >= 1 and half.busbw_gbs > 1.1 * half.algbw_gbs for half in halves)
    return "all_reduce" if above else None


def _ranks(run: Run, collective: str) -> int | None:
    """Number of ranks, if the device list and the bus factor agree."""
    listed = sorted(rank.rank for rank in run.ranks)
    counts = {bandwidth.ranks_by_factor(collective, row) for row in run.rows} - {None}
    if listed and listed == list(range(len(listed))) and (not counts or len(listed) in counts):
        return len(listed)
    proved = counts.pop() if len(counts) == 1 else None
    return proved if proved is None or proved > (listed[-1] if listed else 0) else None


def _even(counts: Counter[str]) -> int | None:
    """The common count, if all are equal."""
    return next(iter(counts.values())) if len(set(counts.values())) == 1 else None


def _share(ranks: int | None, nodes: int | None) -> int | None:
    return ranks // nodes if ranks and nodes and ranks % nodes == 0 else None


def _processes(run: Run) -> int | None:
    if any(rank.pid is None for rank in run.ranks):
        return None
    return _even(Counter(host for host, _ in {(rank.host, rank.pid) for rank in run.ranks}))


def _same_gpu(run: Run) -> str | None:
    """Model of all listed GPUs; a report lists one of each process."""
    models = {rank.gpu for rank in run.ranks if rank.gpu}
    return models.pop() if len(models) == 1 else None
