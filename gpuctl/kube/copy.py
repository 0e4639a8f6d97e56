"""A shell's own kubeconfig: a private copy, so that switching in one pane never moves another."""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Sequence
from pathlib import Path

from gpuctl.core.errors import Unusable
from gpuctl.core.paths import private, state_dir, write_atomically
from gpuctl.kube.merge import merged, placed

# HOST-PID.yml, and files beside it that add an ending: the prompt, the pod last chosen, the commands.
NAMED = re.compile(r"(?P<host>.+)-(?P<pid>\d+)\.yml(\..+)?")


def folder() -> Path:
    return private(state_dir() / "kube")


def make(sources: Sequence[Path], pid: int, host: str, context: str = "", namespace: str = "") -> Path:
    """Copy what kubectl would read for the shell with this process number; copies of ended shells are removed.

    `context`, `namespace`: where it starts; where there is no such context any more, as the files say.
    """
    texts = {}
    for path in sources:
        try:
            texts[path] = path.read_text()
        except (OSError, UnicodeDecodeError) as error:
            raise Unusable(f"read the kubeconfig {path}", str(error)) from error
    text = merged(texts)
    if context:
        text = placed(text, context, namespace) or text
    remove_stale(host)
    path = folder() / f"{host}-{pid}.yml"
    write_atomically(path, text)
    return path


def remove_stale(host: str) -> list[Path]:
    """Remove the copies of shells of this machine that have ended; what other machines left here is theirs."""
    gone = []
    for path in sorted(folder().iterdir()):
        named = NAMED.fullmatch(path.name)
        if named and named["host"] == host and not _runs(int(named["pid"])):
            with contextlib.suppress(FileNotFoundError):
                path.unlink()
            gone.append(path)
    return gone


def is_own(paths: Sequence[Path]) -> bool:
    """Whether these files are a shell's own copy, which may be switched without moving anyone else."""
    return len(paths) == 1 and paths[0].parent == state_dir() / "kube" and NAMED.fullmatch(paths[0].name) is not None


def _runs(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True
