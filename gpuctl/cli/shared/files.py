"""Files that a command writes for its user, besides its output."""

from __future__ import annotations

import os
from pathlib import Path

from gpuctl.core.errors import GpuctlError, InvalidInput

READABLE = 0o644  # for files that another user's program reads


def check_folder(path: Path | None, doing: str) -> None:
    """Raise InvalidInput if the file cannot be written, before a long command starts; `doing` completes "cannot …"."""
    folder = path.absolute().parent if path else None
    if folder and not (folder.is_dir() and os.access(folder, os.W_OK | os.X_OK)):
        wrong = "no such folder" if not folder.is_dir() else "the folder is not writable"
        raise InvalidInput(f"{doing} {path}", wrong, "create the folder, or name another file")


def write(path: Path, text: str, doing: str, mode: int = 0o600) -> None:
    """Write the file as a whole or not at all; `doing` completes "cannot …"."""
    from gpuctl.core.paths import write_atomically

    try:
        write_atomically(path, text, mode)
    except OSError as error:
        raise GpuctlError(f"{doing} {path}", error.strerror or str(error), "name another file") from error
