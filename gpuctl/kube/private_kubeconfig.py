"""A shell's private kubeconfig: a copy, so that switching in one pane affects no other."""

from __future__ import annotations

import contextlib
import json
import os
import re
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from gpuctl.core.errors import InvalidInput
from gpuctl.core.paths import private, state_dir, write_atomically
from gpuctl.kube.merge import added, merged, placed

# HOST-PID.yml, and files beside it with a suffix: the prompt, the selected pod, the commands.
NAMED = re.compile(r"(?P<host>.+)-(?P<pid>\d+)\.yml(\..+)?")


@dataclass(frozen=True)
class SavedEntries:
    """Entries added to a private kubeconfig, such as "context new-eu", saved to `path`; `sources`: the user's files."""

    path: Path
    names: Sequence[str]
    sources: Sequence[Path]

    def __str__(self) -> str:
        both = os.pathsep.join(map(str, [*self.sources, self.path]))
        return (
            "gpuctl: an ended smart shell's kubeconfig had entries that your own files lack: "
            f"{', '.join(self.names)}\n"
            f"  kept in {self.path}\n"
            f"  hint: `export KUBECONFIG={both}` uses both; `kubectl config view --flatten` then merges them"
        )


def folder() -> Path:
    return private(state_dir() / "kube")


def make(sources: Sequence[Path], pid: int, host: str, context: str = "", namespace: str = "") -> Path:
    """Copy what kubectl would read, for the shell with this process id; copies of ended shells are removed.

    `context` and `namespace` become the current ones; if the context does not exist, none is current.
    """
    path = copy(sources, pid, host, context, namespace)
    # Newer than the copy until something writes to the copy; an ending shell compares the two.
    write_atomically(_sources(path), json.dumps([str(source) for source in sources]) + "\n")
    return path


def copy(sources: Sequence[Path], pid: int, host: str, context: str = "", namespace: str = "") -> Path:
    """Copy the kubeconfig for the process with this id; additions to the copy are not kept."""
    text = merged(_texts(sources))
    if context or namespace:
        text = placed(text, context, namespace)
    path = folder() / f"{host}-{pid}.yml"
    write_atomically(path, text)
    return path


def _texts(paths: Sequence[Path]) -> dict[Path, str]:
    """Return the text of each file by its absolute path."""
    texts = {}
    for path in paths:
        try:
            texts[path.absolute()] = path.read_text()
        except (OSError, UnicodeDecodeError) as error:
            raise InvalidInput(f"read the kubeconfig {path}", str(error)) from error
    return texts


def _sources(copy: Path) -> Path:
    return Path(f"{copy}.from")


def keep_added(copy: Path) -> SavedEntries | None:
    """Save entries that were added to a copy and that its sources lack; None if there are none."""
    if not copy.is_file() or not _sources(copy).is_file():
        return None
    sources = [Path(source) for source in json.loads(_sources(copy).read_text())]
    theirs = merged(_texts([source for source in sources if source.is_file()]))
    names, text = added(_texts([copy])[copy.absolute()], theirs)
    if not names:
        return None
    path = private(folder() / "added") / f"{time.strftime('%Y-%m-%dT%H-%M-%S')}-{os.getpid()}-{copy.name}"
    write_atomically(path, text)
    return SavedEntries(path, names, sources)


def remove_stale(host: str) -> list[SavedEntries]:
    """Remove this machine's copies of ended shells, and return what was kept of them."""
    saved_entries: list[SavedEntries] = []
    for path in sorted(folder().iterdir()):
        named = NAMED.fullmatch(path.name)
        if named and named["host"] == host and not _runs(int(named["pid"])):
            with contextlib.suppress(InvalidInput, ValueError):  # an unreadable copy has nothing to keep
                saved_entries += filter(None, [keep_added(path)])
            with contextlib.suppress(FileNotFoundError):
                path.unlink()
    return saved_entries


def is_private(paths: Sequence[Path]) -> bool:
    """True if these files are a shell's private copy, which may be switched without affecting other shells."""
    return len(paths) == 1 and paths[0].parent == state_dir() / "kube" and NAMED.fullmatch(paths[0].name) is not None


def _runs(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True
