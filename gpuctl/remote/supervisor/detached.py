"""Programs that keep running without a listener: a supervisor process stays with each and stores its output.

RUNS/NAME/ holds `state` (JSON) and the log. RUNS/lock is held while a program runs, however it ends: one at a time.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import select
import shutil
import signal
import time
from pathlib import Path
from typing import Any

from ansible_collections.gpuctl.fleet.plugins.module_utils.launch import process_tree

from gpuctl.remote.supervisor import log, protocol
from gpuctl.remote.supervisor.process import Child, StartFailed, environment_entry
from gpuctl.remote.supervisor.protocol import Reader, Writer

KEPT_RUNS = 3  # number of runs to keep, including the one that starts
SLICE_S = 0.2
LOCK_TRIES = 5
FOLLOW_S = 0.1
PART = 1 << 18
STOP_S = 20.0  # beyond the grace time
COMMAND_CHARS = 4096  # stored characters of a command line; it is shortened further only after secrets are redacted


class Refused(Exception):
    """An order that cannot be carried out; `reason` is a code for programs."""

    def __init__(self, reason: str, wrong: str) -> None:
        super().__init__(wrong)
        self.reason = reason


# ---- the supervisor -------------------------------------------------------------------------------------------------


def start(order: dict[str, Any], _: Reader, writer: Writer) -> None:
    """Start a program that keeps running after this connection."""
    runs = Path(order["runs"])
    folder = runs / order["name"]
    try:
        runs.mkdir(mode=0o700, parents=True, exist_ok=True)
        lock = _locked(runs)
        _delete_old(runs)
        folder.mkdir(mode=0o700)
        for name, content in order["files"].items():
            (folder / name).write_text(content)
    except OSError as error:
        raise StartFailed(f"{folder} cannot be written: {error.strerror or error}") from error
    started, report = os.pipe()
    if os.fork() == 0:
        _run_supervisor(order, folder, report)
    os.close(report)
    os.close(lock)
    answer = json.loads(_read_all(started))
    if "wrong" in answer:
        raise StartFailed(answer["wrong"])
    writer.send(protocol.STARTED, answer)


def _locked(runs: Path) -> int:
    """Take the lock. A reader of the state holds it for a moment, too."""
    lock = os.open(runs / "lock", os.O_RDWR | os.O_CREAT, 0o600)
    for _ in range(LOCK_TRIES):
        with contextlib.suppress(OSError):
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return lock
        time.sleep(SLICE_S)
    raise Refused("busy", _describe_holder(runs))


def _run_supervisor(order: dict[str, Any], folder: Path, report: int) -> None:
    """The process that stays with the program; never returns."""
    try:
        os.setsid()
        null = os.open(os.devnull, os.O_RDWR)
        for number in (0, 1, 2):
            os.dup2(null, number)
        signals: list[int] = []
        signal.signal(signal.SIGTERM, lambda number, _: signals.append(number))
        signal.signal(signal.SIGHUP, signal.SIG_IGN)
        state = {key: order[key] for key in ("name", "token", "argv", "actor", "about", "grace_s")}
        state.update(began=time.time(), supervisor=os.getpid(), exit=None)
        try:
            child = _start_child(order, folder, state)
        except StartFailed as error:
            shutil.rmtree(folder, ignore_errors=True)
            os.write(report, json.dumps({"wrong": str(error)}).encode())
            return
        os.write(report, json.dumps({"pid": child.pid}).encode())
        os.close(report)
        _supervise(child, folder, state, signals)
    finally:
        os._exit(0)


def _start_child(order: dict[str, Any], folder: Path, state: dict[str, Any]) -> Child:
    """Write the state first: a program without a record would never be found."""
    try:
        _replace_state(folder, state)
    except OSError as error:
        raise StartFailed(f"{folder} cannot be written: {error.strerror or error}") from error
    try:
        return Child(order)
    except OSError as error:
        raise StartFailed(f"cannot start a process there: {error.strerror or error}") from error


def _supervise(child: Child, folder: Path, state: dict[str, Any], signals: list[int]) -> None:
    writer, printing = log.Writer(folder), True
    while not child.is_over():
        if signals:
            child.terminate()
        if printing and child.has_printed(SLICE_S):
            part = child.read()
            printing = bool(part)
            writer.add(part)
        elif not printing:
            time.sleep(SLICE_S)
    finished_at = time.time()
    status, rest = child.finish()
    writer.add(rest)
    _try_write(folder, dict(state, exit=dict(status, at=finished_at, unlogged=writer.lost)))


def _delete_old(runs: Path) -> None:
    """Delete all but the newest runs."""
    folders = sorted((path for path in runs.iterdir() if path.is_dir()), key=lambda path: path.stat().st_mtime)
    for path in folders[: max(0, len(folders) - KEPT_RUNS + 1)]:
        shutil.rmtree(path, ignore_errors=True)


def _read_all(source: int) -> bytes:
    data = b""
    while True:
        part = os.read(source, PART)
        if not part:
            os.close(source)
            return data or b'{"wrong": "our process in the pod ended immediately"}'
        data += part


def _try_write(folder: Path, state: dict[str, Any]) -> None:
    """Replace the state or leave it as it was; a full disk must not end a training."""
    with contextlib.suppress(OSError):
        _replace_state(folder, state)


def _replace_state(folder: Path, state: dict[str, Any]) -> None:
    part = folder / "state.part"
    part.write_text(json.dumps(state))
    part.replace(folder / "state")


# ---- queries --------------------------------------------------------------------------------------------------------


def states(runs: Path) -> list[dict[str, Any]]:
    """Return all recorded runs, oldest first. One that is neither `running` nor has an `exit` lost its supervisor."""
    locked = _is_locked(runs)
    records = []
    for path in runs.glob("*/state"):
        with contextlib.suppress(OSError, ValueError):
            records.append(json.loads(path.read_text()))
    records.sort(key=lambda state: state["began"])
    for state in records:
        state["running"] = locked and state is records[-1] and not state["exit"]
    return records


def inspect(order: dict[str, Any], _: Reader, writer: Writer) -> None:
    """Report all recorded runs and the marked processes in this pod."""
    writer.send(protocol.ANSWER, {"runs": states(Path(order["runs"])), "processes": marked_processes()})


def marked_processes() -> dict[str, str]:
    """Return the tokens of all detached programs here, each with the command line of its newest process.

    Some are not runs of this pod: ssh started them here for a run of another pod.
    """
    prefix, commands = environment_entry(protocol.DETACHED), {}
    for pid in sorted(process_tree.process_ids()):
        for variable_text in process_tree.environment(pid).split(b"\0"):
            if variable_text.startswith(prefix):
                command = process_tree.read(f"{pid}/cmdline").replace(b"\0", b" ").decode(errors="replace").strip()
                commands[variable_text.partition(b"=")[2].decode(errors="replace")] = command[:COMMAND_CHARS]
    return commands


def follow(order: dict[str, Any], reader: Reader, writer: Writer) -> None:
    """Send a run's output from an offset on, and its exit status."""
    runs, offset = Path(order["runs"]), int(order["offset"])
    while not reader.should_end():
        # Read before the log, so that the log then includes the last output.
        state = _state(runs, order["name"])
        offset, complete = _send_log(runs / order["name"], offset, writer)
        if complete and not state["running"]:
            writer.send(protocol.ENDED, dict(state, offset=offset))
            return
        writer.heartbeat()
        writer.flush()
        select.select([reader.source], [writer.out] if writer.waiting else [], [], FOLLOW_S)


def _send_log(folder: Path, offset: int, writer: Writer) -> tuple[int, bool]:
    """Send new output; return the offset reached and whether that was all."""
    while writer.has_room:
        start_offset, data = log.read(folder, offset, protocol.PART)
        if start_offset != offset:
            writer.send(protocol.ANSWER, {"skipped": start_offset - offset})
        if not data:
            return start_offset, True
        writer.raw(protocol.OUT, data)
        offset = start_offset + len(data)
    return offset, False


def stop(order: dict[str, Any], _: Reader, writer: Writer) -> None:
    """End a run; report its exit status once all of its processes are gone."""
    runs, end = Path(order["runs"]), None
    state = _state(runs, order["name"])
    while state["running"]:
        if end is None:
            end = time.monotonic() + state["grace_s"] + STOP_S
            with contextlib.suppress(OSError):
                os.kill(state["supervisor"], signal.SIGTERM)
        if time.monotonic() > end:
            break
        writer.heartbeat()
        writer.flush()
        time.sleep(FOLLOW_S)
        state = _state(runs, order["name"])
    left = [] if state["exit"] else process_tree.end(environment_entry(state["token"]), 10.0)
    status = state["exit"] or {
        "code": None,
        "signal": None,
        "requested": True,
        "left": [str(process["name"]) for process in left],
    }
    writer.send(protocol.ENDED, dict(state, exit=status))


def _state(runs: Path, name: str) -> dict[str, Any]:
    record = next((state for state in states(runs) if state["name"] == name), None)
    if record is None:
        raise Refused("none", f"the run {name} no longer exists here")
    return record


def _is_locked(runs: Path) -> bool:
    """Return whether a supervisor is alive: the lock is released with it, however it ends."""
    try:
        lock = os.open(runs / "lock", os.O_RDWR)
    except OSError:
        return False
    try:
        fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except OSError:
        return True
    finally:
        os.close(lock)
    return False


def _describe_holder(runs: Path) -> str:
    """Describe the running program and its owner."""
    current = next((state for state in states(runs) if state["running"]), None)
    return (
        f"{current['about']} of {current['actor']} is running there"
        if current
        else "another one is starting there at this moment"
    )
