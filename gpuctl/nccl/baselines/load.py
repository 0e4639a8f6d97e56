"""Baseline files: the rows shipped with gpuctl, preceded by the site's own."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import asdict, fields, replace
from functools import cache
from pathlib import Path
from typing import Any

import gpuctl
from gpuctl.core.paths import config_dir
from gpuctl.core.strict_yaml import (
    ANY_TEXT,
    At,
    Choice,
    EmptyFile,
    FieldType,
    ListOf,
    MappingOf,
    Node,
    Parsed,
    Section,
    Text,
    Whole,
    did_you_mean,
    load_file,
)
from gpuctl.nccl.bandwidth import COLLECTIVES
from gpuctl.nccl.baselines.model import Baseline, Book, System
from gpuctl.nccl.context import DEFAULT
from gpuctl.nccl.networks import NETWORKS, network
from gpuctl.nccl.parsing.algorithms import ALGORITHMS

SHIPPED = Path(gpuctl.__file__).parent / "data" / "nccl_baselines.yml"
UNITS = {"": 1, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30}
OPTIONAL = ("expect", "warn", "fail", "below_published", "measured")
DERIVED = "derived"
KINDS = ("measured", "published", DERIVED)
EMPTY = EmptyFile("file of baselines", "add `baselines:`, or remove the file")


def site_file() -> Path:
    """Path of the site's rows: a file users may read, share and edit."""
    return config_dir() / "nccl_baselines.yml"


def book() -> Book:
    """All rows, the site's first; raises `InvalidInput` with every mistake in a file."""
    shipped, path = _shipped(), site_file()
    site = load(path) if path.is_file() else Book({}, ())
    rows = [replace(row, site=True) for row in site.rows]
    return Book({**shipped.systems, **site.systems}, (*rows, *shipped.rows))


@cache
def _shipped() -> Book:
    """The rows of this gpuctl, which do not change while it runs."""
    return load(SHIPPED)


def load(path: Path) -> Book:
    """Rows of one file, read strictly: nothing unknown, missing or duplicated."""
    book: Book = load_file(path, SCHEMA, "use the baselines", EMPTY, f"{SHIPPED} shows what a row holds")
    return book


def size(text: str) -> int | None:
    """Bytes of a message size such as 4GiB or 512; None if it is not a size."""
    match = re.fullmatch(r"(\d{1,18}) ?(|KiB|MiB|GiB)", text)
    return int(match[1]) * UNITS[match[2]] if match else None


def nodes(text: str) -> tuple[int, int | None] | None:
    """Bounds of 2, 4-16 or 4+."""
    match = re.fullmatch(r"([1-9]\d{0,8})(?:(\+)|-([1-9]\d{0,8}))?", text)
    if match is None or (match[3] and int(match[3]) < int(match[1])):
        return None
    return int(match[1]), None if match[2] else int(match[3] or match[1])


def plain(row: Baseline) -> dict[str, Any]:
    """Convert a row to the file's format."""
    low, high = row.nodes
    optional = {name: value for name in OPTIONAL if (value := getattr(row, name))}
    return {
        "systems": list(row.systems),
        "gpus_per_node": row.gpus_per_node,
        "processes_per_node": row.processes_per_node or "any",
        "nodes": f"{low}+" if high is None else str(low) if low == high else f"{low}-{high}",
        "collective": row.collective,
        "algorithms": list(row.algorithms),
        "from": _written(row.from_bytes),
        "to": _written(row.to_bytes),
        "kind": row.kind,
        "source": row.source,
        "why": row.why,
        **{name: dict(value) if name == "measured" else value for name, value in optional.items()},
    }


def plain_system(system: System) -> dict[str, Any]:
    """Convert a machine type to the file's format."""
    return {name: value for name, value in asdict(system).items() if name != "name" and value is not None}


def _written(size_bytes: int) -> str:
    unit = next((name for name, bytes_ in reversed(UNITS.items()) if size_bytes % bytes_ == 0), "")
    return f"{size_bytes // UNITS[unit]}{unit}"


def _rate(text: str) -> float | None:
    return float(text) if re.fullmatch(r"\d{1,9}(\.\d+)?", text) and float(text) else None


def _network(text: str) -> str:
    name = network(text)
    if name is None:
        raise ValueError(f"is {text!r}, which is no network; {did_you_mean(text.lower(), list(NETWORKS))}")
    return name


def _processes(text: str) -> str | int | None:
    return int(text) if re.fullmatch(r"[1-9]\d{0,4}", text) else "any" if text == "any" else None


def _baseline(values: dict[str, Any], node: Node, at: At) -> Baseline | None:
    """A row whose limits and sizes are in ascending order."""
    limits = [values[name] for name in ("fail", "warn", "expect") if name in values]
    if "warn" not in values and "fail" not in values:
        at.refuse(node, "has no limit: it needs fail, or warn where no run is to fail by it")
    if values.get("kind") == DERIVED and "fail" in values:
        at.refuse(node, "is derived, and has a fail limit", "use warn: only runs that somebody measured fail others")
    if limits != sorted(limits):
        at.refuse(node, "needs fail, warn and expect to rise in this order")
    if values["from"] > values["to"]:
        at.refuse(node, "has its from above its to")
    if values["processes_per_node"] == "any":
        values = {**values, "processes_per_node": None}
    optional = {"expect": None, "warn": None, "fail": None, "from_bytes": values["from"], "to_bytes": values["to"]}
    known = {field.name for field in fields(Baseline)}
    return Baseline(**{**optional, **{key: item for key, item in values.items() if key in known}, "where": node.where})


_TEXT = Text(empty=("",))
_RATE = Parsed(_rate, "a bandwidth in GB/s")
_SIZE = Parsed(size, "a size such as 4GiB")
_COUNT = Whole(1, 99999)
_ROW: Mapping[str, FieldType] = {
    "systems": ListOf(_TEXT, "names"),
    "gpus_per_node": _COUNT,
    "processes_per_node": Parsed(_processes, "a number of 1 or more, or any"),
    "nodes": Parsed(nodes, "2, 4-16 or 4+"),
    "collective": Choice(tuple(COLLECTIVES)),
    "algorithms": ListOf(Choice((DEFAULT, *ALGORITHMS)), "names"),
    "from": _SIZE,
    "to": _SIZE,
    **dict.fromkeys(("expect", "warn", "fail", "below_published"), _RATE),
    "kind": Choice(KINDS),
    "source": _TEXT,
    "why": _TEXT,
    "measured": MappingOf(ANY_TEXT, _TEXT, may_be_empty=True),
}
_SYSTEM: Mapping[str, FieldType] = {
    "gpus": _COUNT,
    "line_rate_gbs": _RATE,
    "network": Parsed(_network, "the name of a network"),
    "source": _TEXT,
    "gpu": _TEXT,
}
SCHEMA = Section(
    {
        "systems": MappingOf(
            ANY_TEXT, Section(_SYSTEM, tuple(name for name in _SYSTEM if name != "gpu")), may_be_empty=True
        ),
        "baselines": ListOf(
            Section(_ROW, tuple(name for name in _ROW if name not in OPTIONAL), _baseline), "rows", may_be_empty=True
        ),
    },
    ("baselines",),
    lambda values, _node, _at: Book(
        {name: System(name=name, **system) for name, system in values.get("systems", {}).items()}, values["baselines"]
    ),
)
