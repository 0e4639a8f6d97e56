"""Load a profile with those that it extends, and report all their mistakes at once."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ..strict_yaml import EmptyFile, Mistake, from_plain, read
from .conflicts import rivals
from .lookup import find
from .merging import merge
from .model import Profile, ProfileError
from .parse import Draft, draft

EMPTY = EmptyFile("profile", "add `knobs:` or `extends:`")
# Kind of a knob that only a variable of the inventory sets -> that variable.
VARIABLES = {"gpu": "gpu_settings", "kubelet": "kubelet_resources", "slurm": "slurm_gres"}
INLINE = "playbook"  # name of a playbook's profile without one


def load(name: str | Path, search: Sequence[Path] | None = None) -> Profile:
    """The profile with this name, or in this file; `search` are folders of profiles besides the shipped ones."""
    mistakes: list[Mistake] = []
    path = find(str(name), search, f"profile {name}") if str(name) else Mistake("profile", "none is named")
    if isinstance(path, Mistake):
        raise ProfileError([path])
    top = _draft(path, mistakes)
    profile = _resolved(top, path, search, mistakes)
    rows = [row for knobs in (profile.rows, *(o.rows for o in profile.overlays)) for row in knobs.values()]
    misplaced = [
        Mistake(row.where, f"{row.name} is not for a profile", f"set it in {variable} of the inventory")
        for row in rows
        if (variable := VARIABLES.get(row.name.partition(".")[0]))
    ]
    if misplaced:
        raise ProfileError(misplaced)
    return profile


def inline(values: Mapping[str, Any], search: Sequence[Path] | None = None) -> Profile:
    """A profile from plain values; mistakes have the path of the value instead of a line."""
    mistakes: list[Mistake] = []
    top = draft(from_plain(values), str(values.get("name") or INLINE), mistakes)
    return _resolved(top, None, search, mistakes)


def _draft(path: Path, mistakes: list[Mistake]) -> Draft | None:
    node = read(path, mistakes, EMPTY)
    return None if node is None else draft(node, path.stem, mistakes)


def _resolved(top: Draft | None, path: Path | None, search: Sequence[Path] | None, mistakes: list[Mistake]) -> Profile:
    chain, whole = _chain(top, path, search, mistakes)
    profile = None
    for profile_draft in reversed(chain):
        profile = merge(profile, profile_draft, mistakes, base_known=whole)
    if profile is not None:
        mistakes += rivals(profile)
    if mistakes or profile is None:
        raise ProfileError(sorted(dict.fromkeys(mistakes), key=_place))
    return profile


def _chain(
    top: Draft | None, path: Path | None, search: Sequence[Path] | None, mistakes: list[Mistake]
) -> tuple[list[Draft], bool]:
    """(the profile, the one that it extends, and so on; True if all could be read)."""
    chain: list[Draft] = []
    visited: list[Path] = []
    current = top
    while current is not None:
        chain.append(current)
        if path is not None:
            visited.append(path.resolve())
        if current.extends is None:
            return chain, True
        path = _base(current, path, search, mistakes)
        if path is not None and path.resolve() in visited:
            route = " -> ".join([*(link.name for link in chain), path.stem])
            mistakes.append(Mistake(current.extends.where, f"profiles extend each other in a circle: {route}"))
            path = None
        current = None if path is None else _draft(path, mistakes)
    return chain, False


def _base(current: Draft, path: Path | None, search: Sequence[Path] | None, mistakes: list[Mistake]) -> Path | None:
    node = current.extends
    if node is None or not isinstance(node.value, str):
        return None
    base_path = find(node.value, search, node.where, path.parent if path else None)
    if isinstance(base_path, Mistake):
        mistakes.append(base_path)
        return None
    return base_path


def _place(mistake: Mistake) -> tuple[str, int]:
    """Sort key: the file, then the line as a number."""
    file, _, line = mistake.where.rpartition(":")
    return (file, int(line)) if line.isdigit() else (mistake.where, 0)
