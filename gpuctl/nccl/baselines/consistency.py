"""What somebody says of a run, and its own log says otherwise: neither of the two is then to be believed."""

from __future__ import annotations

from collections.abc import Iterator

from gpuctl.nccl import context as known
from gpuctl.nccl.context import DEFAULT, RunContext
from gpuctl.nccl.judge.messages import names, plural
from gpuctl.nccl.model import Run
from gpuctl.nccl.parsing import algorithms

NO_NAMES = {"", "localhost"}  # of hosts: several may be called so


def contradicted(run: Run, given: RunContext) -> list[str]:
    """Every contradiction, by the option that tells it; what the log leaves open contradicts nothing."""
    return [*_collective(run, given), *_nodes(run, given), *_gpus(run, given), *_algorithm(run, given)]


def _collective(run: Run, given: RunContext) -> Iterator[str]:
    told = known.infer(run).collective
    if given.collective and told and given.collective != told:
        yield f"--collective {given.collective}: the log is of {told}"


def _nodes(run: Run, given: RunContext) -> Iterator[str]:
    """A whole list of devices tells how many nodes there were, one with holes how many there were at least."""
    told, hosts = known.infer(run), {rank.host for rank in run.ranks}
    named = hosts - NO_NAMES
    if given.nodes is None:
        return
    whole = told.nodes is not None and named == hosts
    if named and (given.nodes != len(named) if whole else given.nodes < len(named)):
        yield f"--nodes {given.nodes}: the log lists {plural(len(named), 'node')} ({names(named)})"
    elif told.ranks is not None and given.nodes > told.ranks:
        yield f"--nodes {given.nodes}: the log is of {plural(told.ranks, 'rank')}, and a node has one at least"


def _gpus(run: Run, given: RunContext) -> Iterator[str]:
    """Every rank is a GPU, so nodes times GPUs are the ranks."""
    told = known.infer(run)
    gpus, nodes = given.gpus_per_node, given.nodes or told.nodes
    if gpus is None:
        return
    if told.gpus_per_node is not None and gpus != told.gpus_per_node:
        yield f"--gpus-per-node {gpus}: the log lists {told.gpus_per_node} on each node"
    elif told.ranks is not None and nodes is not None and nodes * gpus != told.ranks:
        yield f"--gpus-per-node {gpus}: {plural(nodes, 'node')} of {gpus} are not the {told.ranks} ranks of the log"


def _algorithm(run: Run, given: RunContext) -> Iterator[str]:
    """What the log says was forced has to be what is given, and what NCCL used has to be among it."""
    if given.algorithm is None:
        return
    collective = given.collective or run.collective or "all_reduce"
    words = () if given.algorithm == DEFAULT else algorithms.requested(given.algorithm)
    asked = set(algorithms.of_collective(words, collective))
    forced = set(algorithms.of_collective(run.forced_algorithms, collective))
    shown = ",".join(sorted(asked)) or DEFAULT
    if forced and forced != asked:
        yield f"--algo {shown}: the log says that NCCL_ALGO was {','.join(sorted(forced))}"
        return
    banned = {name for name in asked if name.startswith("^")}
    # What cannot do a collective fell back to the ring, before NCCL 2.24.
    used = set(run.algorithms) - ({"Ring"} if asked - {"Ring"} else set())
    other = {name for name in used if f"^{name}" in banned} if banned else used - asked if asked else set()
    if other:
        yield f"--algo {shown}: the log says that NCCL used {', '.join(sorted(other))}"
