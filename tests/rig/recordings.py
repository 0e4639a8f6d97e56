"""Recordings: whole outputs of real tools, collected from public projects under licences of their own.

They are no part of this project: `GPUCTL_RECORDINGS` names their folder, `../shared/fixtures` beside the checkout by
default. CI requires them; elsewhere a test that reads one is skipped. Excerpts of our own are in tests/data.
"""

from __future__ import annotations

import os
from pathlib import Path

from tests.rig.needs import RECORDINGS, need

VARIABLE = "GPUCTL_RECORDINGS"


def folder() -> Path:
    """The folder of recordings, which may not exist."""
    return Path(os.environ.get(VARIABLE) or Path(__file__).parents[3] / "shared/fixtures")


def expected() -> bool:
    """True if recordings are there or have to be: a test that draws files at random then draws recordings too."""
    return folder().is_dir() or bool(os.environ.get("CI")) or os.environ.get(RECORDINGS) == "1"


def recording(name: str) -> Path:
    """Path of a recording; without the folder of recordings the test is skipped, in CI it fails."""
    at = folder()
    need("" if at.is_dir() else f"no recordings in {at}; set {VARIABLE} (see tests/data/README.md)", RECORDINGS)
    assert (at / name).exists(), f"no recording {name} in {at}"
    return at / name
