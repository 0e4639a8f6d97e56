"""The tool rows: the role's and the user's."""

from __future__ import annotations

import os
from typing import Any

from gpuctl.core.errors import InvalidInput
from gpuctl.core.paths import collection_dir, config_dir
from gpuctl.workstation.tools_file import read_rows


def rows() -> list[dict[str, Any]]:
    """Return the role's rows."""
    return read_rows(collection_dir() / "roles" / "workstation" / "files" / "tools.yml")


def user_rows() -> list[dict[str, Any]]:
    """Return the user's rows from config_dir()/tools.yml; empty if the file does not exist."""
    path = config_dir() / "tools.yml"
    return read_rows(path) if os.path.lexists(path) else []


def names() -> list[str]:
    return list(dict.fromkeys(row["name"] for row in [*rows(), *user_rows()]))


def release_of(name: str) -> dict[str, Any]:
    """Return the release section of a tool's row."""
    releases = {row["name"]: row["release"] for row in [*rows(), *user_rows()] if "release" in row}
    if name not in releases:
        raise InvalidInput(f"pin {name}", "it has no release archive", f"these have one: {', '.join(releases)}")
    return dict(releases[name])
