"""History of measurements in one local SQLite file; entries are never overwritten."""

from __future__ import annotations

import errno
import json
import sqlite3
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path

from gpuctl.core.errors import GpuctlError, InvalidInput
from gpuctl.core.paths import private, state_dir
from gpuctl.core.run_history import current_user
from gpuctl.domain.findings import Finding
from gpuctl.nccl import serialize
from gpuctl.nccl.model import LaunchResult

VERSION = 1
TABLES = """
CREATE TABLE measured (
    id INTEGER PRIMARY KEY, at TEXT NOT NULL, by TEXT NOT NULL, kind TEXT NOT NULL, inventory TEXT NOT NULL,
    findings TEXT NOT NULL
);
CREATE TABLE launches (
    measured INTEGER NOT NULL REFERENCES measured (id), number INTEGER NOT NULL, document TEXT NOT NULL,
    PRIMARY KEY (measured, number)
);
CREATE TABLE nodes (
    measured INTEGER NOT NULL REFERENCES measured (id), node TEXT NOT NULL, PRIMARY KEY (measured, node)
);
CREATE INDEX nodes_by_name ON nodes (node);
"""
_FREE = "free space on the file system of"


@dataclass(frozen=True)
class Measured:
    """One `gpuctl nccl` run: when (UTC), by whom, of which kind, on what, and its results."""

    id: int
    at: str
    by: str
    kind: str
    inventory: str
    results: tuple[LaunchResult, ...]
    findings: tuple[Finding, ...]

    @property
    def nodes(self) -> list[str]:
        return sorted({node for end in self.results for node in end.launch.nodes})


def file() -> Path:
    """Path of the history."""
    return state_dir() / "nccl.sqlite3"


def save_results(kind: str, inventory: str, results: Sequence[LaunchResult], findings: Sequence[Finding]) -> int:
    """Add one measurement atomically and return its number."""
    findings_json = json.dumps([finding.as_dict() for finding in findings])
    with _opened() as store, store:
        row = (time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()), current_user(), kind, inventory, findings_json)
        number = store.execute("INSERT INTO measured (at, by, kind, inventory, findings) VALUES (?, ?, ?, ?, ?)", row)
        key = number.lastrowid or 0
        texts = [(key, i, json.dumps(serialize.launch_as_dict(end))) for i, end in enumerate(results)]
        store.executemany("INSERT INTO launches VALUES (?, ?, ?)", texts)
        names = {node for end in results for node in end.launch.nodes}
        store.executemany("INSERT INTO nodes VALUES (?, ?)", [(key, name) for name in names])
    return key


BY_NUMBER = "SELECT id, at, by, kind, inventory, findings FROM measured WHERE id = :number"
# An empty node or inventory selects all. "gpu-17" also matches a pod's node: "train-3 on gpu-17".
LATEST = """
SELECT id, at, by, kind, inventory, findings FROM measured
WHERE (:inventory = '' OR inventory = :inventory) AND (:node = ''
OR id IN (SELECT measured FROM nodes WHERE instr(' on ' || node || ' on ', ' on ' || :node || ' on ')))
ORDER BY id DESC LIMIT :count
"""


def load(number: int) -> Measured:
    """Load one measurement by number."""
    with _opened() as store:
        measurements = _read(store, BY_NUMBER, {"number": number})
    if not measurements:
        doing = f"show the measurement {number}"
        raise InvalidInput(doing, "no measurement has this number", "`gpuctl nccl history` lists them")
    return measurements[0]


def latest(count: int, node: str = "", inventory: str = "") -> list[Measured]:
    """Load the latest measurements, newest first; with `node`, only those it took part in."""
    with _opened() as store:
        return _read(store, LATEST, {"node": node, "inventory": inventory, "count": count})


def nodes() -> list[str]:
    """Names of all nodes with a measurement, sorted."""
    with _opened() as store:
        return [name for (name,) in store.execute("SELECT DISTINCT node FROM nodes ORDER BY node")]


def _read(store: sqlite3.Connection, query: str, values: Mapping[str, str | int]) -> list[Measured]:
    rows = store.execute(query, values).fetchall()
    return [
        Measured(number, at, by, kind, inventory, _launches(store, number), _findings(findings_json))
        for number, at, by, kind, inventory, findings_json in rows
    ]


def _launches(store: sqlite3.Connection, number: int) -> tuple[LaunchResult, ...]:
    rows = store.execute("SELECT document FROM launches WHERE measured = ? ORDER BY number", (number,))
    return tuple(serialize.launch_from_dict(json.loads(text)) for (text,) in rows)


def _findings(text: str) -> tuple[Finding, ...]:
    return tuple(map(Finding.from_dict, json.loads(text)))


@contextmanager
def _opened() -> Iterator[sqlite3.Connection]:
    path = file()
    try:
        private(path.parent)
        # Create the file before SQLite does, so that only its owner may read it.
        path.touch(mode=0o600)
        with closing(sqlite3.connect(path, timeout=10)) as store:
            _upgrade(store, path)
            yield store
    except (OSError, sqlite3.Error) as error:
        raise GpuctlError(f"use the history {path}", str(error), _hint(error, path)) from error


def _hint(error: OSError | sqlite3.Error, path: Path) -> str:
    """Suggest a remedy for an error of the system or of SQLite."""
    other = "or set GPUCTL_STATE_DIR to another folder"
    if isinstance(error, OSError):
        is_full = error.errno in {errno.ENOSPC, errno.EDQUOT}
        return f"{_FREE if is_full else 'let your user write in'} {path.parent}, {other}"
    if not isinstance(error, sqlite3.OperationalError):
        return "move the file away: gpuctl then starts a new one"
    code = getattr(error, "sqlite_errorcode", sqlite3.SQLITE_ERROR) & 0xFF  # the rest is the detail
    if code == sqlite3.SQLITE_FULL:
        return f"{_FREE} {path.parent}, {other}"
    if code in {sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED}:
        return "try again once other gpuctl processes have ended"
    if code in {sqlite3.SQLITE_READONLY, sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_PERM}:
        return f"let your user write {path} and in its folder, {other}"
    return f"check the file and the file system of {path.parent}, {other}"


def _upgrade(store: sqlite3.Connection, path: Path) -> None:
    (version,) = store.execute("PRAGMA user_version").fetchone()
    if version > VERSION:
        raise GpuctlError(f"use the history {path}", f"written by a newer gpuctl (format {version})", "upgrade gpuctl")
    if version < VERSION:
        # Of two processes that create it at the same time, the second finds the tables.
        store.execute("BEGIN EXCLUSIVE")
        if store.execute("PRAGMA user_version").fetchone() == (0,):
            for statement in filter(str.strip, TABLES.split(";")):
                store.execute(statement)
            store.execute(f"PRAGMA user_version = {VERSION}")
        store.commit()
