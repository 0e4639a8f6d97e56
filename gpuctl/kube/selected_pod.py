"""The pod last chosen, remembered per kubeconfig: a pane with its own copy has its own."""

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
class Chosen:
    """A pod and container ("" for its first). `current` is the context that was the current one at that time."""

    context: str
    namespace: str
    pod: str
    container: str = ""
    current: str = ""


def place(paths: Sequence[Path]) -> Path:
    """Where the choice made with these kubeconfig files is kept."""
    if private_kubeconfig.is_own(paths):
        return Path(f"{paths[0]}.chosen")
    named = hashlib.sha256(os.pathsep.join(map(str, paths)).encode()).hexdigest()[:16]
    return private_kubeconfig.folder() / f"chosen-{named}.json"


def remember(paths: Sequence[Path], pod: Chosen) -> None:
    """Keep the choice."""
    write_atomically(place(paths), json.dumps(asdict(pod)) + "\n")


def recall(paths: Sequence[Path], current: str) -> Chosen | None:
    """The pod last chosen; None where there is none, or the context was switched since: it may be another cluster's."""
    path = place(paths)
    if not path.is_file():
        return None
    try:
        selected = Chosen(**json.loads(path.read_text()))
    except (OSError, ValueError, TypeError) as error:
        raise GpuctlError(f"read {path}", str(error), "choose a pod again with `kpod`") from error
    return selected if selected.current == current else None
