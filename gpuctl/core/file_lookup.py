"""Look up files by name: in the working folder, the user's configuration folder and the shipped collection."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from gpuctl.core.errors import InvalidInput
from gpuctl.core.paths import collection_dir, config_dir


def search_path(folder: str) -> tuple[Path, ...]:
    """Folders searched for files of one type: the working folder, the user's configuration, the collection."""
    shipped = collection_dir()
    return (*(parent / folder for parent in (Path.cwd(), config_dir(), shipped)), shipped / "examples" / folder)


def find(what: str, name: str, folder: str, endings: Sequence[str]) -> Path:
    """The file of a name or path; `InvalidInput` for a name that several files have. `what`: the type, for messages."""
    doing = f"use the {what} {name!r}"
    if "/" in name or name.startswith("."):
        path = Path(os.path.expanduser(name))  # noqa: PTH111 - keeps the ~ of an unknown user
        if not _exists(path):
            raise InvalidInput(doing, "no such file or folder exists", f"pass a path, or the name of one in {folder}/")
        return path.absolute()
    candidates = [parent / f"{name}{end}" for parent in search_path(folder) for end in endings if name]
    matches = {candidate.resolve() for candidate in candidates if _exists(candidate)}
    if len(matches) == 1:
        return matches.pop()
    if matches:
        raise InvalidInput(
            doing,
            f"{len(matches)} files have this name: {', '.join(map(str, sorted(matches)))}",
            "pass a path instead",
        )
    if name and _exists(Path(name)):
        return Path(name).absolute()
    known = sorted({path.stem for path in listed(folder, endings)})
    raise InvalidInput(doing, "no file has this name", f"known names: {', '.join(known) or 'none'}; or give a path")


def listed(folder: str, endings: Sequence[str]) -> list[Path]:
    """All files that `find` accepts by name: those with these endings, and folders if an empty ending is among them."""
    inside = [path for parent in search_path(folder) for path in _inside(parent)]
    visible = [path for path in inside if not path.name.startswith(".")]
    return [path for path in visible if ("" in endings if path.is_dir() else path.suffix in endings)]


def _inside(folder: Path) -> list[Path]:
    try:
        return sorted(folder.iterdir())
    except OSError:  # it does not exist, or cannot be read
        return []


def _exists(path: Path) -> bool:
    try:
        return path.exists()
    except OSError:  # the name is too long for a file
        return False
