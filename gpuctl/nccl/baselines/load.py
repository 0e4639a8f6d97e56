"""Baselines in files: the ones that come with gpuctl, and the site's own in front of them."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, fields, replace
from pathlib import Path
from typing import Any

from ansible_collections.gpuctl.fleet.plugins.plugin_utils.strict_yaml import Mistake, Node, did_you_mean, read

import gpuctl
from gpuctl.core.errors import InvalidInput
from gpuctl.core.paths import config_dir
from gpuctl.nccl.bandwidth import COLLECTIVES
from gpuctl.nccl.baselines.model import Baseline, Book, System
from gpuctl.nccl.context import DEFAULT
from gpuctl.nccl.judge.expected import NETWORKS, network
from gpuctl.nccl.parsing.algorithms import ALGORITHMS

SHIPPED = Path(gpuctl.__file__).parent / "data" / "nccl_baselines.yml"
UNITS = {"": 1, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30}
OPTIONAL = ("expect", "warn", "below_published", "measured")
KINDS = ("measured", "published", "derived")


def site_file() -> Path:
    """The site's own rows: like a profile theirs to read, to share and to mend."""
    return config_dir() / "nccl_baselines.yml"


def book() -> Book:
    """All rows, the site's first; `InvalidInput` with every mistake in a file."""
    shipped, own = load(SHIPPED), site_file()
    site = load(own) if own.is_file() else Book({}, ())
    rows = [replace(row, site=True) for row in site.rows]
    return Book({**shipped.systems, **site.systems}, (*rows, *shipped.rows))


def load(path: Path) -> Book:
    """The rows of one file, strictly: nothing unknown, nothing missing, nothing twice."""
    mistakes: list[Mistake] = []
    node = read(path, mistakes)
    found = _Reader(mistakes).book(node) if node else None
    if mistakes or found is None:
        wrong = "\n  ".join(map(str, mistakes)) or "it is empty"
        raise InvalidInput(f"use the baselines {path}", wrong, f"{SHIPPED} shows what a row holds")
    return found


def size(text: str) -> int | None:
    """Bytes of a message size such as 4GiB or 512; None where it is none."""
    found = re.fullmatch(r"(\d{1,18}) ?(|KiB|MiB|GiB)", text)
    return int(found[1]) * UNITS[found[2]] if found else None


def nodes(text: str) -> tuple[int, int | None] | None:
    """Least and most of 2, 4-16 or 4+."""
    found = re.fullmatch(r"([1-9]\d{0,8})(?:(\+)|-([1-9]\d{0,8}))?", text)
    if found is None or (found[3] and int(found[3]) < int(found[1])):
        return None
    return int(found[1]), None if found[2] else int(found[3] or found[1])


def plain(row: Baseline) -> dict[str, Any]:
    """A row as the file has it."""
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
        "fail": row.fail,
        "kind": row.kind,
        "source": row.source,
        "why": row.why,
        **{name: dict(value) if name == "measured" else value for name, value in optional.items()},
    }


def plain_system(system: System) -> dict[str, Any]:
    """A machine type as the file has it."""
    return {name: value for name, value in asdict(system).items() if name != "name"}


def _written(size_bytes: int) -> str:
    unit = next((name for name, bytes_ in reversed(UNITS.items()) if size_bytes % bytes_ == 0), "")
    return f"{size_bytes // UNITS[unit]}{unit}"


Read = Callable[[Node], object]


class _Reader:
    """Turns nodes into rows and notes what is wrong with them."""

    def __init__(self, mistakes: list[Mistake]) -> None:
        self.mistakes = mistakes

    def book(self, node: Node) -> Book | None:
        readers: Mapping[str, Read] = {"systems": self.systems, "baselines": self.baselines}
        found = self.mapping(node, readers, needs=("baselines",))
        return Book(found.get("systems", {}), found["baselines"]) if found else None

    def systems(self, node: Node) -> dict[str, System]:
        if not isinstance(node.value, dict):
            self.wrong(node, "is not a mapping of machine types")
            return {}
        found = {name: self.system(name, item) for name, item in node.value.items()}
        return {name: system for name, system in found.items() if system is not None}

    def system(self, name: str, node: Node) -> System | None:
        readers: Mapping[str, Read] = {
            "gpus": self.count,
            "line_rate_gbs": self.rate,
            "network": self.network,
            "source": self.text,
        }
        found = self.mapping(node, readers, needs=tuple(readers))
        return System(name=name, **found) if found else None

    def baselines(self, node: Node) -> tuple[Baseline, ...]:
        items = node.value if isinstance(node.value, list) else []
        if not isinstance(node.value, list):
            self.wrong(node, "is not a list of rows")
        return tuple(row for item in items if (row := self.row(item)) is not None)

    def row(self, node: Node) -> Baseline | None:
        readers: Mapping[str, Read] = {
            "systems": self.words,
            "gpus_per_node": self.count,
            "processes_per_node": lambda item: None if item.value == "any" else self.count(item),
            "nodes": lambda item: self.parsed(item, nodes, "2, 4-16 or 4+"),
            "collective": lambda item: self.choice(item, COLLECTIVES),
            "algorithms": lambda item: self.words(item, (DEFAULT, *ALGORITHMS)),
            "from": self.size,
            "to": self.size,
            **dict.fromkeys(("expect", "warn", "fail", "below_published"), self.rate),
            "kind": lambda item: self.choice(item, KINDS),
            "source": self.text,
            "why": self.text,
            "measured": self.said,
        }
        before = len(self.mistakes)
        found = self.mapping(node, readers, needs=[name for name in readers if name not in OPTIONAL])
        if found is None or len(self.mistakes) > before:
            return None
        return self.checked(node, found)

    def checked(self, node: Node, found: Mapping[str, Any]) -> Baseline | None:
        """A row whose numbers stand in the order that their names promise."""
        given = [found[name] for name in ("fail", "warn", "expect") if name in found]
        if given != sorted(given):
            self.wrong(node, "fail, warn and expect do not rise in this order")
        if found["from"] > found["to"]:
            self.wrong(node, "from is above to")
        named = {field.name for field in fields(Baseline)}
        usual = {
            "expect": None,
            "warn": None,
            "from_bytes": found["from"],
            "to_bytes": found["to"],
            "where": node.where,
        }
        return Baseline(**{**usual, **{name: value for name, value in found.items() if name in named}})

    def mapping(self, node: Node, readers: Mapping[str, Read], needs: Sequence[str]) -> dict[str, Any] | None:
        if not isinstance(node.value, dict):
            self.wrong(node, f"is not a mapping of {', '.join(readers)}")
            return None
        for name in [name for name in node.value if name not in readers]:
            self.wrong(node.value[name], f"{name} is not known here", did_you_mean(name, list(readers)))
        missing = [name for name in needs if name not in node.value]
        for name in missing:
            self.wrong(node, f"{name} is missing")
        found = {name: readers[name](item) for name, item in node.value.items() if name in readers}
        return None if missing else found

    def text(self, node: Node) -> str:
        if not isinstance(node.value, str) or not node.value.strip():
            self.wrong(node, "is not a text")
        return str(node.value)

    def network(self, node: Node) -> str:
        found = network(self.text(node))
        if found is None:
            self.wrong(node, f"{node.value!r} is no network", did_you_mean(str(node.value).lower(), list(NETWORKS)))
        return found or ""

    def words(self, node: Node, known: Sequence[str] = ()) -> tuple[str, ...]:
        items = node.value if isinstance(node.value, list) else []
        if not items:
            self.wrong(node, "is not a list of names")
        return tuple(self.choice(item, known) if known else self.text(item) for item in items)

    def choice(self, node: Node, known: Sequence[str]) -> str:
        if node.value not in known:
            self.wrong(node, f"{node.value!r} is not known here", did_you_mean(str(node.value), known))
        return str(node.value)

    def count(self, node: Node) -> int:
        if not re.fullmatch(r"[1-9]\d{0,4}", str(node.value)):
            self.wrong(node, f"{node.value!r} is not a number of 1 or more")
            return 1
        return int(str(node.value))

    def rate(self, node: Node) -> float:
        if not re.fullmatch(r"\d{1,9}(\.\d+)?", str(node.value)) or float(str(node.value)) == 0:
            self.wrong(node, f"{node.value!r} is not a bandwidth in GB/s")
            return 1.0
        return float(str(node.value))

    def size(self, node: Node) -> int:
        return int(self.parsed(node, size, "a size such as 4GiB") or 0)

    def parsed(self, node: Node, parse: Callable[[str], Any], shape: str) -> Any:
        found = parse(str(node.value))
        if found is None:
            self.wrong(node, f"{node.value!r} is not {shape}")
        return found

    def said(self, node: Node) -> dict[str, str]:
        if not isinstance(node.value, dict):
            self.wrong(node, "is not a mapping of what is known of the measurement")
            return {}
        return {name: self.text(item) for name, item in node.value.items()}

    def wrong(self, node: Node, what: str, hint: str = "") -> None:
        self.mistakes.append(Mistake(node.where, what, hint))
