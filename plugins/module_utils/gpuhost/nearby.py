"""Decide where a program that works on certain GPUs belongs, and with what environment. Reads and changes nothing."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from .allocators import ALLOCATORS, preloaded
from .gpus import Gpu, find
from .topology import as_list, home


class Cannot(Exception):
    """It cannot be known where the program belongs, or it may not run there; `hint` says what to try."""

    def __init__(self, wrong: str, hint: str) -> None:
        super().__init__(wrong)
        self.hint = hint


@dataclass(frozen=True)
class Ask:
    """What somebody wants to run, and how."""

    gpus: tuple[str, ...]
    command: tuple[str, ...]
    allocator: str = ""
    schedule: tuple[str, int] | None = None  # ("fifo", 50)
    several_nodes: bool = False


@dataclass(frozen=True)
class Facts:
    """What the host and the caller's surroundings are."""

    gpus: tuple[Gpu, ...]
    cpus_of_node: Mapping[int, Sequence[int]]
    nodes_with_memory: frozenset[int]
    allowed_cpus: frozenset[int]
    allowed_nodes: frozenset[int]
    library: str = ""  # of the allocator asked for; empty: not installed
    environment: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Decision:
    """Where the program runs and what it is given."""

    gpus: tuple[Gpu, ...]
    nodes: tuple[int, ...]
    cpus: tuple[int, ...]
    environment: tuple[tuple[str, str], ...]
    command: tuple[str, ...]
    schedule: tuple[str, int] | None = None
    only_node: bool = False  # there is no other memory it could take
    notes: tuple[str, ...] = ()


def decide(ask: Ask, facts: Facts) -> Decision:
    """The decision, or `Cannot`."""
    chosen = _chosen(ask, facts)
    nodes = _nodes(ask, facts, chosen)
    cpus, notes = _cpus(facts, nodes)
    variables = _visible(facts, chosen, notes)
    if ask.allocator:
        variables += _allocator(ask, facts, notes)
    return Decision(
        gpus=tuple(chosen),
        nodes=nodes,
        cpus=cpus,
        environment=tuple(variables),
        command=ask.command,
        schedule=ask.schedule,
        only_node=facts.nodes_with_memory <= set(nodes),
        notes=tuple(notes),
    )


def _chosen(ask: Ask, facts: Facts) -> list[Gpu]:
    if not facts.gpus:
        raise Cannot(
            "no NVIDIA driver serves a GPU here (/proc/driver/nvidia/gpus is empty)",
            "load the driver, or run this on a GPU host",
        )
    return list(dict.fromkeys(_one(facts, name) for name in ask.gpus))


def _one(facts: Facts, name: str) -> Gpu:
    if name.startswith("MIG-"):
        raise Cannot(
            f"the host's files do not say which GPU {name} is a part of",
            f"name its GPU (`nvidia-smi -L` shows it) and the instance yourself: "
            f"gpuctl-exec --gpu 0 -- env CUDA_VISIBLE_DEVICES={name} …",
        )
    gpu = find(list(facts.gpus), name)
    if gpu is None:
        known = "; ".join(f"{g.index}: {g.address} {g.uuid}".rstrip() for g in facts.gpus)
        raise Cannot(f"this host has no GPU {name}", f"it has {known}")
    if not gpu.uuid:
        raise Cannot(
            f"the driver has not started GPU {gpu.index} ({gpu.address}) yet and does not know its UUID",
            "start nvidia-persistenced, or run nvidia-smi once, and try again",
        )
    return gpu


def _nodes(ask: Ask, facts: Facts, chosen: Sequence[Gpu]) -> tuple[int, ...]:
    homes = {gpu: home(gpu.node, facts.cpus_of_node) for gpu in chosen}
    for gpu, node in homes.items():
        if node is None:
            bare = f"NUMA node {gpu.node}, which has no processors"
            named = "no NUMA node (numa_node is -1)" if gpu.node is None else bare
            raise Cannot(
                f"the firmware gives GPU {gpu.index} ({gpu.address}) {named}, of {len(facts.cpus_of_node)} there are",
                "look for NUMA settings in the firmware, or bind the program yourself with numactl",
            )
    nodes = sorted({node for node in homes.values() if node is not None})
    if len(nodes) > 1 and not ask.several_nodes:
        shown = ", ".join(f"GPU {gpu.index} on node {node}" for gpu, node in homes.items())
        raise Cannot(
            f"these GPUs are near different NUMA nodes: {shown}", "run one process a GPU, or add --several-nodes"
        )
    for node in nodes:
        if node not in facts.nodes_with_memory:
            raise Cannot(f"NUMA node {node} has no memory", "bind it yourself with numactl to the node next to it")
        if node not in facts.allowed_nodes:
            raise Cannot(
                f"memory of NUMA node {node} is not allowed here (Mems_allowed_list {as_list(facts.allowed_nodes)})",
                "ask the scheduler or the container for a cpuset that has this node, or take another GPU",
            )
    return tuple(nodes)


def _cpus(facts: Facts, nodes: Sequence[int]) -> tuple[tuple[int, ...], list[str]]:
    near = {cpu for node in nodes for cpu in facts.cpus_of_node[node]}
    usable = near & facts.allowed_cpus
    if not usable:
        raise Cannot(
            f"none of the processors near it ({as_list(near)}) is allowed here"
            f" (Cpus_allowed_list {as_list(facts.allowed_cpus)})",
            "ask the scheduler for processors near the GPU (Slurm: --gres-flags=enforce-binding), or take another GPU",
        )
    notes = [f"only {len(usable)} of the {len(near)} processors near it are allowed here"] if usable < near else []
    return tuple(sorted(usable)), notes


def _visible(facts: Facts, chosen: Sequence[Gpu], notes: list[str]) -> list[tuple[str, str]]:
    wanted = ",".join(gpu.uuid for gpu in chosen)
    before = facts.environment.get("CUDA_VISIBLE_DEVICES")
    if before not in (None, wanted):
        notes.append(f"CUDA_VISIBLE_DEVICES was {before or 'empty'} and is replaced")
    notes += [f"GPU {gpu.index} is split by MIG: CUDA will take its first instance" for gpu in chosen if gpu.split]
    return [("CUDA_VISIBLE_DEVICES", wanted)]


def _allocator(ask: Ask, facts: Facts, notes: list[str]) -> list[tuple[str, str]]:
    allocator = ALLOCATORS[ask.allocator]
    before = facts.environment.get("LD_PRELOAD", "")
    held = preloaded(before)
    if not facts.library:
        raise Cannot(f"{ask.allocator} is not installed here", f"install {allocator.packages}")
    if [entry for entry in held if entry != facts.library]:
        raise Cannot(
            f"LD_PRELOAD holds an allocator already: {', '.join(held)}", "unset LD_PRELOAD, or leave --allocator out"
        )
    kept = [name for name in allocator.environment if name in facts.environment]
    notes += [f"{name} is kept as it was set: {facts.environment[name]}" for name in kept]
    preload = before if held else ":".join(filter(None, (facts.library, before)))
    return [("LD_PRELOAD", preload), *((n, v) for n, v in allocator.environment.items() if n not in kept)]
