"""The status bar's text for a pane's Kubernetes context, coloured by stage."""

from __future__ import annotations

import os
from pathlib import Path

from gpuctl.core.errors import InvalidInput
from gpuctl.core.settings import Settings
from gpuctl.edges.kube import config

COLOURS = {
    "production": "bg=red,fg=white,bold",
    "staging": "fg=yellow,bold",
    "development": "fg=green",
    "": "fg=colour250",
}
UNREAD = "fg=colour245"
LONGEST = 32


def default_kubeconfig() -> str:
    """Return the files that kubectl reads, separated as in $KUBECONFIG."""
    return os.pathsep.join(map(str, config.files()))


def text(paths: str, settings: Settings) -> str:
    """Return the context of these files (separated as in $KUBECONFIG) with tmux styles."""
    files = [Path(path) for path in paths.split(os.pathsep) if path]
    try:
        active = config.current(*(path for path in files if _exists(path)))
    except (InvalidInput, OSError):
        return _styled(UNREAD, "unknown")
    if active is None:
        return _styled(UNREAD, "no context")
    return _styled(COLOURS[settings.stage(active.name)], f"{_short(active.name)} {_short(active.namespace)}")


def _exists(path: Path) -> bool:
    try:
        path.stat()
    except FileNotFoundError:
        return False
    return True


def _short(name: str) -> str:
    """Shorten to the end of a long name, which identifies the cluster: arn:aws:eks:…:cluster/NAME."""
    return name if len(name) <= LONGEST else f"..{name[2 - LONGEST :]}"


def _styled(style: str, label: str) -> str:
    # Context names may come from elsewhere: tmux must not interpret them as formats or styles.
    plain = "".join(letter if letter.isprintable() else "?" for letter in label).replace("#", "##")
    return f"#[{style}] {plain} #[default]"
