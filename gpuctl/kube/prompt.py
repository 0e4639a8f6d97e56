"""The prompt's context line, cached in a file so that the prompt starts no process."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

from gpuctl.core import settings
from gpuctl.core.errors import InvalidInput
from gpuctl.core.paths import write_atomically
from gpuctl.core.settings import Settings
from gpuctl.edges.kube import config


def lines(paths: Sequence[Path], user_settings: Settings) -> tuple[str, str, str]:
    """Return stage, context and namespace; the stage is `none` without a context, `other` if no pattern matches."""
    try:
        active = config.current(*paths)
    except InvalidInput:
        return "unknown", "unknown", ""
    if active is None:
        return "none", "no context", ""
    return user_settings.stage(active.name) or "other", plain(active.name), plain(active.namespace)


def plain(name: str) -> str:
    """Replace characters in a name that a shell could interpret; kubeconfigs may come from elsewhere."""
    return re.sub(r"[^\w@:/.+=,~ -]", "?", name)


def refresh(path: Path) -> None:
    """Write the cached prompt for the current kubeconfig and settings."""
    write(path, config.files(), settings.load())


def write(path: Path, paths: Sequence[Path], user_settings: Settings) -> None:
    """Write the cached prompt for the shell."""
    write_atomically(path, "\n".join(lines(paths, user_settings)) + "\n")
