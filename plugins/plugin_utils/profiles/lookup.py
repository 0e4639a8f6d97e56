"""Find profiles: by path, or by name in the user's folder and among the shipped ones."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from ..strict_yaml import Mistake, did_you_mean

SHIPPED = Path(__file__).resolve().parents[3] / "roles/host_profile/files/profiles"
SUFFIXES = (".yml", ".yaml")


class ProfileFile(NamedTuple):
    """A profile file that can be named."""

    name: str
    path: Path
    shipped: bool


def user_folders() -> list[Path]:
    """The user's folders of profiles: $GPUCTL_CONFIG_DIR/profiles, else ~/.config/gpuctl/profiles."""
    if "GPUCTL_CONFIG_DIR" in os.environ:
        return [Path(os.environ["GPUCTL_CONFIG_DIR"]) / "profiles"]
    return [Path(os.environ.get("XDG_CONFIG_HOME") or Path.home() / ".config") / "gpuctl/profiles"]


def names(search: Sequence[Path] | None = None) -> list[ProfileFile]:
    """All profiles by name: the shipped ones, then those of the user's folders."""
    folders = [(SHIPPED, True), *((folder, False) for folder in (user_folders() if search is None else search))]
    return [
        ProfileFile(path.stem, path, shipped)
        for folder, shipped in folders
        for path in sorted(folder.glob("*"))
        if path.suffix in SUFFIXES and not path.name.startswith(".")
    ]


def find(name: str, search: Sequence[Path] | None, where: str, beside: Path | None = None) -> Path | Mistake:
    """The file of a profile by name or path; a path is relative to the folder `beside`."""
    if "/" in name or name.endswith(SUFFIXES):
        try:
            path = (beside or Path()) / Path(name).expanduser()
            return path if path.is_file() else Mistake(where, f"there is no file {path}")
        except (OSError, RuntimeError) as error:  # no permission, a name that is too long, the ~ of an unknown user
            return Mistake(where, f"cannot use the file {name}: {getattr(error, 'strerror', None) or error}")
    known = names(search)
    fitting = [file for file in known if file.name == name]
    if len(fitting) == 1:
        return fitting[0].path
    if not fitting:
        return Mistake(where, f"no profile is called {name!r}", did_you_mean(name, sorted(f.name for f in known)))
    places = " and ".join(str(file.path) for file in fitting)
    if any(file.shipped for file in fitting):
        return Mistake(where, f"{name} is in two places: {places}", f"give yours another name and `extends: {name}`")
    return Mistake(where, f"{name} is in two places: {places}", "rename one, or give its path")
