"""One line for each type of node: how many GPUs are in use, idle, or unknown."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

from gpuctl.core.text import plural
from gpuctl.nodes.model import Node, State

NO_TYPE, NO_GPU = "unknown type", "without a GPU"


@dataclass(frozen=True)
class Group:
    """Nodes of one type. `gpus`: number of GPUs by state. `silent`: nodes of whose GPUs nothing is known."""

    type: str
    nodes: int
    gpus: dict[State, int] = field(default_factory=dict)
    silent: int = 0

    @property
    def total(self) -> int:
        return sum(self.gpus.values())

    def __str__(self) -> str:
        """Line of the summary: nodes, type, GPUs in use, and the others by state."""
        rest = [state for state in State if state is not State.USED]
        parts = [f"{self.gpus[state]} {state}" for state in rest if self.gpus.get(state)]
        if self.type == NO_GPU:
            return f"{self.nodes} × {NO_GPU}"  # noqa: RUF001
        head = f"{self.nodes} × {self.type}: {self.gpus.get(State.USED, 0)} of {plural(self.total, 'GPU')} in use"  # noqa: RUF001
        silent = [f"{plural(self.silent, 'node')} UNKNOWN"] if self.silent else []
        return "; ".join([head, *parts, *silent])


def groups(nodes: Sequence[Node]) -> list[Group]:
    """Groups by type, the largest first; nodes of unknown type are a group of their own."""
    by_type: dict[str, list[Node]] = {}
    for node in nodes:
        missing = NO_GPU if node.total == 0 and not node.why else NO_TYPE
        by_type.setdefault(family(node.type) or missing, []).append(node)
    made = [_group(name, members) for name, members in by_type.items()]
    return sorted(made, key=lambda group: (group.type == NO_TYPE, -group.total, group.type))


def family(node_type: str) -> str:
    """ "p5" of "p5.48xlarge"; models of GPUs stay as they are."""
    head, dot, size = node_type.partition(".")
    return head if dot and " " not in node_type and size else node_type


def _group(name: str, nodes: Sequence[Node]) -> Group:
    gpus: Counter[State] = Counter()
    for node in nodes:
        gpus.update({state: count for state in State if (count := node.count(state))})
    return Group(name, len(nodes), dict(gpus), sum(bool(node.why) for node in nodes))
