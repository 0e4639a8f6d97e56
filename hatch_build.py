"""Build hook: the collection travels in the wheel, and an editable install links to it so that edits are live."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

COLLECTION = Path("ansible_collections/gpuctl/fleet")
PARTS = ("galaxy.yml", "meta", "playbooks", "roles", "plugins", "inventories", "examples")
LEFT_OUT = {"__pycache__", "molecule"}


class CollectionHook(BuildHookInterface):  # type: ignore[type-arg]
    """Puts the tree's collection where ansible-core finds it: under ansible_collections/ on Python's path."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        root = Path(self.root)
        if version == "editable":
            # pyproject.toml's dev-mode-dirs puts this folder on Python's path.
            link(root, root / "build/collections" / COLLECTION)
        else:
            build_data["force_include"] |= {str(root / file): str(COLLECTION / file) for file in carried(root)}
            # `gpuctl self-update` shows what is new in it.
            build_data["force_include"][str(root / "CHANGELOG.md")] = "gpuctl/CHANGELOG.md"


def carried(root: Path) -> list[Path]:
    """Every file of the collection that users need, relative to the root."""
    found = [path for part in PARTS for path in [root / part, *(root / part).rglob("*")] if path.is_file()]
    return sorted(path.relative_to(root) for path in found if not LEFT_OUT & set(path.relative_to(root).parts))


def link(root: Path, folder: Path) -> None:
    """A real folder of links to the parts: a link to the root itself would be a loop for whoever follows it."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    for part in PARTS:
        (folder / part).symlink_to(root / part)
