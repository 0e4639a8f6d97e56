"""Host trees lie in memory: the engine syncs its records to the disk, which takes most of a test's time there."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

MEMORY = Path("/dev/shm")  # noqa: S108 - each test has a folder of its own below it
LEAST_FREE = 1 << 30  # containers often have 64 MiB, and the tree of a large machine is thousands of files


def is_usable() -> bool:
    """True if there is room and programs may be run from there: containers often forbid it."""
    return (
        os.access(MEMORY, os.W_OK)
        and shutil.disk_usage(MEMORY).free >= LEAST_FREE
        and not os.statvfs(MEMORY).f_flag & os.ST_NOEXEC
    )


@pytest.fixture
def tmp_path(tmp_path: Path) -> Iterator[Path]:
    """The test's folder, in memory where the machine has enough of it."""
    if not is_usable():
        yield tmp_path
        return
    with tempfile.TemporaryDirectory(prefix=f"gpuctl-{tmp_path.name}-", dir=MEMORY) as folder:
        yield Path(folder)
