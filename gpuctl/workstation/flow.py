"""Run playbooks/laptop.yml on this machine and record the run."""

from __future__ import annotations

import os
import sys
import sysconfig
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import asdict
from pathlib import Path

from gpuctl.core import run_history
from gpuctl.core.errors import GpuctlError, InvalidInput
from gpuctl.core.paths import state_dir
from gpuctl.core.signals import ctrl_c
from gpuctl.core.strict_yaml import did_you_mean
from gpuctl.edges import ansible
from gpuctl.edges.ansible_progress import progress_listener
from gpuctl.workstation.judge import exit_code
from gpuctl.workstation.model import BootstrapRequest, BootstrapResult
from gpuctl.workstation.sudo_password import asking_for_sudo
from gpuctl.workstation.tools import names, user_rows

LIMIT_SECONDS = 3600  # for the whole run; each download and program has its own limit


def bootstrap(request: BootstrapRequest, on_progress: Callable[[str], None] = lambda _: None) -> BootstrapResult:
    """Install the tools, remove some, or undo everything; `on_progress` receives progress lines.

    `GpuctlError` if the run could not start or finish.
    """
    doing = "undo the workstation" if request.undo else "set up the workstation"
    _require_known_tools(request, doing)
    play = _play(request)
    results: list[ansible.HostResult] = []
    may_need_sudo = request.packages and not request.undo and not request.remove
    with (
        ansible.no_new_folder(),
        progress_listener(on_progress),
        asking_for_sudo() if may_need_sudo else nullcontext(),
        ctrl_c() as interrupted,
    ):
        error = ansible.run(play, results.append, interrupted)
    if interrupted():
        raise KeyboardInterrupt
    end = results[-1] if results else None
    if end is None or end.result is None:
        raise GpuctlError(
            doing, (end.wrong if end else "") or error or "Ansible returned no result", end.hint if end else ""
        )
    answer = {name: end.result[name] for name in KEPT if name in end.result}
    result = BootstrapResult(answer, exit_code(answer, request.tools))
    if not request.check:
        run_history.save(["gpuctl", *sys.argv[1:]], result.exit_code, {"localhost": _without_text(result)})
    return result


KEPT = ("changed", "tools", "files", "undone", "failed_tools", "conflicts")


def _require_known_tools(request: BootstrapRequest, doing: str) -> None:
    """Reject unknown tool names before anything is changed."""
    known_tools = names()
    for tool in (*request.tools, *request.remove):
        if tool not in known_tools:
            raise InvalidInput(doing, f"there is no tool {tool}", did_you_mean(tool, known_tools))


def _play(request: BootstrapRequest) -> ansible.Play:
    options = {name: value for name, value in asdict(request).items() if name != "check"}
    variables = {f"workstation_{name}": value for name, value in options.items()}
    variables |= _folders()
    variables["workstation_gpuctl"] = _command()
    variables["workstation_extra_tools"] = user_rows()
    variables["workstation_state"] = str(state_dir())
    return ansible.Play.on_this_machine("gpuctl.fleet.laptop", variables, LIMIT_SECONDS, request.check)


def _folders() -> dict[str, str]:
    """Return the link and version folders from the environment; `InvalidInput` if one is unusable."""
    variables = {}
    for name in ("bin", "folder"):
        variable = f"GPUCTL_TOOLS_{name.upper()}"
        value = os.environ.get(variable, "")
        path = Path(value).expanduser()
        if value and not path.is_absolute():
            raise InvalidInput(f"use {variable}={value}", "it is not an absolute path", f"as {Path.home() / value}")
        existing = next((part for part in (path, *path.parents) if os.path.lexists(part)), path)
        if value and not existing.is_dir():
            raise InvalidInput(
                f"use {variable}={value}", f"{existing} is not a folder", "use another folder, or unset the variable"
            )
        variables[f"workstation_{name}"] = value
    return variables


def _command() -> str:
    """Return the running gpuctl command, if it is installed as one."""
    path = Path(sysconfig.get_path("scripts"), "gpuctl")
    return str(path) if path.is_file() else ""


def _without_text(result: BootstrapResult) -> dict[str, object]:
    """Return the answer without the contents of the user's files, which stay private."""
    files = [{k: v for k, v in f.items() if k not in ("before", "after")} for f in result.answer.get("files", [])]
    return {**result.answer, "files": files}
