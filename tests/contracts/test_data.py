"""Test data are our own: small excerpts, each described, and no copies of recordings."""

from __future__ import annotations

import csv
import hashlib
from pathlib import Path

from tests.rig.recordings import recording

DATA = Path(__file__).parents[1] / "data"
FILES = [path for path in DATA.rglob("*") if path.is_file()]
SHORTEST = 60  # bytes: shorter texts, such as a file of sysfs, may well be alike


def digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def test_no_file_is_a_copy_of_a_recording() -> None:
    recorded = {digest(path): path for path in recording(".").rglob("*") if path.is_file()}
    ours = {path.relative_to(DATA): digest(path) for path in FILES if path.stat().st_size >= SHORTEST}
    assert {str(name): str(recorded[sha]) for name, sha in ours.items() if sha in recorded} == {}


def test_every_file_is_described() -> None:
    with (DATA / "INDEX.tsv").open() as index:
        described = [row["file"] for row in csv.DictReader(index, delimiter="\t")]
    names = [str(path.relative_to(DATA)) for path in FILES]
    assert [name for name in described if not (DATA / name).exists()] == []
    covered = {"README.md", "INDEX.tsv", *described}
    folders = tuple(name for name in described if name.endswith("/"))
    assert [name for name in names if name not in covered and not name.startswith(folders)] == []
