"""Files that go by a name: in a folder here, in the user's own, and among those that come with gpuctl."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from gpuctl.core.errors import InvalidInput
from gpuctl.core.paths import collection_dir, config_dir


def places(folder: str) -> tuple[Path, ...]:
    """Where files of this kind are looked for: here, with the user's own settings, in the collection."""
    shipped = collection_dir()
    return (*(place / folder for place in (Path.cwd(), config_dir(), shipped)), shipped / "examples" / folder)


def find(what: str, name: str, folder: str, endings: Sequence[str]) -> Path:
    """The file of a name or path. A name that stands in two places is refused: nobody can tell which is meant."""
    doing = f"use the {what} {name!r}"
    if "/" in name or name.startswith("."):
        path = Path(os.path.expanduser(name))  # noqa: PTH111 - leaves a user that is not there as it is written
        if not _is_there(path):
            raise InvalidInput(
                doing, "there is no such file or folder", f"give a path, or the name of one in {folder}/"
            )
        return path.absolute()
    found = {c.resolve() for p in places(folder) for end in endings if name and _is_there(c := p / f"{name}{end}")}
    if len(found) == 1:
        return found.pop()
    if found:
        raise InvalidInput(
            doing,
            f"it is found {len(found)} times: {', '.join(map(str, sorted(found)))}",
            "give the path of the one you mean",
        )
    if name and _is_there(Path(name)):
        return Path(name).absolute()
    known = sorted({path.stem for path in listed(folder, endings)})
    raise InvalidInput(doing, "there is none of that name", f"there are: {', '.join(known) or 'none'}; or give a path")


def listed(folder: str, endings: Sequence[str]) -> list[Path]:
    """All that can be named: files with these endings, and folders where an empty ending is among them."""
    inside = [path for place in places(folder) if place.is_dir() for path in sorted(place.iterdir())]
    seen = [path for path in inside if not path.name.startswith(".")]
    return [path for path in seen if ("" in endings if path.is_dir() else path.suffix in endings)]


def _is_there(path: Path) -> bool:
    try:
        return path.exists()
    except OSError:  # a name that is too long for any file
        return False
