"""What the prompt says of the context, written down so that no prompt has to ask for it."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

from gpuctl.core.errors import InvalidInput
from gpuctl.core.paths import write_atomically
from gpuctl.core.settings import Settings
from gpuctl.edges.kube import config


def lines(paths: Sequence[Path], settings: Settings) -> tuple[str, str, str]:
    """Stage, context and namespace; the stage is `none` without a context and `other` where no pattern fits."""
    try:
        active = config.current(*paths)
    except InvalidInput:
        return "unknown", "unknown", ""
    if active is None:
        return "none", "no context", ""
    return settings.stage(active.name) or "other", plain(active.name), plain(active.namespace)


def plain(name: str) -> str:
    """A name that no shell takes for anything but text, whatever a kubeconfig from elsewhere calls its contexts."""
    return re.sub(r"[^\w@:/.+=,~ -]", "?", name)


def write(path: Path, paths: Sequence[Path], settings: Settings) -> None:
    """Keep it for the shell to read."""
    write_atomically(path, "\n".join(lines(paths, settings)) + "\n")
