"""The site's baseline file: changes are atomic, and the last one can be undone."""

from __future__ import annotations

import fcntl
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from gpuctl.core.errors import GpuctlError, InvalidInput
from gpuctl.core.paths import private, write_atomically
from gpuctl.nccl.baselines import load
from gpuctl.nccl.baselines.model import Baseline, Book

HEAD = """\
# This site's own baselines, written by `gpuctl nccl calibrate`; they win over those that come with gpuctl.
# Widen `nodes` by hand (8-64) where a row holds for more of them. Comments do not outlive the next calibration.
# What was here before is in the file beside it; `gpuctl nccl baselines restore` brings it back.
"""


def before(path: Path) -> Path:
    """Path of the copy that a change leaves of the previous file."""
    return path.with_name(f"{path.name}.before")


def save_rows(rows: Sequence[Baseline], path: Path) -> None:
    """Save rows, replacing rows of the same key; the previous file is kept beside it."""
    import yaml

    with _locked(path):
        old = load.load(path) if path.is_file() else Book({}, ())
        keys = {_key(row) for row in rows}
        kept = [*rows, *(row for row in old.rows if _key(row) not in keys)]
        plain: dict[str, object] = {"baselines": [load.plain(row) for row in kept]}
        if old.systems:
            plain = {"systems": {name: load.plain_system(one) for name, one in old.systems.items()}, **plain}
        write_atomically(before(path), path.read_text() if path.is_file() else f"{HEAD}baselines: []\n")
        write_atomically(path, HEAD + yaml.safe_dump(plain, sort_keys=False, allow_unicode=True, width=110))


@dataclass(frozen=True)
class Restored:
    """Rows in force again, how many were put back, and how many were removed (None if they were unreadable)."""

    rows: tuple[Baseline, ...]
    put_back: int
    removed: int | None


def restore(path: Path) -> Restored:
    """Swap the site file with its previous version.

    A second restore undoes the first. Raises `InvalidInput` if there is no previous version or it cannot be read.
    """
    with _locked(path):
        if not before(path).is_file():
            raise InvalidInput(f"restore {path}", "nothing was kept from before", "`gpuctl nccl calibrate` keeps it")
        rows, old = _rows(before(path)), None
        with suppress(InvalidInput):  # a file that was spoiled by hand is taken back as well
            old = _rows(path) if path.is_file() else {}
        now = path.read_text() if path.is_file() else f"{HEAD}baselines: []\n"
        write_atomically(path, before(path).read_text())
        write_atomically(before(path), now)
    removed = None if old is None else len(old.keys() - rows.keys())
    return Restored(tuple(rows.values()), len(rows.keys() - (old or {}).keys()), removed)


def _rows(path: Path) -> dict[str, Baseline]:
    """Rows of a file, keyed by their content."""
    return {str(load.plain(row)): row for row in load.load(path).rows}


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    """Serialise changes by concurrent calibrations."""
    try:
        private(path.parent)
        with path.with_name(f".{path.name}.lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield
    except OSError as error:
        wrong = error.strerror or str(error)
        raise GpuctlError(f"keep baselines in {path}", wrong, "GPUCTL_CONFIG_DIR names another place") from error


def _key(row: Baseline) -> tuple[object, ...]:
    shape = (row.systems, row.gpus_per_node, row.processes_per_node, row.nodes)
    return (*shape, row.collective, row.algorithms, row.from_bytes, row.to_bytes)
