"""Run playbooks/laptop.yml on this machine and keep a record of it."""

from __future__ import annotations

import os
import signal
import sys
import sysconfig
import threading
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import asdict
from pathlib import Path

from ansible_collections.gpuctl.fleet.plugins.plugin_utils.profiles.model import did_you_mean

from gpuctl.core import runs
from gpuctl.core.errors import GpuctlError, Unusable
from gpuctl.core.paths import collection_dir, state_dir
from gpuctl.edges import ansible
from gpuctl.workstation.judge import exit_code
from gpuctl.workstation.model import Ended, Wish
from gpuctl.workstation.password import asking_for_sudo
from gpuctl.workstation.rows import names, own

LIMIT_SECONDS = 3600  # for all of it; each download and program has a limit of its own


def bootstrap(wish: Wish) -> Ended:
    """Bring the tools, take some away, or put everything back; `GpuctlError` where it could not be tried at all."""
    doing = "undo the workstation" if wish.undo else "set up the workstation"
    _know(wish, doing)
    told: list[ansible.Told] = []
    asks = wish.packages and not wish.undo and not wish.remove
    with (
        _no_new_folder(Path.home() / ".ansible"),
        asking_for_sudo() if asks else nullcontext(),
        _ctrl_c() as broken_off,
    ):
        wrong = ansible.run(_play(wish), told.append, broken_off.is_set)
    if broken_off.is_set():
        raise KeyboardInterrupt
    end = told[-1] if told else None
    if end is None or end.result is None:
        raise GpuctlError(
            doing, (end.wrong if end else "") or wrong or "Ansible gave no answer", end.hint if end else ""
        )
    answer = {name: end.result[name] for name in KEPT if name in end.result}
    ended = Ended(answer, exit_code(answer))
    if not wish.check:
        runs.keep(["gpuctl", *sys.argv[1:]], ended.exit_code, {"localhost": _without_text(ended)})
    return ended


KEPT = ("changed", "tools", "files", "undone", "failed_tools", "conflicts")


def _know(wish: Wish, doing: str) -> None:
    """Refuse a tool of a name that is not in the list, before anything is touched."""
    known = names()
    for tool in (*wish.tools, *wish.remove):
        if tool not in known:
            raise Unusable(doing, f"there is no tool {tool}", did_you_mean(tool, known))


def _play(wish: Wish) -> ansible.Play:
    given = {name: value for name, value in asdict(wish).items() if name != "check"}
    variables = {f"workstation_{name}": value for name, value in given.items()}
    variables["workstation_gpuctl"] = _command()
    variables["workstation_own_tools"] = own()
    variables["workstation_state"] = str(state_dir())
    for name in ("bin", "folder"):
        variables[f"workstation_{name}"] = os.environ.get(f"GPUCTL_TOOLS_{name.upper()}", "")
    return ansible.Play(
        playbook="gpuctl.fleet.laptop",
        inventory=collection_dir() / "inventories" / "localhost",
        hosts=["localhost"],
        variables=variables,
        files={},
        file_of={},
        forks=1,
        limit=LIMIT_SECONDS,
        check=wish.check,
    )


def _command() -> str:
    """The gpuctl that runs now, where it was installed as a command."""
    path = Path(sysconfig.get_path("scripts"), "gpuctl")
    return str(path) if path.is_file() else ""


@contextmanager
def _ctrl_c() -> Iterator[threading.Event]:
    """Turn Ctrl-C into a request: Ansible and what it runs here are ended, and nothing half-made stays."""
    asked = threading.Event()
    before = signal.signal(signal.SIGINT, lambda *_: asked.set())
    try:
        yield asked
    finally:
        signal.signal(signal.SIGINT, before)


@contextmanager
def _no_new_folder(folder: Path) -> Iterator[None]:
    """Ansible leaves an empty folder in a home that had none: it is not the user's."""
    there = folder.exists()
    try:
        yield
    finally:
        with suppress(OSError):  # it is not empty, or was not made
            if not there:
                folder.rmdir()


def _without_text(ended: Ended) -> dict[str, object]:
    """The answer without the text of the user's files, which is theirs."""
    files = [{k: v for k, v in f.items() if k not in ("before", "after")} for f in ended.answer.get("files", [])]
    return {**ended.answer, "files": files}
