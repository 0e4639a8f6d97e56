"""The runs of an isolation in a file: it can be resumed after an interruption, and judged again later."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, TypedDict

from gpuctl.core import json_file
from gpuctl.core.errors import InvalidInput
from gpuctl.core.paths import write_atomically
from gpuctl.engine import bounds
from gpuctl.nccl import serialize
from gpuctl.nccl.isolate.model import Conclusion, Fleet, Policy
from gpuctl.nccl.isolate.next_round import decide
from gpuctl.nccl.model import LaunchResult

FORM = "gpuctl nccl isolate 1"


class _Plain(TypedDict):
    """See `as_dict`."""

    nodes: list[str]
    racks: dict[str, str]
    rails: list[str] | None
    expected_gbs: bounds.Amount | None
    network: str | None
    history: list[object]


@dataclass(frozen=True)
class Record:
    """A fleet and the runs made on it, in their order."""

    fleet: Fleet
    history: tuple[LaunchResult, ...]


def write(path: Path, fleet: Fleet, history: Sequence[LaunchResult]) -> None:
    """Write the record to its file atomically."""
    write_atomically(path, json.dumps(as_dict(fleet, history)) + "\n")


def as_dict(fleet: Fleet, history: Sequence[LaunchResult]) -> dict[str, Any]:
    """Plain data: form, nodes, racks (node -> rack), rails, expected_gbs, network, history (runs as dicts)."""
    return {
        "form": FORM,
        "nodes": list(fleet.nodes),
        "racks": dict(fleet.racks),
        "rails": None if fleet.rails is None else list(fleet.rails),
        "expected_gbs": fleet.expected_gbs,
        "network": fleet.network,
        "history": [serialize.launch_as_dict(end) for end in history],
    }


def read(path: Path) -> Record:
    """Read a record; InvalidInput names the mistake in the file."""
    doing = f"read the runs of an isolation from {path}"
    hint = "`gpuctl nccl isolate --record` writes such files"
    value = json_file.load(path, doing, hint)
    if not isinstance(value, dict) or value.get("form") != FORM:
        raise InvalidInput(doing, f"it is not a record: its `form` is not {FORM!r}", hint)
    plain = json_file.fitting(value, _Plain, doing, hint)
    try:
        history = [serialize.launch_from_dict(end, f"history[{n}]") for n, end in enumerate(plain["history"])]
    except ValueError as error:
        raise InvalidInput(doing, f"it is damaged: {error}", "use a copy, or start a new isolation") from error
    return Record(_fleet(plain), tuple(history))


def _fleet(value: _Plain) -> Fleet:
    rails = None if value["rails"] is None else tuple(value["rails"])
    return Fleet(tuple(value["nodes"]), dict(value["racks"]), rails, value["expected_gbs"], value["network"])


def resume(path: Path, fleet: Fleet, policy: Policy) -> tuple[LaunchResult, ...]:
    """The runs of an interrupted isolation; none if the file does not exist.

    `InvalidInput` if it tested other nodes, racks or adapters, ran another test, or is finished.
    """
    if not path.exists():
        return ()
    record = read(path)
    doing = f"resume the isolation in {path}"
    if difference := _difference(record, fleet, policy):
        raise InvalidInput(doing, f"it is about {difference}", "pass another file, or the same options as then")
    if record.history and isinstance(decide(fleet, record.history, policy), Conclusion):
        hint = f"`gpuctl nccl isolate --replay {path}` shows its result; another file name starts a new isolation"
        raise InvalidInput(doing, "the isolation is already complete", hint)
    return record.history


def _difference(record: Record, fleet: Fleet, policy: Policy) -> str:
    """The difference between the record and the requested isolation; "" without one."""
    if record.fleet.nodes != fleet.nodes:
        return "other nodes"
    if dict(record.fleet.racks) != dict(fleet.racks):
        return "the same nodes in other racks"
    if record.fleet.rails != fleet.rails:
        return f"other adapters ({_adapters(record.fleet.rails)}, now {_adapters(fleet.rails)})"
    for end in record.history:
        then, now = asdict(end.launch.sweep), asdict(policy.sweep)
        if changed := [key for key in now if then[key] != now[key]]:
            return f"another test: {', '.join(f'{key} was {then[key]}, is now {now[key]}' for key in changed)}"
    return ""


def _adapters(rails: tuple[str, ...] | None) -> str:
    return "those that NCCL opens" if rails is None else ", ".join(rails) or "none"
