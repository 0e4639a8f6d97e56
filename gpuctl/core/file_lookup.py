"""Look up files by name: in the working folder, the user's own folder and among those that come with gpuctl."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from gpuctl.core.errors import InvalidInput
from gpuctl.core.paths import collection_dir, config_dir


def places(folder: str) -> tuple[Path, ...]:
    """The folders searched for files of this type: here, the user's settings, the collection."""
    shipped = collection_dir()
    return (*(place / folder for place in (Path.cwd(), config_dir(), shipped)), shipped / "examples" / folder)


def find(what: str, name: str, folder: str, endings: Sequence[str]) -> Path:
    """The file of a name or path. A name that stands in two places is refused: nobody can tell which is meant."""
    doing = f"use the {what} {name!r}"
    if "/" in name or name.startswith("."):
        path = Path(os.path.expanduser(name))  # noqa: PTH111 - leaves a user that is not there as it is written
        if not _exists(path):
            raise InvalidInput(
                doing, "there is no such file or folder", f"give a path, or the name of one in {folder}/"
            )
        return path.absolute()
    matches = {c.resolve() for p in places(folder) for end in endings if name and _exists(c := p / f"{name}{end}")}
    if len(matches) == 1:
        return matches.pop()
    if matches:
        raise InvalidInput(
            doing,
            f"it is found {len(matches)} times: {', '.join(map(str, sorted(matches)))}",
            "give the path of the one you mean",
        )
    if name and _exists(Path(name)):
        return Path(name).absolute()
    known = sorted({path.stem for path in listed(folder, endings)})
    raise InvalidInput(doing, "there is none of that name", f"there are: {', '.join(known) or 'none'}; or give a path")


def listed(folder: str, endings: Sequence[str]) -> list[Path]:
    """All files that can be named: those with these endings, and folders if an empty ending is among them."""
    inside = [path for place in places(folder) if place.is_dir() for path in sorted(place.iterdir())]
    visible = [path for path in inside if not path.name.startswith(".")]
    return [path for path in visible if ("" in endings if path.is_dir() else path.suffix in endings)]


def _exists(path: Path) -> bool:
    try:
        return path.exists()
    except OSError:  # a name that is too long for any file
        return False
