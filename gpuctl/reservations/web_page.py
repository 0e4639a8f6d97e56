"""The page of a site for a browser: availability, queue, and who has GPUs until when. Nothing on it is a secret."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any

from gpuctl.core.text import plural
from gpuctl.pages import timeline
from gpuctl.pages.page import Page, Section, Table, render
from gpuctl.pages.timeline import Bar

FRESH_S = 5.0  # age of a page that is answered again, since anybody can ask for it
MOST_ROWS = 400  # of a table or drawing
ACTIVE, LEAVING = "h3", "failed"
Row = Mapping[str, Any]


class WebPage:
    """Renders the answer of the service to `state`, at most once in `FRESH_S` seconds however many browsers ask.

    `public`: readers are not on this machine, and get no reason of a node, which may name programs and accounts.
    """

    def __init__(self, state: Callable[[], Row], *, public: bool = False) -> None:
        self._state, self._lock, self._public = state, threading.Lock(), public
        self._shown, self._until = "", 0.0

    def text(self) -> str:
        with self._lock:
            if time.monotonic() >= self._until:
                self._shown, self._until = self._text(), time.monotonic() + FRESH_S
            return self._shown

    def _text(self) -> str:
        try:
            state = self._state()
            return render(page(_without_reasons(state) if self._public else state))
        except Exception as error:  # noqa: BLE001 - whatever it is, the browser gets a page and the log a line
            sys.stderr.write(f"the page for browsers cannot be made: {type(error).__name__}: {error}\n")
            return render(page({"error": "the log of the service has the cause"}))


def _without_reasons(state: Row) -> Row:
    if "error" in state:
        return {"error": "the service has the cause"}
    nodes = [{**node, "reason": "not usable" if node["reason"] else ""} for node in state["nodes"]]
    return {**state, "nodes": nodes}


def page(state: Row) -> Page:
    """The page of an answer to `state`; one with the error if the service has none."""
    if "error" in state:
        section = Section("Unknown", [f"The reservations cannot be read: {state['error']}"])
        return Page("GPU reservations", "The service gives no answer.", [section])
    rows = state["reservations"]
    holding, waiting = [row for row in rows if row["slots"]], [row for row in rows if row["state"] == "queued"]
    about = f"As of {_minute(state['now'])}; all times are UTC. Load the page again for a newer one."
    return Page("GPU reservations", about, [_availability(state), _queue(waiting), _sessions(holding, state["now"])])


def _availability(state: Row) -> Section:
    nodes = state["nodes"]
    types = [
        [gpu_type, *_counts([node for node in nodes if node["gpu_type"] == gpu_type])]
        for gpu_type in dict.fromkeys(node["gpu_type"] for node in nodes)
    ]
    cells = [
        [node["name"], node["gpu_type"], node["state"], _free(node), len(node["allocated"]), node["reason"]]
        for node in nodes[:MOST_ROWS]
    ]
    heads = ["type", "free", "reserved", "unusable", "GPUs"]
    per_type = Table(heads, types, "GPUs of each type", frozenset({1, 2, 3, 4}))
    per_node = Table(["node", "type", "state", "free", "GPUs", "reason"], cells, "GPUs of each node", frozenset({3, 4}))
    return Section("Availability", _rest(nodes), tables=[per_type, per_node])


def _counts(nodes: Sequence[Row]) -> list[int]:
    """Free, reserved, unusable and all GPUs. Those without a holder on a node that is not ready are unusable."""
    total = sum(len(node["allocated"]) for node in nodes)
    empty = sum(node["allocated"].count(None) for node in nodes)
    free = sum(_free(node) or 0 for node in nodes)
    return [free, total - empty, empty - free, total]


def _free(node: Row) -> int | None:
    return int(node["allocated"].count(None)) if node["state"] == "ready" else None


def _queue(waiting: Sequence[Row]) -> Section:
    if not waiting:
        return Section("Queue", ["Nobody waits."])
    heads = ["id", "type", "position", "person", "GPUs", "hours", "earliest start", "latest start", "why it waits"]
    cells = [
        [
            *(row[key] for key in ("id", "gpu_type", "position", "person", "gpus")),
            f"{row['hours']:g}",
            _minute(row["earliest_start"]),
            f"{_minute(row['promised_start'])} (promised)" if row["promised_start"] else _minute(row["latest_start"]),
            row["reason"],
        ]
        for row in waiting[:MOST_ROWS]
    ]
    table = Table(heads, cells, "Requests that wait, in their order", frozenset({2, 4, 5}))
    return Section("Queue", _rest(waiting), tables=[table])


def _sessions(holding: Sequence[Row], now: str) -> Section:
    if not holding:
        return Section("Who has what until when", ["Nobody has a GPU."])
    ordered = sorted(_slots(holding), key=lambda pair: (pair[1]["node"], pair[1]["gpus"]))
    cells = [
        [slot["node"], _gpus(slot), row["person"], row["state"], *_times(row)] for row, slot in ordered[:MOST_ROWS]
    ]
    heads = ["node", "GPUs", "person", "state", "since", "until"]
    table = Table(heads, cells, "The timeline as a table: sessions on each node")
    legend = [(f"fill:{ACTIVE}", "active"), (f"fill:{LEAVING}", "not active, or not given back yet"), ("limit", "now")]
    return Section(
        "Who has what until when", _rest(ordered), _timeline(ordered[:MOST_ROWS], now), legend, tables=[table]
    )


def _slots(rows: Sequence[Row]) -> Iterator[tuple[Row, Row]]:
    return ((row, slot) for row in rows for slot in row["slots"])


def _timeline(ordered: Sequence[tuple[Row, Row]], now: str) -> timeline.Drawing:
    bars = [
        Bar(
            f"{slot['node']} GPU {_gpus(slot)}: {row['person']}",
            f"{row['state']}, until {_times(row)[1]}",
            ACTIVE if row["state"] == "active" else LEAVING,
            _instant(row["active"] or now),
            _instant(row["expires"] or now),
        )
        for row, slot in ordered
    ]
    title = f"Timeline of {plural(len(bars), 'session')}; the table after it has the same content"
    return timeline.svg(title, bars, _instant(now))


def _gpus(slot: Row) -> str:
    return ", ".join(map(str, slot["gpus"]))


def _rest(rows: Sequence[object]) -> list[str]:
    left = len(rows) - MOST_ROWS
    return [f"{left} more are not shown here; `gpuctl reservations list` has all."] if left > 0 else []


def _times(row: Row) -> list[str]:
    """Begin and end of a session; a session that is being prepared has none yet."""
    return [_minute(row[name]) if row[name] else "not active yet" for name in ("active", "expires")]


def _instant(text: str) -> datetime:
    return datetime.fromisoformat(text)


def _minute(text: str | None) -> str:
    """ "2026-01-05T09:00:00Z" as "2026-01-05 09:00"."""
    return "unknown" if text is None else f"{_instant(text):%Y-%m-%d %H:%M}"
