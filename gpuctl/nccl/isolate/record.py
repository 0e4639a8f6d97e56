"""The runs of an isolation in a file, so that it can be broken off, gone on with, and judged anew."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from gpuctl.core.errors import InvalidInput
from gpuctl.core.paths import write_atomically
from gpuctl.nccl import serialize
from gpuctl.nccl.isolate.decide import decide
from gpuctl.nccl.isolate.model import Conclusion, Fleet, Policy
from gpuctl.nccl.model import LaunchResult

FORM = "gpuctl nccl isolate 1"


@dataclass(frozen=True)
class Record:
    """A fleet and the runs made on it, in their order."""

    fleet: Fleet
    history: tuple[LaunchResult, ...]


def write(path: Path, fleet: Fleet, history: Sequence[LaunchResult]) -> None:
    """Put the record in its file, whole or not at all."""
    write_atomically(path, json.dumps(of(fleet, history)) + "\n")


def of(fleet: Fleet, history: Sequence[LaunchResult]) -> dict[str, Any]:
    """As plain data: form, nodes, racks (node -> rack), rails, expected_gbs, network, runs as in `launch.records`."""
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
    """A record back from its file; InvalidInput says what is wrong with it."""
    doing = f"read the runs of an isolation from {path}"
    try:
        value = json.loads(path.read_text())
    except (OSError, ValueError) as error:
        raise InvalidInput(doing, str(error)) from error
    if not isinstance(value, dict) or value.get("form") != FORM:
        raise InvalidInput(
            doing, f"it does not say that it is of the form {FORM!r}", "`gpuctl nccl isolate` writes such a file"
        )
    try:
        return Record(_fleet(value), tuple(serialize.launch_from_dict(end) for end in value["history"]))
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise InvalidInput(
            doing, f"it is damaged: {type(error).__name__} {error}", "use a copy, or isolate anew"
        ) from error


def _fleet(value: Mapping[str, Any]) -> Fleet:
    rails = None if value["rails"] is None else tuple(value["rails"])
    return Fleet(tuple(value["nodes"]), dict(value["racks"]), rails, value["expected_gbs"], value["network"])


def go_on(path: Path, fleet: Fleet, policy: Policy) -> tuple[LaunchResult, ...]:
    """The runs of an earlier isolation that was broken off; none where there is no such file.

    `InvalidInput` where it was about other nodes, racks, adapters or another test, or where it has come to its end.
    """
    if not path.exists():
        return ()
    found = read(path)
    doing = f"go on with the isolation in {path}"
    if other := _unlike(found, fleet, policy):
        raise InvalidInput(doing, f"it is about {other}", "name another file, or ask for the same as then")
    if found.history and isinstance(decide(fleet, found.history, policy), Conclusion):
        hint = f"`gpuctl nccl isolate --replay {path}` shows what it came to; another file name starts anew"
        raise InvalidInput(doing, "it is finished", hint)
    return found.history


def _unlike(found: Record, fleet: Fleet, policy: Policy) -> str:
    """What the record and the isolation that is asked for do not have in common; "" where they are alike."""
    if found.fleet.nodes != fleet.nodes:
        return "other nodes"
    if dict(found.fleet.racks) != dict(fleet.racks):
        return "the same nodes in other racks"
    if found.fleet.rails != fleet.rails:
        return f"other adapters ({_told(found.fleet.rails)}, now {_told(fleet.rails)})"
    for end in found.history:
        then, now = asdict(end.launch.sweep), asdict(policy.sweep)
        if changed := [key for key in now if then[key] != now[key]]:
            return f"another test: {', '.join(f'{key} was {then[key]}, is now {now[key]}' for key in changed)}"
    return ""


def _told(rails: tuple[str, ...] | None) -> str:
    return "those that NCCL opens" if rails is None else ", ".join(rails) or "none"
