"""Capture a host as a profile: its current value of every knob of the shipped profiles."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import yaml

from .loading import load
from .lookup import names
from .model import Profile, Row
from .values import type_of

# Text of a kind for many CPUs with one value: "performance (64 CPUs)", some with a name behind the value.
SHARED = re.compile(r"(?P<all>(?P<number>\S+).*) \(\d+ CPUs\)")


def questions() -> Profile:
    """A profile for check mode, with all knobs of the shipped profiles. The values do not matter."""
    rows: dict[str, Row] = {}
    for file in names([]):
        profile = load(file.path)
        for knobs in (profile.rows, *(overlay.rows for overlay in profile.overlays)):
            rows = {**knobs, **rows}
    return Profile("capture", "every knob of the shipped profiles", (), rows, ())


def captured(readings: Iterable[Mapping[str, Any]], host: str, date: str) -> str:
    """The text of a profile file with this host's values; comments list knobs that are left out, with reasons."""
    known = questions().rows
    rows: dict[str, dict[str, str]] = {}
    left_out = []
    for reading in readings:
        row = known.get(reading["knob"])
        if row is None:  # a unit that other knobs need, or a knob that is undone
            continue
        value = _settable(row, reading)
        if value is None:
            left_out.append(f"#   {row.name}: {_why_not(reading)}")
        else:
            rows[row.name] = {"value": value, "why": f"as captured from {host} on {date}", "source": "captured"}
            rows[row.name] |= {name: text for name in ("read_back", "type") if (text := getattr(row, name))}
    return "\n".join(_file(rows, left_out, host, date))


def _settable(row: Row, reading: Mapping[str, Any]) -> str | None:
    """The current value in a form that the knob accepts; None if there is none."""
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
        return " ".join(reading["reason"].split()) or "cannot be read while the host runs"
    return f"is {reading['now']}, which no profile can set"


def _file(rows: Mapping[str, Mapping[str, str]], left_out: list[str], host: str, date: str) -> Iterator[str]:
    yield f"# What {host} ran with on {date}, written by `gpuctl profile capture`."
    if left_out:
        yield "# Left out:"
        yield from left_out
    content = {"about": f"as captured from {host} on {date}", "knobs": dict(rows)}
    yield yaml.safe_dump(content, sort_keys=False, allow_unicode=True, width=110)
