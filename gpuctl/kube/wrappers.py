"""Put wrappers of kubectl, oc and helm on a PATH, which ask before destructive commands in a production context."""

from __future__ import annotations

import os
import shlex
from pathlib import Path

from gpuctl.core.paths import private, state_dir
from gpuctl.edges import programs
from gpuctl.kube.guard import PROGRAMS

WRAPPER = Path(__file__).with_name("wrapper.sh")


def folder() -> Path:
    return state_dir() / "kube-wrappers"


def wrapped(name: str, path: str | None = None) -> Path | None:
    """Return the program behind a wrapper, from a PATH (default: this process's); None if it is not installed."""
    folders = (os.environ.get("PATH", os.defpath) if path is None else path).split(os.pathsep)
    return programs.find(name, os.pathsep.join(entry for entry in folders if entry != str(folder())))


def place(path: str) -> str:
    """Return a PATH with the folder of the wrappers first; it has a wrapper of each program that is installed."""
    private(folder())
    for name in PROGRAMS:
        link = folder() / name
        if wrapped(name, path):
            draft = link.with_name(f".{name}.{os.getpid()}")
            draft.symlink_to(WRAPPER)
            draft.replace(link)
        else:
            link.unlink(missing_ok=True)
    others = [entry for entry in path.split(os.pathsep) if entry != str(folder())]
    return os.pathsep.join([str(folder()), *others])


def bash_functions(path: str) -> dict[str, str]:
    """Return variables from which every bash makes functions that call the wrappers of a PATH's programs.

    The profile of a login shell (`bash -lc`) often sets another PATH, which lacks the wrappers.
    """
    functions = {}
    for name in PROGRAMS:
        if wrapped(name, path):
            link = shlex.quote(str(folder() / name))
            does = f'if [ -x {link} ]; then {link} "$@"; else command {name} "$@"; fi'
            functions[f"BASH_FUNC_{name}%%"] = f"() {{ {does}; }}"  # one line: files of variables have one for each
    return functions
