"""Draw the use of nodes for people: a line for each node, below it one for each user and each unused GPU."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from datetime import datetime

from gpuctl.core.text import plural
from gpuctl.engine import printable
from gpuctl.nodes.model import Gpu, Node, Quiet, State, User
from gpuctl.nodes.summary import Group

MOST_COMMAND = 120  # characters of a command line
UNKNOWN = "UNKNOWN"
Row = tuple[str, ...]
Cells = tuple[Row, list[Row]]


def lines(nodes: Sequence[Node], groups: Sequence[Group]) -> Iterator[str]:
    """Lines of all nodes and of the summary."""
    yield from (text for text, _ in entries(nodes))
    if nodes:
        yield ""
    yield from (printable(str(group)) for group in groups)


def entries(nodes: Sequence[Node], cells_of: Callable[[Node], Cells] | None = None) -> Iterator[tuple[str, Node]]:
    """Lines of all nodes, with the node of each; those of its users and unused GPUs are indented.

    `cells_of`: as `cells`, for a caller that draws a node more than once.
    """
    drawn = [(cells_of or cells)(node) for node in nodes]
    heads, rows_of = [first for first, _ in drawn], [rows for _, rows in drawn]
    head_widths, row_widths = _widths(heads), _widths([row for rows in rows_of for row in rows])
    for node, first, rows in zip(nodes, heads, rows_of, strict=True):
        yield _joined(first, head_widths), node
        yield from ((f"  {_joined(row, row_widths)}", node) for row in rows)


def cells(node: Node) -> Cells:
    """Cells of a node's line, and of the lines below it."""
    return head(node), below(node)


def _widths(rows: Sequence[Row]) -> list[int]:
    return [max(map(len, column)) for column in zip(*rows, strict=True)]


def _joined(row: Row, widths: Sequence[int]) -> str:
    cells = [cell.ljust(width) for cell, width in zip(row, widths, strict=True)]
    return printable("  ".join(cells).rstrip()).replace("\n", " ")


def head(node: Node) -> Row:
    """Cells: name, type, GPUs, use, memory, utilisation."""
    if node.why:
        count = plural(node.total, "GPU") if node.total else "? GPUs"
        return node.name, node.type or "-", count, f"{UNKNOWN}: {node.why}", "", ""
    counts = ", ".join(f"{number} {_word(state)}" for state in State if (number := node.count(state)))
    mig = sum(gpu.mig for gpu in node.gpus)
    total = plural(node.total or 0, "GPU") + (f" ({mig} MIG)" if mig else "")
    return node.name, node.type or "-", total, counts or "no GPU", _memory(node.gpus), _busy(node.gpus)


def _word(state: State) -> str:
    return UNKNOWN if state is State.UNKNOWN else str(state)


def _memory(gpus: Sequence[Gpu]) -> str:
    if not gpus:
        return ""
    used, total = [gpu.used_mib for gpu in gpus], [gpu.memory_mib for gpu in gpus]
    return f"{_gib(used)} of {_gib(total)} GiB"


def _gib(values: Sequence[int | None]) -> str:
    """Sum in GiB; "?" if a part is unknown."""
    return "?" if None in values else f"{sum(value or 0 for value in values) / 1024:.0f}"


def _busy(gpus: Sequence[Gpu]) -> str:
    """Mean utilisation of the GPUs that report it; GPUs with MIG do not."""
    values = [gpu.busy_percent for gpu in gpus if gpu.busy_percent is not None]
    if not values:
        return "? %" if gpus else ""
    rest = len(gpus) - len(values)
    return f"{sum(values) / len(values):.0f} %" + (f" ({rest} unknown)" if rest else "")


def below(node: Node) -> list[Row]:
    """Cells: GPUs, owner, job, memory, start, command. Users first, then GPUs without a user."""
    users = [_user(node, user) for user in node.users]
    rest = (State.RESERVED, State.MEMORY_IN_USE, State.UNKNOWN, State.IDLE)
    return users + [row for state in rest for row in _rest(node, state)]


def _user(node: Node, user: User) -> Row:
    memory = "" if user.used_mib is None or not user.processes else f"{user.used_mib / 1024:.1f} GiB"
    gpus = ranges(user.gpus) if user.gpu_count is None else plural(user.gpu_count, "GPU")
    marks = "service " if user.daemon else "! " if user.foreign else ""
    return gpus, f"{marks}{user.who}", user.what, memory, _since(node, user), _command(user)


def _command(user: User) -> str:
    commands = list(dict.fromkeys(process.command for process in user.processes))
    if not commands:
        return ""
    text = commands[0] if len(commands[0]) <= MOST_COMMAND else commands[0][: MOST_COMMAND - 1] + "…"
    return text + (f" (and {len(commands) - 1} more)" if len(commands) > 1 else "")


def _since(node: Node, user: User) -> str:
    """Start by the clock of this machine, and the time since then by the node's."""
    if user.since is None or node.now is None:
        return "since ?"
    start = datetime.fromtimestamp(user.since).astimezone()
    return f"since {start:%m-%d %H:%M} ({duration(node.now - user.since)})"


def _rest(node: Node, state: State) -> list[Row]:
    """A row for all GPUs of one state and reason. Idle ones have a row only if it is known since when."""
    reasons: dict[str, list[int]] = {}
    for gpu in node.gpus:
        text = gpu.why
        if quiet := node.quiet.get(gpu.index):
            text = "; ".join(part for part in (text, _quiet(quiet)) if part)
        if gpu.state is state and (text or state is not State.IDLE):
            reasons.setdefault(text, []).append(gpu.index)
    word = _word(state)
    return [(ranges(gpus), word, "", "", "", text) for text, gpus in reasons.items()]


def _quiet(quiet: Quiet) -> str:
    if quiet.readings < 2:
        return ""
    return f"no work in {quiet.readings} readings over {duration(quiet.seconds)}"


def ranges(numbers: Sequence[int]) -> str:
    """ "0-3,5"."""
    parts: list[list[int]] = []
    for number in numbers:
        if parts and number == parts[-1][-1] + 1:
            parts[-1].append(number)
        else:
            parts.append([number])
    return ",".join(f"{part[0]}-{part[-1]}" if len(part) > 1 else str(part[0]) for part in parts)


def duration(seconds: float) -> str:
    """ "40 s", "12 min", "3 h 12 min", "2 d 4 h"."""
    whole = max(0, int(seconds))
    days, hours, minutes = whole // 86400, whole // 3600 % 24, whole // 60 % 60
    if days:
        return f"{days} d {hours} h" if hours else f"{days} d"
    if hours:
        return f"{hours} h {minutes} min" if minutes else f"{hours} h"
    return f"{minutes} min" if minutes else f"{whole} s"
