"""Select the Slurm nodes of a test, with reasons for those left out: no I/O."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from gpuctl.core.errors import GpuctlError, InvalidInput
from gpuctl.domain import slurm_states
from gpuctl.edges.slurm import Node

DOING = "select Slurm nodes"
FREE = ("idle",)
# Nodes of the selected reservation have these states even if idle.
FREE_FOR_US = ("idle", "reserved", "maint", "idle$")


@dataclass(frozen=True)
class NodeRequest:
    """`names`: use only these nodes, in this order. `number`: how many usable nodes to take, None for all.

    `reserved`: nodes of the selected reservation, None without one.
    """

    partition: str = ""
    names: tuple[str, ...] = ()
    number: int | None = None
    gpus: int | None = None
    reserved: frozenset[str] | None = None


@dataclass(frozen=True)
class Choice:
    """`left_out`: node -> reason."""

    partition: str
    names: tuple[str, ...]
    left_out: Mapping[str, str]


def choose(nodes: Sequence[Node], request: NodeRequest) -> Choice:
    """Select the nodes. Without names only idle nodes; named nodes may be busy, but not drained or down.

    `InvalidInput` for an unknown partition or node; `GpuctlError` if no node is left.
    """
    partition = _partition(nodes, request.partition)
    known = {node.name: node for node in nodes if node.partition == partition}
    if unknown := [name for name in request.names if name not in known]:
        raise InvalidInput(
            DOING, f"{', '.join(unknown)}: not in the partition {partition}", f"`sinfo -p {partition} -N` lists them"
        )
    if len(set(request.names)) < len(request.names):
        raise InvalidInput(DOING, "a node is named twice", "list each one once")
    within = request.names or [name for name in known if request.reserved is None or name in request.reserved]
    left_out = {name: why for name in within if (why := why_not(known[name], request))}
    names = tuple(name for name in within if name not in left_out)
    if not names or (request.number is not None and len(names) < request.number):
        raise _too_few(partition, names, left_out, request)
    return Choice(partition, names[: request.number], left_out)


def why_not(node: Node, request: NodeRequest) -> str:
    """Reason why a node cannot be used; "" if it can."""
    name, suffixes = slurm_states.split(node.state)
    reason = f" ({node.reason})" if node.reason else ""
    if slurm_states.is_unusable(node.state):
        more = ", and it does not respond" if "*" in suffixes else ""
        return f"it is {name}{more}{reason}"
    if request.gpus and node.gpus is not None and node.gpus < request.gpus:
        return f"it has {node.gpus} GPUs, not {request.gpus}"
    if request.gpus and node.gpus is None:
        return "Slurm knows of no GPU there (no Gres)"
    if request.names or node.state in (FREE if request.reserved is None else FREE_FOR_US):
        return ""
    return "; ".join(
        [*([f"it is {name}"] if name != "idle" else []), *(slurm_states.SUFFIXES[one] for one in suffixes)]
    )


def _partition(nodes: Sequence[Node], requested: str) -> str:
    names = list(dict.fromkeys(node.partition for node in nodes))
    if requested and requested not in names:
        raise InvalidInput(DOING, f"there is no partition {requested}", f"there are {', '.join(names) or 'none'}")
    default = next((node.partition for node in nodes if node.is_default), "")
    if not (requested or default):
        raise InvalidInput(DOING, "no partition is the default one", f"choose one with --partition: {', '.join(names)}")
    return requested or default


def _too_few(partition: str, names: Sequence[str], left_out: Mapping[str, str], request: NodeRequest) -> GpuctlError:
    some = [f"{name}: {why}" for name, why in list(left_out.items())[:4]]
    number = f"only {len(names)} of {request.number} nodes" if names else "no node"
    rest = "; ".join(some) or ("there are no others" if names else "it has none")
    wrong = f"{number} of the partition {partition} can be used ({rest})"
    hint = "select others with --nodes, or fewer" if request.names else "select busy ones with --nodes to wait for them"
    return GpuctlError(DOING, wrong, f"{hint}; --gpus-per-node sets how many GPUs a node has")
