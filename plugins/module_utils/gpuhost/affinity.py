"""Choose processors, memory nodes and environment for a program that uses given GPUs. Pure: no I/O."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from posixpath import basename

from .allocators import ALLOCATORS, preloaded
from .gpus import Gpu, find
from .topology import as_list, home


class CannotPlace(Exception):
    """The placement is unknown, or not allowed on this host; `hint` is what to try."""

    def __init__(self, wrong: str, hint: str) -> None:
        super().__init__(wrong)
        self.hint = hint


@dataclass(frozen=True)
class Request:
    """The command to run, the GPUs it uses (as the caller names them), and options."""

    gpus: tuple[str, ...]
    command: tuple[str, ...]
    allocator: str = ""
    schedule: tuple[str, int] | None = None  # ("fifo", 50)
    several_nodes: bool = False


@dataclass(frozen=True)
class Facts:
    """The host's topology, and the limits and environment of the caller."""

    gpus: tuple[Gpu, ...]
    cpus_of_node: Mapping[int, Sequence[int]]
    nodes_with_memory: frozenset[int]
    allowed_cpus: frozenset[int]
    allowed_nodes: frozenset[int]
    library: str = ""  # path of the requested allocator's library; empty if not installed
    environment: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Decision:
    """The placement: GPUs, nodes and processors, and the variables to add to the environment."""

    gpus: tuple[Gpu, ...]
    nodes: tuple[int, ...]
    cpus: tuple[int, ...]
    environment: tuple[tuple[str, str], ...]
    command: tuple[str, ...]
    schedule: tuple[str, int] | None = None
    only_node: bool = False  # no other node has memory
    notes: tuple[str, ...] = ()


def decide(request: Request, facts: Facts) -> Decision:
    """Return the placement; raise `CannotPlace` if there is none."""
    chosen = _chosen(request, facts)
    nodes = _nodes(request, facts, chosen)
    near = frozenset(cpu for node in nodes for cpu in facts.cpus_of_node[node])
    cpus = _usable(facts, near)
    return Decision(
        gpus=chosen,
        nodes=nodes,
        cpus=cpus,
        environment=(("CUDA_VISIBLE_DEVICES", _visible(chosen)), *_allocator(request, facts)),
        command=request.command,
        schedule=request.schedule,
        only_node=facts.nodes_with_memory <= set(nodes),
        notes=(*_shortage(near, cpus), *_surprises(request, facts, chosen)),
    )


def _chosen(request: Request, facts: Facts) -> tuple[Gpu, ...]:
    if not facts.gpus:
        wrong = "no NVIDIA driver serves a GPU here (nothing in /proc/driver/nvidia/gpus)"
        raise CannotPlace(wrong, "load the driver, or run this on a GPU host")
    return tuple(dict.fromkeys(_one(facts, name) for name in request.gpus))


def _one(facts: Facts, name: str) -> Gpu:
    if name.startswith("MIG-"):
        raise CannotPlace(
            f"the host's files do not say which GPU {name} is a part of",
            f"name its GPU (`nvidia-smi -L` shows it) and the instance yourself: "
            f"gpuctl-exec --gpu N -- env CUDA_VISIBLE_DEVICES={name} ...",
        )
    gpu = find(facts.gpus, name)
    if gpu is None:
        known = "; ".join(f"{g.index}: {g.address} {g.uuid}".rstrip() for g in facts.gpus)
        raise CannotPlace(f"this host has no GPU {name}", f"it has {known}")
    if not gpu.uuid:
        raise CannotPlace(
            f"the driver has not started GPU {gpu.index} ({gpu.address}) yet and does not know its UUID",
            "start nvidia-persistenced, or run nvidia-smi once, and try again",
        )
    return gpu


def _nodes(request: Request, facts: Facts, chosen: Sequence[Gpu]) -> tuple[int, ...]:
    homes = {gpu: _home(facts, gpu) for gpu in chosen}
    if len(set(homes.values())) > 1 and not request.several_nodes:
        shown = ", ".join(f"GPU {gpu.index} on node {node}" for gpu, node in homes.items())
        wrong = f"these GPUs are near different NUMA nodes: {shown}"
        raise CannotPlace(wrong, "run one process a GPU, or allow all of these nodes with --several-nodes")
    for node in homes.values():
        _check_memory(facts, node)
    return tuple(sorted(set(homes.values())))


def _home(facts: Facts, gpu: Gpu) -> int:
    node = home(gpu.node, facts.cpus_of_node)
    if node is None:
        bare = f"is on NUMA node {gpu.node}, which has no processors"
        named = "names no NUMA node (numa_node is -1)" if gpu.node is None else bare
        raise CannotPlace(
            f"GPU {gpu.index} ({gpu.address}) {named}, and there are {len(facts.cpus_of_node)} nodes",
            "look for NUMA settings in the firmware, or bind the program yourself with numactl",
        )
    return node


def _check_memory(facts: Facts, node: int) -> None:
    if node not in facts.nodes_with_memory:
        raise CannotPlace(f"NUMA node {node} has no memory", "bind it yourself with numactl to the node next to it")
    if node not in facts.allowed_nodes:
        raise CannotPlace(
            f"memory of NUMA node {node} is not allowed here (Mems_allowed_list {as_list(facts.allowed_nodes)})",
            "ask the scheduler or the container for a cpuset that has this node, or take another GPU",
        )


def _usable(facts: Facts, near: frozenset[int]) -> tuple[int, ...]:
    usable = near & facts.allowed_cpus
    if not usable:
        allowed = f"(Cpus_allowed_list {as_list(facts.allowed_cpus)})"
        raise CannotPlace(
            f"none of the processors near it ({as_list(near)}) is allowed here {allowed}",
            "ask the scheduler for processors near the GPU (Slurm: --gres-flags=enforce-binding), or take another GPU",
        )
    return tuple(sorted(usable))


def _visible(chosen: Sequence[Gpu]) -> str:
    return ",".join(gpu.uuid for gpu in chosen)


def _allocator(request: Request, facts: Facts) -> tuple[tuple[str, str], ...]:
    """Variables that load the allocator into the program; those that the caller has set are kept."""
    if not request.allocator:
        return ()
    allocator = ALLOCATORS[request.allocator]
    before = facts.environment.get("LD_PRELOAD", "")
    allocators = preloaded(before)
    if not facts.library:
        raise CannotPlace(f"{request.allocator} is not installed here", f"install {allocator.packages}")
    if any(basename(entry) != basename(facts.library) for entry in allocators):
        wrong = f"LD_PRELOAD holds an allocator already: {', '.join(allocators)}"
        raise CannotPlace(wrong, "unset LD_PRELOAD, or leave --allocator out")
    preload = before if allocators else ":".join(filter(None, (facts.library, before)))
    settings = ((name, value) for name, value in allocator.environment.items() if name not in facts.environment)
    return (("LD_PRELOAD", preload), *settings)


def _shortage(near: frozenset[int], cpus: Sequence[int]) -> tuple[str, ...]:
    few = len(cpus) < len(near)
    return (f"only {len(cpus)} of the {len(near)} processors near it are allowed here",) if few else ()


def _surprises(request: Request, facts: Facts, chosen: Sequence[Gpu]) -> list[str]:
    """Notes on effects that the caller may not expect."""
    before = facts.environment.get("CUDA_VISIBLE_DEVICES")
    notes = [f"GPU {gpu.index} is split by MIG: CUDA will take its first instance" for gpu in chosen if gpu.split]
    if before not in (None, _visible(chosen)):
        notes.append(f"CUDA_VISIBLE_DEVICES was {before or 'empty'} and is replaced")
    settings = ALLOCATORS[request.allocator].environment if request.allocator else {}
    kept = [name for name in settings if name in facts.environment]
    return notes + [f"{name} is kept as it was set: {facts.environment[name]}" for name in kept]
