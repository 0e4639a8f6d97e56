"""The rows of the tools: those the role has, and the user's own."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from gpuctl.core.errors import Unusable
from gpuctl.core.paths import collection_dir, config_dir

WANTED = ("name", "why", "source")


def rows() -> list[dict[str, Any]]:
    """Those of the role."""
    return _read(collection_dir() / "roles" / "workstation" / "files" / "tools.yml")


def own() -> list[dict[str, Any]]:
    """The user's, in config_dir()/tools.yml; none where there is no such file."""
    path = config_dir() / "tools.yml"
    return _read(path) if path.is_file() else []


def names() -> list[str]:
    return list(dict.fromkeys(row["name"] for row in [*rows(), *own()]))


def release_of(name: str) -> dict[str, Any]:
    """Where a tool's archives lie."""
    known = {row["name"]: row["release"] for row in [*rows(), *own()] if "release" in row}
    if name not in known:
        raise Unusable(f"pin {name}", "it has no release archive", f"there are {', '.join(known)}")
    return dict(known[name])


def _read(path: Path) -> list[dict[str, Any]]:
    import yaml

    try:
        found = yaml.safe_load(path.read_text())
    except (OSError, yaml.YAMLError) as error:
        raise Unusable(f"use {path}", str(error)) from error
    for row in found if isinstance(found, list) else [found]:
        if not isinstance(row, dict) or not all(isinstance(row.get(n), str) and row[n] for n in WANTED):
            raise Unusable(
                f"use {path}", f"a row needs {', '.join(WANTED)}: {row}", "docs/workstation.md has an example"
            )
        if "release" in row and not {"version", "url", "pins"} <= set(row["release"] or {}):
            raise Unusable(f"use {path}", f"the release of {row['name']} needs version, url and pins")
    return list(found)
