"""Carry out one request on a workstation: install or undo, update the shell files, return the outcome."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from .decide import Tools
from .install import Installer
from .machine import Machine
from .model import MISSING, Folders, WorkstationError, program_of
from .packages import Packages
from .record import Record, path_state
from .shell import block, with_block, without_block
from .undo import CONFLICT, remove, undo


def run(request: Mapping[str, Any], check: bool) -> dict[str, Any]:
    """Carry out a request and return plain values.

    `WorkstationError` for an unknown tool or an unreadable record, before anything is changed, and for a record that
    cannot be written.
    """
    folders = folders_of(request)
    try:
        return _run(request, folders, check)
    except OSError as error:
        raise WorkstationError(f"{error.filename or folders.state}: {error.strerror or error}") from error


def _run(request: Mapping[str, Any], folders: Folders, check: bool) -> dict[str, Any]:
    rows = {tool["name"]: tool for tool in request["tools"]}  # a later row of the same name wins
    unknown = [name for name in [*request["only"], *request["remove"]] if name not in rows]
    if unknown:
        raise WorkstationError(f"{', '.join(unknown)}: unknown tool; known are {', '.join(rows)}")
    with _alone(folders.state, check):
        record = Record(folders.state)
        if request["undo"]:
            return _undo_result(undo(record, check, bool(request["force"])))
        if request["remove"]:
            programs = {name: program_of(rows[name]) for name in request["remove"]}
            return _undo_result(remove(record, programs, check, bool(request["force"])))
        selected = [rows[name] for name in rows if not request["only"] or name in request["only"]]
        return _install_result(request, selected, folders, record, check)


def folders_of(request: Mapping[str, Any]) -> Folders:
    """Return the folders: root installs for everybody, a user below the home folder; each can be set."""
    home = os.path.expanduser("~")
    root = os.geteuid() == 0
    state = os.environ.get("XDG_STATE_HOME") or os.path.join(home, ".local/state")
    return Folders(
        home=home,
        bin=request["bin"] or ("/usr/local/bin" if root else os.path.join(home, ".local/bin")),
        tools=request["folder"] or ("/opt/gpuctl/tools" if root else os.path.join(home, ".local/share/gpuctl/tools")),
        state=os.path.join(request["state"] or os.path.join(state, "gpuctl"), "workstation"),
        gpuctl=request["gpuctl"],
    )


def _install_result(
    request: Mapping[str, Any], selected: list[dict[str, Any]], folders: Folders, record: Record, check: bool
) -> dict[str, Any]:
    machine = Machine(folders.home, folders.bin, not request["packages"], check)
    tools = Tools(machine, Packages(machine), Installer(machine, folders, record, request["mirror"]), check)
    outcomes = tools.converge(selected)
    files = _shell_files(request, folders, machine, record, check) if request["shell"] else []
    missing = [o for o in outcomes if o.state == MISSING and (o.required or (request["strict"] and not o.optional))]
    return {
        "changed": any(o.changed for o in outcomes) or any(f["changed"] for f in files),
        "tools": [o.plain() for o in outcomes],
        "files": files,
        "failed_tools": [o.tool for o in missing],
    }


def _shell_files(
    request: Mapping[str, Any], folders: Folders, machine: Machine, record: Record, check: bool
) -> list[dict[str, Any]]:
    login = machine.shell()
    rows = []
    for shell in ("bash", "zsh", "fish"):
        path = machine.startup_file(shell)
        # fish creates its folder when it is used for the first time.
        used = os.path.lexists(os.path.dirname(path) if shell == "fish" else path)
        if login == shell or used:
            # A link into a dotfiles repository stays; its target is written.
            text = block(shell, _from_home(folders), request["start_tmux"])
            rows.append(_shell_file(os.path.realpath(path), text, record, check))
    return rows


def _from_home(folders: Folders) -> str:
    """Return the bin folder relative to $HOME, as one home may serve several machines."""
    below = os.path.relpath(folders.bin, folders.home)
    return folders.bin if below.startswith("..") else f"$HOME/{below}"


def _shell_file(path: str, block_text: str, record: Record, check: bool) -> dict[str, Any]:
    now = path_state(path)
    folder = os.path.dirname(path)
    creatable = path.endswith("/fish/config.fish") and not os.path.lexists(folder)
    if now["kind"] == "other" or not (os.path.isdir(folder) or creatable):
        return {
            "path": path,
            "changed": False,
            "before": "",
            "after": "",
            "why": "it is not a regular file: left alone",
        }
    before = b""
    if now["kind"] == "file":
        with open(path, "rb") as stream:
            before = stream.read()
    text = before.decode("utf-8", "surrogateescape")
    try:
        written = record.blocks(path)
        after = with_block(text, block_text, written)
        if after != text and not check:
            record.make_folders(folder)
            users = without_block(text, written).encode("utf-8", "surrogateescape")
            record.write(path, after.encode("utf-8", "surrogateescape"), now.get("mode", 0o644), users, block_text)
    except (WorkstationError, OSError) as error:
        why = f"it cannot be written: {error.strerror or error}" if isinstance(error, OSError) else str(error)
        return {"path": path, "changed": False, "before": "", "after": "", "why": why}
    return {"path": path, "changed": after != text, "before": text, "after": after, "why": ""}


def _undo_result(rows: list[dict[str, Any]]) -> dict[str, Any]:
    conflicts = [row["path"] for row in rows if row["state"] == CONFLICT]
    return {"changed": any(r["changed"] for r in rows), "tools": [], "undone": rows, "conflicts": conflicts}


@contextmanager
def _alone(state: str, check: bool) -> Iterator[None]:
    """Hold the lock of the record: a second run at the same time waits."""
    if check and not os.path.isdir(state):
        yield
        return
    os.makedirs(state, mode=0o700, exist_ok=True)
    descriptor = os.open(os.path.join(state, "lock"), os.O_RDWR | os.O_CREAT, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)
