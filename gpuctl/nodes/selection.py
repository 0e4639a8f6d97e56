"""Nodes and rows to show, and their order."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from gpuctl.core.errors import InvalidInput
from gpuctl.core.text import named
from gpuctl.nodes.model import Node, State
from gpuctl.nodes.summary import family


@dataclass(frozen=True)
class Selection:
    """Rows to show. `mine`: only those of the one who asks. `idle_s`: only GPUs that did not work for so long, None for
    all. `sort`: name of an order.
    """

    mine: bool = False
    idle_s: float | None = None
    sort: str = "inventory"


def of_type(nodes: Sequence[Node], text: str) -> list[Node]:
    """Nodes of an instance type, its family, or a part of their GPUs' model, in any case; "" is any.

    Nodes of unknown type stay. `InvalidInput` if every type is known, and none matches.
    """
    chosen = [node for node in nodes if _has_type(node, text)]
    if nodes and not chosen:
        known = named(sorted({family(node.type) for node in nodes}), 12)
        raise InvalidInput(f"select the nodes of --type {text}", "no node is of this type", f"there are: {known}")
    return chosen


def narrow(nodes: Sequence[Node], selection: Selection) -> list[Node]:
    """Rows to show, in their order. Nodes of which nothing is known stay."""
    chosen = list(nodes)
    if selection.mine:
        chosen = [mine for node in chosen if (mine := _mine(node)).users or node.why]
    if selection.idle_s is not None:
        chosen = [quiet for node in chosen if (quiet := _quiet(node, selection.idle_s)).quiet or node.why]
    order = ORDERS[selection.sort]
    return chosen if order is None else sorted(chosen, key=order)


def young_streaks(nodes: Sequence[Node], idle_s: float) -> int:
    """GPUs that do not work now, whose readings do not reach back far enough to tell for how long."""
    return sum(quiet.seconds < idle_s for node in nodes for quiet in node.quiet.values())


def _quiet(node: Node, idle_s: float) -> Node:
    quiet = {gpu: one for gpu, one in node.quiet.items() if one.seconds >= idle_s}
    return replace(node, quiet=quiet, users=tuple(user for user in node.users if set(user.gpus) & set(quiet)))


def _free(node: Node) -> int:
    """GPUs that a new job could have; in the API, those that no pod has."""
    return node.count(State.IDLE) if node.scheduler is None else (node.total or 0) - node.scheduler.allocated


def _has_type(node: Node, text: str) -> bool:
    if not text or not node.type:
        return True
    plain, name = text.casefold(), node.type.casefold()
    models = [(gpu.model or "").casefold() for gpu in node.gpus]
    return plain in (name, family(name)) or any(plain in model for model in models)


def _mine(node: Node) -> Node:
    return replace(node, users=tuple(user for user in node.users if user.mine))


def _oldest(node: Node) -> tuple[bool, int]:
    starts = [user.since for user in node.users if user.since is not None and not user.daemon]
    return not starts, min(starts, default=0)


def _busy(node: Node) -> float:
    values = [gpu.busy_percent for gpu in node.gpus if gpu.busy_percent is not None]
    return -sum(values) / len(values) if values else 1.0


def _memory(node: Node) -> int:
    return -sum(gpu.used_mib or 0 for gpu in node.gpus)


def _people(node: Node) -> tuple[bool, str]:
    names = sorted(user.who for user in node.users if not user.daemon)
    return not names, names[0] if names else ""


# Name -> sort key; None keeps the order of the inventory. Nodes of which nothing is known come last.
ORDERS: dict[str, Callable[[Node], Any] | None] = {
    "inventory": None,
    "name": lambda node: node.name,
    "idle": lambda node: (bool(node.why), -_free(node)),
    "use": lambda node: (bool(node.why), -node.count(State.USED) - node.count(State.RESERVED)),
    "memory": lambda node: (bool(node.why), _memory(node)),
    "util": lambda node: (bool(node.why), _busy(node)),
    "since": lambda node: (bool(node.why), _oldest(node)),
    "who": lambda node: (bool(node.why), _people(node)),
}
