"""File with the streaks of idle GPUs, between two runs of `gpuctl nodes`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from gpuctl.core.errors import GpuctlError
from gpuctl.core.paths import private, state_dir, write_atomically
from gpuctl.nodes.readings import Streak, Streaks

FORM = 1


def path() -> Path:
    """The file, which may not exist."""
    return state_dir() / "nodes" / "readings.json"


def load() -> dict[str, Streak]:
    """Streaks of earlier runs; none if the file is missing or damaged, as it only shortens what is known."""
    try:
        plain: Any = json.loads(path().read_text())
        if plain["form"] != FORM:
            return {}
        return {str(key): Streak(int(a), int(b), int(n)) for key, (a, b, n) in plain["streaks"].items()}
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return {}


def save(streaks: Streaks) -> None:
    """Write the streaks; `GpuctlError` if that is not possible."""
    rows = {key: [one.since, one.last, one.readings] for key, one in streaks.items()}
    try:
        private(path().parent)
        write_atomically(path(), json.dumps({"form": FORM, "streaks": rows}))
    except OSError as error:
        wrong = error.strerror or str(error)
        raise GpuctlError(f"keep the readings in {path()}", wrong, "set GPUCTL_STATE_DIR to another folder") from error
