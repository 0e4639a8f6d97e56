"""Outputs of nccl-tests and of programs around it, and the facts in each: excerpts of ours, and recordings."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml

from gpuctl.nccl.model import Row, Run
from gpuctl.nccl.parsing import parse
from tests.rig import recordings

Facts = dict[str, dict[str, Any]]
DATA = Path(__file__).parents[2] / "data" / "nccl"
LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)  # every worker reads both at its start


def _facts(name: str) -> Facts:
    facts: Facts = yaml.load(Path(__file__).with_name(name).read_text(), LOADER)  # noqa: S506 - a safe loader
    return facts


OURS, RECORDED = _facts("facts.yml"), _facts("recorded_facts.yml")
FACTS = OURS | RECORDED
# For tests that take many at once or draw at random: without recordings these still run with ours.
READABLE = FACTS if recordings.expected() else OURS
TEXTS = sorted(name for name in READABLE if not name.endswith((".json", ".jsonl")))


def path(name: str) -> Path:
    """The file of one output; see `recordings.recording` for one that is not ours."""
    return DATA / name if name in OURS else recordings.recording(f"nccl/{name}")


def text(name: str) -> str:
    """One output, its bytes as they are."""
    return path(name).read_text(errors="replace")


def runs(printed: str) -> list[Run]:
    """The runs in a text, its lines with their ends."""
    return list(parse.runs(printed.splitlines(keepends=True) if "\r" not in printed else printed.split("\n")))


def flat(row: Row) -> list[object]:
    """A row in the form of facts.yml."""
    halves = [half for half in (row.out_of_place, row.in_place) if half]
    cells = [cell for half in halves for cell in (half.time_us, half.algbw_gbs, half.busbw_gbs, half.wrong)]
    return [row.size_bytes, row.count, row.type, row.redop, row.root, *cells]
