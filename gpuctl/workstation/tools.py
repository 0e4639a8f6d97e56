"""The rows of the tools: those the role has, and the user's own."""

from __future__ import annotations

import os
from typing import Any

from gpuctl.core.errors import InvalidInput
from gpuctl.core.paths import collection_dir, config_dir
from gpuctl.workstation.tools_file import read_rows


def rows() -> list[dict[str, Any]]:
    """Those of the role."""
    return read_rows(collection_dir() / "roles" / "workstation" / "files" / "tools.yml")


def user_rows() -> list[dict[str, Any]]:
    """The user's, in config_dir()/tools.yml; none where there is no such file."""
    path = config_dir() / "tools.yml"
    return read_rows(path) if os.path.lexists(path) else []


def names() -> list[str]:
    return list(dict.fromkeys(row["name"] for row in [*rows(), *user_rows()]))


def release_of(name: str) -> dict[str, Any]:
    """Where a tool's archives lie."""
    known = {row["name"]: row["release"] for row in [*rows(), *user_rows()] if "release" in row}
    if name not in known:
        raise InvalidInput(f"pin {name}", "it has no release archive", f"there are {', '.join(known)}")
    return dict(known[name])
