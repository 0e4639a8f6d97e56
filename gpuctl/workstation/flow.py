"""Run playbooks/laptop.yml on this machine and keep a record of it."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict
from pathlib import Path

from gpuctl.core import runs
from gpuctl.core.errors import GpuctlError, Unusable
from gpuctl.core.paths import collection_dir, state_dir
from gpuctl.edges import ansible
from gpuctl.workstation.judge import exit_code
from gpuctl.workstation.model import Ended, Wish
from gpuctl.workstation.rows import names, own

LIMIT_SECONDS = 3600  # for all of it; each download and program has a limit of its own


def bootstrap(wish: Wish) -> Ended:
    """Bring the tools, or put everything back; `GpuctlError` where it could not be tried at all."""
    doing = "undo the workstation" if wish.undo else "set up the workstation"
    _know(wish, doing)
    told: list[ansible.Told] = []
    with _no_new_folder(Path.home() / ".ansible"):
        wrong = ansible.run(_play(wish), told.append, lambda: False)
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
    unknown = [tool for tool in wish.tools if tool not in names()]
    if unknown:
        raise Unusable(doing, f"{', '.join(unknown)}: no such tool", f"there are {', '.join(names())}")


def _play(wish: Wish) -> ansible.Play:
    given = {name: value for name, value in asdict(wish).items() if name != "check"}
    variables = {f"workstation_{name}": value for name, value in given.items()}
    variables["workstation_tools"] = list(wish.tools)
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
