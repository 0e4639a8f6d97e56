"""The recorded outputs, and the facts written down beside them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml

from gpuctl.nccl.model import Row, Run
from gpuctl.nccl.parsing import parse

DATA = Path(__file__).parents[3] / "data" / "nccl"
FACTS: dict[str, dict[str, Any]] = yaml.safe_load(Path(__file__).with_name("facts.yml").read_text())
TEXTS = sorted(name for name in FACTS if not name.endswith((".json", ".jsonl")))


def text(name: str) -> str:
    """A recorded output, its bytes as they are."""
    return (DATA / name).read_text(errors="replace")


def runs(printed: str) -> list[Run]:
    """The runs in a text, its lines with their ends."""
    return list(parse.runs(printed.splitlines(keepends=True) if "\r" not in printed else printed.split("\n")))


def flat(row: Row) -> list[object]:
    """A row as it stands in facts.yml."""
    halves = [half for half in (row.out_of_place, row.in_place) if half]
    cells = [cell for half in halves for cell in (half.time_us, half.algbw_gbs, half.busbw_gbs, half.wrong)]
    return [row.size_bytes, row.count, row.type, row.redop, row.root, *cells]
