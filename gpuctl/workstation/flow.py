"""Run playbooks/laptop.yml on this machine and keep a record of it."""

from __future__ import annotations

import os
import sys
import sysconfig
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import asdict
from pathlib import Path

from ansible_collections.gpuctl.fleet.plugins.plugin_utils.strict_yaml import did_you_mean

from gpuctl.core import run_history
from gpuctl.core.errors import GpuctlError, InvalidInput
from gpuctl.core.paths import collection_dir, state_dir
from gpuctl.core.signals import ctrl_c
from gpuctl.edges import ansible
from gpuctl.edges.ansible_progress import hearing
from gpuctl.workstation.judge import exit_code
from gpuctl.workstation.model import Ended, Wish
from gpuctl.workstation.sudo_password import asking_for_sudo
from gpuctl.workstation.tools import names, own

LIMIT_SECONDS = 3600  # for all of it; each download and program has a limit of its own


def bootstrap(wish: Wish, say: Callable[[str], None] = lambda _: None) -> Ended:
    """Bring the tools, take some away, or put everything back; `say` hears what goes on, while it does.

    `GpuctlError` where it could not be tried at all.
    """
    doing = "undo the workstation" if wish.undo else "set up the workstation"
    _know(wish, doing)
    play = _play(wish)
    told: list[ansible.Told] = []
    asks = wish.packages and not wish.undo and not wish.remove
    with (
        ansible.no_new_folder(),
        hearing(say),
        asking_for_sudo() if asks else nullcontext(),
        ctrl_c() as broken_off,
    ):
        wrong = ansible.run(play, told.append, broken_off)
    if broken_off():
        raise KeyboardInterrupt
    end = told[-1] if told else None
    if end is None or end.result is None:
        raise GpuctlError(
            doing, (end.wrong if end else "") or wrong or "Ansible gave no answer", end.hint if end else ""
        )
    answer = {name: end.result[name] for name in KEPT if name in end.result}
    ended = Ended(answer, exit_code(answer, wish.tools))
    if not wish.check:
        run_history.keep(["gpuctl", *sys.argv[1:]], ended.exit_code, {"localhost": _without_text(ended)})
    return ended


KEPT = ("changed", "tools", "files", "undone", "failed_tools", "conflicts")


def _know(wish: Wish, doing: str) -> None:
    """Refuse a tool of a name that is not in the list, before anything is touched."""
    known = names()
    for tool in (*wish.tools, *wish.remove):
        if tool not in known:
            raise InvalidInput(doing, f"there is no tool {tool}", did_you_mean(tool, known))


def _play(wish: Wish) -> ansible.Play:
    given = {name: value for name, value in asdict(wish).items() if name != "check"}
    variables = {f"workstation_{name}": value for name, value in given.items()}
    variables |= _folders()
    variables["workstation_gpuctl"] = _command()
    variables["workstation_own_tools"] = own()
    variables["workstation_state"] = str(state_dir())
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


def _folders() -> dict[str, str]:
    """Where the user wants links and versions; `InvalidInput` for what cannot be such a folder."""
    found = {}
    for name in ("bin", "folder"):
        variable = f"GPUCTL_TOOLS_{name.upper()}"
        given = os.environ.get(variable, "")
        path = Path(given).expanduser()
        if given and not path.is_absolute():
            raise InvalidInput(f"use {variable}={given}", "it is no whole path", f"as {Path.home() / given}")
        there = next((part for part in (path, *path.parents) if os.path.lexists(part)), path)
        if given and not there.is_dir():
            raise InvalidInput(
                f"use {variable}={given}", f"{there} is no folder", "name another one, or leave it unset"
            )
        found[f"workstation_{name}"] = given
    return found


def _command() -> str:
    """The gpuctl that runs now, where it was installed as a command."""
    path = Path(sysconfig.get_path("scripts"), "gpuctl")
    return str(path) if path.is_file() else ""


def _without_text(ended: Ended) -> dict[str, object]:
    """The answer without the text of the user's files, which is theirs."""
    files = [{k: v for k, v in f.items() if k not in ("before", "after")} for f in ended.answer.get("files", [])]
    return {**ended.answer, "files": files}
