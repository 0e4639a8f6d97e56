"""Contradictions between a run's log and the user's options; neither can be trusted then."""

from __future__ import annotations

from collections.abc import Iterator

from gpuctl.nccl import context as known
from gpuctl.nccl.baselines.model import Book, gpu_models
from gpuctl.nccl.context import DEFAULT, RunContext
from gpuctl.nccl.messages import names, plural
from gpuctl.nccl.model import Run
from gpuctl.nccl.parsing import algorithms

NO_NAMES = {"", "localhost"}  # of hosts: several may be called so


def contradicted(run: Run, stated: RunContext, book: Book) -> list[str]:
    """List every contradiction by the option that causes it; facts missing from the log contradict nothing."""
    return [
        *other_gpus(run, stated.system, book),
        *_collective(run, stated),
        *_nodes(run, stated),
        *_gpus(run, stated),
        *_algorithm(run, stated),
    ]


def other_gpus(run: Run, system: str | None, book: Book) -> Iterator[str]:
    """The GPUs in the device list must be those of the machine type, or those that its baselines were measured on."""
    expected = book.gpus(system or "")
    texts = {rank.gpu for rank in run.ranks if rank.gpu}
    # A name that no known model has is that of another one.
    listed = {model for text in texts for model in gpu_models(text) or [text]}
    if expected and listed - expected:
        yield f"--instance {system}: it has {names(expected)} GPUs, the log lists {names(listed)}"


def _collective(run: Run, stated: RunContext) -> Iterator[str]:
    inferred = known.infer(run).collective
    if stated.collective and inferred and stated.collective != inferred:
        yield f"--collective {stated.collective}: the log is of {inferred}"


def _nodes(run: Run, stated: RunContext) -> Iterator[str]:
    """A complete device list gives the number of nodes, one with gaps a lower bound."""
    inferred, hosts = known.infer(run), {rank.host for rank in run.ranks}
    named = hosts - NO_NAMES
    if stated.nodes is None:
        return
    whole = inferred.nodes is not None and named == hosts
    if named and (stated.nodes != len(named) if whole else stated.nodes < len(named)):
        yield f"--nodes {stated.nodes}: the log lists {plural(len(named), 'node')} ({names(named)})"
    elif inferred.ranks is not None and stated.nodes > inferred.ranks:
        yield f"--nodes {stated.nodes}: the log is of {plural(inferred.ranks, 'rank')}, and a node has one at least"


def _gpus(run: Run, stated: RunContext) -> Iterator[str]:
    """Every rank is one GPU, so nodes times GPUs equals the ranks."""
    inferred = known.infer(run)
    gpus, nodes = stated.gpus_per_node, stated.nodes or inferred.nodes
    if gpus is None:
        return
    if inferred.gpus_per_node is not None and gpus != inferred.gpus_per_node:
        yield f"--gpus-per-node {gpus}: the log lists {inferred.gpus_per_node} on each node"
    elif inferred.ranks is not None and nodes is not None and nodes * gpus != inferred.ranks:
        yield f"--gpus-per-node {gpus}: {plural(nodes, 'node')} of {gpus} are not the {inferred.ranks} ranks of the log"


def _algorithm(run: Run, stated: RunContext) -> Iterator[str]:
    """The log's forced algorithms must equal the option, and the ones NCCL used must be among them."""
    if stated.algorithm is None:
        return
    collective = stated.collective or run.collective or "all_reduce"
    requested = () if stated.algorithm == DEFAULT else algorithms.requested(stated.algorithm)
    names = set(algorithms.of_collective(requested, collective))
    forced = set(algorithms.of_collective(run.forced_algorithms, collective))
    shown = ",".join(sorted(names)) or DEFAULT
    if forced and forced != names:
        yield f"--algo {shown}: the log shows that NCCL_ALGO was {','.join(sorted(forced))}"
        return
    banned = {name for name in names if name.startswith("^")}
    # What cannot do a collective fell back to the ring, before NCCL 2.24.
    used = set(run.algorithms) - ({"Ring"} if names - {"Ring"} else set())
    other = {name for name in used if f"^{name}" in banned} if banned else used - names if names else set()
    if other:
        yield f"--algo {shown}: the log shows that NCCL used {', '.join(sorted(other))}"
