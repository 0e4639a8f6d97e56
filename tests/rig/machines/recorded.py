"""Where the recordings of real machines lie; tests/data/INDEX.tsv says where each came from."""

from __future__ import annotations

from pathlib import Path

DATA = Path(__file__).parents[2] / "data/host"


def recording(name: str) -> Path:
    return DATA / name
