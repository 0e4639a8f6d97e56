"""One run on a workstation: install or undo, update the shell files, return the outcome."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from .decide import Tools
from .install import Installer
from .machine import Machine
from .model import MISSING, Place, Wrong, program_of
from .packages import Packages
from .record import Record, look
from .shell import block, with_block, without_block
from .undo import CONFLICT, remove, undo


def run(request: Mapping[str, Any], check: bool) -> dict[str, Any]:
    """Carry out a request and return plain values.

    `Wrong` for an unknown tool or an unreadable record, with nothing changed, and if the record cannot be written.
    """
    place = where(request)
    try:
        return _run(request, place, check)
    except OSError as error:
        raise Wrong(f"{error.filename or place.state}: {error.strerror or error}") from error


def _run(request: Mapping[str, Any], place: Place, check: bool) -> dict[str, Any]:
    rows = {tool["name"]: tool for tool in request["tools"]}  # a later row of the same name wins
    unknown = [name for name in [*request["only"], *request["remove"]] if name not in rows]
    if unknown:
        raise Wrong(f"{', '.join(unknown)}: unknown tool; known are {', '.join(rows)}")
    with _alone(place.state, check):
        record = Record(place.state)
        if request["undo"]:
            return _undone(undo(record, check, bool(request["force"])))
        if request["remove"]:
            programs = {name: program_of(rows[name]) for name in request["remove"]}
            return _undone(remove(record, programs, check, bool(request["force"])))
        selected = [rows[name] for name in rows if not request["only"] or name in request["only"]]
        return _brought(request, selected, place, record, check)


def where(request: Mapping[str, Any]) -> Place:
    """Return the folders: root installs for everybody, a user below the home folder; each can be set."""
    home = os.path.expanduser("~")
    root = os.geteuid() == 0
    state = os.environ.get("XDG_STATE_HOME") or os.path.join(home, ".local/state")
    return Place(
        home=home,
        bin=request["bin"] or ("/usr/local/bin" if root else os.path.join(home, ".local/bin")),
        tools=request["folder"] or ("/opt/gpuctl/tools" if root else os.path.join(home, ".local/share/gpuctl/tools")),
        state=os.path.join(request["state"] or os.path.join(state, "gpuctl"), "workstation"),
        gpuctl=request["gpuctl"],
    )


def _brought(
    request: Mapping[str, Any], selected: list[dict[str, Any]], place: Place, record: Record, check: bool
) -> dict[str, Any]:
    machine = Machine(place.home, place.bin, not request["packages"], check)
    tools = Tools(machine, Packages(machine), Installer(machine, place, record, request["mirror"]), check)
    outcomes = tools.bring(selected)
    files = _shell_files(request, place, machine, record, check) if request["shell"] else []
    missing = [o for o in outcomes if o.state == MISSING and (o.required or (request["strict"] and not o.optional))]
    return {
        "changed": any(o.changed for o in outcomes) or any(f["changed"] for f in files),
        "tools": [o.plain() for o in outcomes],
        "files": files,
        "failed_tools": [o.tool for o in missing],
    }


def _shell_files(
    request: Mapping[str, Any], place: Place, machine: Machine, record: Record, check: bool
) -> list[dict[str, Any]]:
    login = machine.shell()
    rows = []
    for shell in ("bash", "zsh"):
        path = os.path.join(machine.dots(shell), f".{shell}rc")
        if login == shell or os.path.lexists(path):
            # A link into a dotfiles repository stays; its target is written.
            rows.append(
                _shell_file(
                    os.path.realpath(path), block(shell, _from_home(place), request["start_tmux"]), record, check
                )
            )
    return rows


def _from_home(place: Place) -> str:
    """Return the bin folder relative to $HOME, as one home may serve several machines."""
    below = os.path.relpath(place.bin, place.home)
    return place.bin if below.startswith("..") else f"$HOME/{below}"


def _shell_file(path: str, block_text: str, record: Record, check: bool) -> dict[str, Any]:
    now = look(path)
    if now["kind"] == "other" or not os.path.isdir(os.path.dirname(path)):
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
            users = without_block(text, written).encode("utf-8", "surrogateescape")
            record.write(path, after.encode("utf-8", "surrogateescape"), now.get("mode", 0o644), users, block_text)
    except (Wrong, OSError) as error:
        why = f"it cannot be written: {error.strerror or error}" if isinstance(error, OSError) else str(error)
        return {"path": path, "changed": False, "before": "", "after": "", "why": why}
    return {"path": path, "changed": after != text, "before": text, "after": after, "why": ""}


def _undone(rows: list[dict[str, Any]]) -> dict[str, Any]:
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
