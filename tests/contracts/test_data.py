"""Test data are our own: small excerpts, each described, and no copies of recordings."""

from __future__ import annotations

import csv
import hashlib
from pathlib import Path

import pytest

from tests.rig.recordings import recording

DATA = Path(__file__).parents[1] / "data"
FILES = [path for path in DATA.rglob("*") if path.is_file()]
INDEXED = [path.parent for path in FILES if path.name == "INDEX.tsv"]
SHORTEST = 60  # bytes: shorter texts, such as a file of sysfs, may well be alike


def digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def test_no_file_is_a_copy_of_a_recording() -> None:
    recorded = {digest(path): path for path in recording(".").rglob("*") if path.is_file()}
    ours = {path.relative_to(DATA): digest(path) for path in FILES if path.stat().st_size >= SHORTEST}
    assert {str(name): str(recorded[sha]) for name, sha in ours.items() if sha in recorded} == {}


@pytest.mark.parametrize(
    "folder", [path.parent for path in sorted(DATA.rglob("INDEX.tsv"))], ids=lambda path: path.name
)
def test_every_file_is_described(folder: Path) -> None:
    """Each folder that has an index, the whole and the parts that describe their files themselves."""
    with (folder / "INDEX.tsv").open() as index:
        rows = list(csv.DictReader(index, delimiter="\t"))
    described = [row["file"] for row in rows]
    assert [row for row in rows if not all(row.values())] == []
    assert [name for name in described if not (folder / name).exists()] == []
    names = [str(path.relative_to(folder)) for path in FILES if path.is_relative_to(folder)]
    covered = {"README.md", "INDEX.tsv", *described}
    folders = tuple(name for name in described if name.endswith("/"))
    assert [name for name in names if name not in covered and not name.startswith(folders)] == []


def test_a_part_with_an_index_of_its_own_is_checked() -> None:
    assert DATA / "cluster/INDEX.tsv" in FILES
