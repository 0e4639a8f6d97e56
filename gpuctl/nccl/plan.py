"""Plan the rounds of a test and the exact commands that start them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from gpuctl.engine import MpirunRequest, full_command, gpus_per_process
from gpuctl.nccl.model import Launch, Sweep
from gpuctl.nccl.plan_kinds import Kind

COLLECTIVES = (
    "all_reduce",
    "all_gather",
    "reduce_scatter",
    "alltoall",
    "broadcast",
    "reduce",
    "gather",
    "scatter",
    "sendrecv",
)
RING = {"NCCL_ALGO": "Ring"}
# What NCCL says when it begins: versions, its network and adapters, the environment it heeds, how it chooses.
TALK = {"NCCL_DEBUG": "INFO", "NCCL_DEBUG_SUBSYS": "INIT,NET,ENV,TUNING"}
SPLIT = "NCCL_TESTS_SPLIT"
Round = tuple[Launch, ...]


def rounds(kind: Kind, nodes: Sequence[str], sweep: Sweep, split: bool = False) -> list[Round]:
    """Plan the rounds of a test: launches of one round share no node and run at the same time.

    quick: one all_reduce over all nodes. full: every collective over all nodes, one after the other. pairs: every
    pair, in N-1 rounds of N/2 (N rounds if N is odd), with the Ring algorithm: between two nodes a tree sends less
    over the network than busbw counts, and can hide a dead adapter. single: each node alone.

    With `split`, a round of pairs or of single nodes becomes one launch through NCCL_TESTS_SPLIT: nccl-tests then
    prints one number for all groups, that of the slowest (`-a 3`). One launch shows whether all are well, but not
    which one is slow.
    """
    if kind == "quick":
        return [(Launch(tuple(nodes), sweep),)]
    if kind == "full":
        return [(Launch(tuple(nodes), replace(sweep, collective=name)),) for name in COLLECTIVES]
    groups = [[(node,) for node in nodes]] if kind == "single" else pairings(nodes)
    pair_sweep = with_env(sweep, RING) if kind == "pairs" else sweep
    return [
        _one_launch(round_, pair_sweep) if split else tuple(Launch(group, pair_sweep) for group in round_)
        for round_ in groups
    ]


def pairings(nodes: Sequence[str]) -> list[list[tuple[str, ...]]]:
    """Every pair once, in the fewest rounds: one node stays, the others rotate around it (the circle method)."""
    ring: list[str | None] = [*nodes, *([None] if len(nodes) % 2 else [])]
    rounds_: list[list[tuple[str, ...]]] = []
    for _ in range(len(ring) - 1):
        half = len(ring) // 2
        facing = zip(ring[:half], reversed(ring[half:]), strict=True)
        rounds_.append([(a, b) for a, b in facing if a is not None and b is not None])
        ring = [ring[0], ring[-1], *ring[1:-1]]
    return rounds_


def _one_launch(groups: Sequence[tuple[str, ...]], sweep: Sweep) -> Round:
    """Combine all groups into one launch; ranks with the same quotient form a group."""
    nodes = tuple(node for group in groups for node in group)
    if len(groups) == 1:
        return (Launch(nodes, sweep),)
    return (Launch(nodes, with_env(sweep, {SPLIT: f"DIV {sweep.gpus_per_node * len(groups[0])}"})),)


def nodes_of_group(launch: Launch) -> int:
    """Number of nodes that a collective spans: all, or those of one group if the launch is split."""
    split = launch.sweep.env.get(SPLIT, "")
    if not split.startswith("DIV "):
        return len(launch.nodes)
    return int(split.removeprefix("DIV ")) // launch.sweep.gpus_per_node


def with_env(sweep: Sweep, more: Mapping[str, str]) -> Sweep:
    """Add variables to a sweep; those the user set win."""
    return replace(sweep, env={**more, **sweep.env})


def environment(launch: Launch) -> dict[str, str]:
    """Environment of every rank: NCCL's debug output, the user's variables, and the one adapter."""
    return {**TALK, **launch.sweep.env, **(_only(launch.rail) if launch.rail else {})}


def _only(rail: str) -> dict[str, str]:
    """Restrict to one adapter. libfabric chooses EFA's; `=` because mlx5_1 alone would also match mlx5_10."""
    # Both names are of the kernel: rdmap<bus>s<slot> is EFA's, as is efa_<n> of the first instances that had it.
    if rail.startswith(("rdmap", "efa_")):
        return {"FI_EFA_IFACE": rail}
    return {"NCCL_IB_HCA": f"={rail}"}


def program(sweep: Sweep) -> str:
    """File name of the test: all_reduce_perf."""
    return f"{sweep.collective}_perf"


def name_in_kernel(sweep: Sweep) -> str:
    """Process name in the kernel, which truncates it."""
    return program(sweep)[:15]


def arguments(launch: Launch) -> list[str]:
    """Arguments of the test: one process with all GPUs on a single node, else one GPU per process."""
    sweep = launch.sweep
    return [
        *("-b", str(sweep.begin_bytes), "-e", str(sweep.end_bytes), "-f", str(sweep.factor)),
        *gpus_per_process(list(launch.nodes), sweep.gpus_per_node),
        *("-n", str(sweep.iterations), "-w", str(sweep.warmup), "-c", str(int(sweep.check))),
        *(("-d", sweep.datatype) if sweep.datatype != "float" else ()),
        *(("-o", sweep.op) if sweep.op != "sum" else ()),
        *(("-I", "1") if sweep.per_iteration else ()),
        *(("-a", "3") if SPLIT in sweep.env else ()),
    ]


def command(launch: Launch, hosts: Sequence[str], as_root: bool = False, ssh_args: str = "") -> list[str]:
    """Command for the first node; `hosts` are the launch's nodes as they reach each other, in its order."""
    sweep, names = launch.sweep, list(environment(launch))
    return full_command(
        MpirunRequest(list(hosts), sweep.gpus_per_node, arguments(launch), names, sweep.limit_s, as_root, ssh_args)
    )
