"""Run playbooks/laptop.yml on this machine and record the run."""

from __future__ import annotations

import os
import sys
import sysconfig
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import asdict, replace
from pathlib import Path

from gpuctl.core import run_history
from gpuctl.core.errors import GpuctlError, InvalidInput
from gpuctl.core.paths import state_dir
from gpuctl.core.signals import ctrl_c
from gpuctl.core.strict_yaml import did_you_mean
from gpuctl.edges import ansible
from gpuctl.edges.ansible_progress import progress_listener
from gpuctl.workstation import choices
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
    installs = not request.undo and not request.remove
    remembered, given = choices.read(), _given(request)
    settled = {**DEFAULTS, **remembered, **given}
    play = _play(request, settled)
    earlier = {name: value for name, value in remembered.items() if name not in given}
    if earlier and installs:
        on_progress(f"as chosen earlier: {choices.described(earlier)}")
    results: list[ansible.HostResult] = []
    may_need_sudo = installs and settled["packages"]
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
    result = BootstrapResult(answer, exit_code(answer, request.tools, request.strict))
    if not request.check:
        hosts = {"localhost": _without_text(result)}
        run = run_history.new(["gpuctl", *sys.argv[1:]])
        try:
            choices.remember({} if request.undo else {**remembered, **given})
            run_history.save(replace(run, exit_code=result.exit_code, hosts=hosts))
        except OSError as error:  # the result is worth more than its record
            on_progress(f"this run could not be recorded: {error}")
    return result


KEPT = ("changed", "tools", "files", "undone", "failed_tools", "conflicts")
DEFAULTS: dict[str, choices.Choice] = {"start_tmux": False, "packages": True, "bin": "", "folder": ""}


def _given(request: BootstrapRequest) -> dict[str, choices.Choice]:
    """Return the choices of this run: options and variables that were given."""
    options = {"start_tmux": request.start_tmux, "packages": request.packages}
    return {name: value for name, value in {**options, **_folders()}.items() if value not in (None, "")}


def _require_known_tools(request: BootstrapRequest, doing: str) -> None:
    """Reject unknown tool names before anything is changed."""
    known_tools = names()
    for tool in (*request.tools, *request.remove):
        if tool not in known_tools:
            raise InvalidInput(doing, f"there is no tool {tool}", did_you_mean(tool, known_tools))


def _play(request: BootstrapRequest, settled: dict[str, choices.Choice]) -> ansible.Play:
    options = {name: value for name, value in asdict(request).items() if name != "check"}
    variables = {f"workstation_{name}": value for name, value in {**options, **settled}.items()}
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
        variables[name] = value
    return variables


def _command() -> str:
    """Return the running gpuctl command, if it is installed as one."""
    path = Path(sysconfig.get_path("scripts"), "gpuctl")
    return str(path) if path.is_file() else ""


def _without_text(result: BootstrapResult) -> dict[str, object]:
    """Return the answer without the contents of the user's files, which stay private."""
    files = [{k: v for k, v in f.items() if k not in ("before", "after")} for f in result.answer.get("files", [])]
    return {**result.answer, "files": files}
