"""Write a profile from a host that is already good: what it runs with, for every knob of the shipped profiles."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import yaml

from .loading import load
from .lookup import names
from .model import Profile, Row
from .values import type_of

# A kind that sums up many CPUs says so behind the value they share, some with a name: "performance (64 CPUs)".
SHARED = re.compile(r"(?P<all>(?P<number>\S+).*) \(\d+ CPUs\)")


def questions() -> Profile:
    """What to ask a host, with check: each knob that a shipped profile has for some host. The values do not matter."""
    rows: dict[str, Row] = {}
    for file in names([]):
        profile = load(file.path)
        for knobs in (profile.rows, *(overlay.rows for overlay in profile.overlays)):
            rows = {**knobs, **rows}
    return Profile("capture", "every knob of the shipped profiles", (), rows, ())


def captured(readings: Iterable[Mapping[str, Any]], host: str, date: str) -> str:
    """The profile file that makes other hosts as this one is; it says what it leaves out, and why."""
    known = questions().rows
    rows: dict[str, dict[str, str]] = {}
    left_out = []
    for reading in readings:
        row = known.get(reading["knob"])
        if row is None:  # a unit that goes with other knobs, or one that is put back
            continue
        value = _settable(row, reading)
        if value is None:
            left_out.append(f"#   {row.name}: {_why_not(reading)}")
        else:
            rows[row.name] = {"value": value, "why": f"as captured from {host} on {date}", "source": "captured"}
            rows[row.name] |= {name: text for name in ("read_back", "type") if (text := getattr(row, name))}
    return "\n".join(_file(rows, left_out, host, date))


def _settable(row: Row, reading: Mapping[str, Any]) -> str | None:
    """What runs now, as a value that the knob takes; None where it is not one."""
    if reading["state"] in ("unsupported", "unknown") or reading["now"] in (None, "absent"):
        return None
    shared = SHARED.fullmatch(reading["now"])
    for text in (shared["all"], shared["number"]) if shared else (reading["now"],):
        try:
            return str(type_of(row.name, row.type).check(text))
        except ValueError:
            continue
    return None


def _why_not(reading: Mapping[str, Any]) -> str:
    if reading["now"] is None:
        return " ".join(reading["reason"].split()) or "does not show while the host runs"
    return f"is {reading['now']}, which no profile can ask for"


def _file(rows: Mapping[str, Mapping[str, str]], left_out: list[str], host: str, date: str) -> Iterator[str]:
    yield f"# What {host} ran with on {date}, written by `gpuctl profile capture`."
    if left_out:
        yield "# Left out:"
        yield from left_out
    content = {"about": f"as captured from {host} on {date}", "knobs": dict(rows)}
    yield yaml.safe_dump(content, sort_keys=False, allow_unicode=True, width=110)
