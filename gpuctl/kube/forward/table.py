"""Format the status of forwards: a table for a terminal, a line per change elsewhere."""

from __future__ import annotations

from collections.abc import Sequence

from gpuctl.kube.forward.state_machine import Line, State

GREEN = "\x1b[32m"
COLOURS = {State.UP: GREEN, State.OPEN: GREEN, State.STARTING: "\x1b[33m", State.WAITING: "\x1b[33m"}
HEAD = ("LOCAL", "POD", "PORT", "STATE", "")


def rows(lines: Sequence[Line], now: float) -> list[tuple[str, ...]]:
    """Return a row for each forwarded port."""
    return [
        (f"127.0.0.1:{local}", line.slot.pod, str(remote), str(line.state), remark(line, now))
        for line in lines
        for local, remote in line.slot.ports
    ]


def remark(line: Line, now: float) -> str:
    """Explain why it is not up, or how often it was restarted."""
    if line.state in (State.UP, State.OPEN):
        return f"restarted {line.reconnects}x" if line.reconnects else ""
    retry = f"retry in {max(0, line.until - now):.0f} s: " if line.state is State.RETRYING else ""
    return f"{retry}{line.why}" if line.state is not State.STARTING or line.reconnects else ""


def drawn(lines: Sequence[Line], now: float, width: int, height: int) -> list[str]:
    """Format the table for a terminal; rows that do not fit are counted."""
    lines_of_table = [HEAD, *rows(lines, now)]
    widths = [max(len(row[i]) for row in lines_of_table) for i in range(4)]
    states = ["", *(line.state for line in lines for _ in line.slot.ports)]
    shown = []
    for row, state in zip(lines_of_table, states, strict=True):
        text = "  ".join(cell.ljust(w) for cell, w in zip(row[:4], widths, strict=True))
        text = f"{text}  {row[4]}".rstrip()[: width - 1]
        colour = COLOURS.get(state, "\x1b[31m") if isinstance(state, State) else "\x1b[1m"
        shown.append(f"{colour}{text}\x1b[0m")
    most = max(2, height - 2)
    return shown if len(shown) <= most else [*shown[: most - 1], f"… {len(shown) - most + 1} more"]


def as_line(line: Line) -> str:
    """Format a status change as a plain line."""
    ports = ", ".join(f"127.0.0.1:{local} -> {line.slot.pod}:{remote}" for local, remote in line.slot.ports)
    why = f" ({line.why})" if line.why and line.state is not State.UP else ""
    return f"{ports}: {line.state}{why}"
