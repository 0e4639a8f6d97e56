"""The selected pod, remembered per kubeconfig: each pane with a private copy has its own."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from gpuctl.core.errors import GpuctlError
from gpuctl.core.paths import write_atomically
from gpuctl.kube import private_kubeconfig


@dataclass(frozen=True)
class SelectedPod:
    """A pod and container ("" for the first one); `current` is the context that was current when it was selected."""

    context: str
    namespace: str
    pod: str
    container: str = ""
    current: str = ""


def selection_file(paths: Sequence[Path]) -> Path:
    """Return the file that stores the selection made with these kubeconfig files."""
    if private_kubeconfig.is_private(paths):
        return Path(f"{paths[0]}.chosen")
    named = hashlib.sha256(os.pathsep.join(map(str, paths)).encode()).hexdigest()[:16]
    return private_kubeconfig.folder() / f"chosen-{named}.json"


def remember(paths: Sequence[Path], pod: SelectedPod) -> None:
    """Store the selection."""
    write_atomically(selection_file(paths), json.dumps(asdict(pod)) + "\n")


def recall(paths: Sequence[Path], current: str) -> SelectedPod | None:
    """Return the selected pod; None if there is none or the context was switched since then."""
    path = selection_file(paths)
    if not path.is_file():
        return None
    try:
        selected = SelectedPod(**json.loads(path.read_text()))
    except (OSError, ValueError, TypeError) as error:
        raise GpuctlError(f"read {path}", str(error), "choose a pod again with `kpod`") from error
    return selected if selected.current == current else None
