"""Programs that go on when nobody listens: a process of ours stays with each, and keeps what it prints.

RUNS/NAME/ has `state` (JSON) and the log. RUNS/lock is held as long as one runs, whatever ends it: one at a time.
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
from gpuctl.remote.supervisor.process import Child, NoStart, variable
from gpuctl.remote.supervisor.protocol import Ear, Voice

KEPT = 3  # runs, with the one that begins
SLICE_S = 0.2
LOCK_TRIES = 5
FOLLOW_S = 0.1
PART = 1 << 18
STOP_S = 20.0  # beyond the grace time
COMMAND = 4096  # letters of a command line: it is cut for people only where secrets have been taken out


class Refused(Exception):
    """What was asked cannot be done; `word` is for programs."""

    def __init__(self, word: str, wrong: str) -> None:
        super().__init__(wrong)
        self.word = word


# ---- the keeper -----------------------------------------------------------------------------------------------------


def keep(order: dict[str, Any], _: Ear, voice: Voice) -> None:
    """Begin a program that goes on without us."""
    runs = Path(order["runs"])
    folder = runs / order["name"]
    try:
        runs.mkdir(mode=0o700, parents=True, exist_ok=True)
        lock = _locked(runs)
        _forget_old(runs)
        folder.mkdir(mode=0o700)
        for name, content in order["files"].items():
            (folder / name).write_text(content)
    except OSError as error:
        raise NoStart(f"{folder} cannot be written: {error.strerror or error}") from error
    told, tell = os.pipe()
    if os.fork() == 0:
        _be_keeper(order, folder, tell)
    os.close(tell)
    os.close(lock)
    found = json.loads(_all_of(told))
    if "wrong" in found:
        raise NoStart(found["wrong"])
    voice.say(protocol.STARTED, found)


def _locked(runs: Path) -> int:
    """The lock, taken. Who only asks for a state holds it for a moment, too."""
    lock = os.open(runs / "lock", os.O_RDWR | os.O_CREAT, 0o600)
    for _ in range(LOCK_TRIES):
        with contextlib.suppress(OSError):
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return lock
        time.sleep(SLICE_S)
    raise Refused("busy", _whose(runs))


def _be_keeper(order: dict[str, Any], folder: Path, tell: int) -> None:
    """The process that stays; it never returns."""
    try:
        os.setsid()
        nowhere = os.open(os.devnull, os.O_RDWR)
        for number in (0, 1, 2):
            os.dup2(nowhere, number)
        ends: list[int] = []
        signal.signal(signal.SIGTERM, lambda number, _: ends.append(number))
        signal.signal(signal.SIGHUP, signal.SIG_IGN)
        told = {key: order[key] for key in ("name", "token", "argv", "by", "about", "grace_s")}
        told.update(began=time.time(), keeper=os.getpid(), ended=None)
        try:
            child = _begun(order, folder, told)
        except NoStart as error:
            shutil.rmtree(folder, ignore_errors=True)
            os.write(tell, json.dumps({"wrong": str(error)}).encode())
            return
        os.write(tell, json.dumps({"pid": child.pid}).encode())
        os.close(tell)
        _stay(child, folder, told, ends)
    finally:
        os._exit(0)


def _begun(order: dict[str, Any], folder: Path, told: dict[str, Any]) -> Child:
    """Written down first: nobody would ever find a program of which nothing is."""
    try:
        _write_whole(folder, told)
    except OSError as error:
        raise NoStart(f"{folder} cannot be written: {error.strerror or error}") from error
    try:
        return Child(order)
    except OSError as error:
        raise NoStart(f"no process can be begun there: {error.strerror or error}") from error


def _stay(child: Child, folder: Path, told: dict[str, Any], ends: list[int]) -> None:
    writer, printing = log.Writer(folder), True
    while not child.is_over():
        if ends:
            child.tell_to_end()
        if printing and child.has_printed(SLICE_S):
            part = child.read()
            printing = bool(part)
            writer.add(part)
        elif not printing:
            time.sleep(SLICE_S)
    at = time.time()
    ended, rest = child.finish()
    writer.add(rest)
    _write(folder, dict(told, ended=dict(ended, at=at, unlogged=writer.lost)))


def _forget_old(runs: Path) -> None:
    """Of what ran before only the newest stay."""
    found = sorted((path for path in runs.iterdir() if path.is_dir()), key=lambda path: path.stat().st_mtime)
    for path in found[: max(0, len(found) - KEPT + 1)]:
        shutil.rmtree(path, ignore_errors=True)


def _all_of(source: int) -> bytes:
    found = b""
    while True:
        part = os.read(source, PART)
        if not part:
            os.close(source)
            return found or b'{"wrong": "our process there ended at once"}'
        found += part


def _write(folder: Path, told: dict[str, Any]) -> None:
    """The state, whole or as it was; a full disk must not end a training."""
    with contextlib.suppress(OSError):
        _write_whole(folder, told)


def _write_whole(folder: Path, told: dict[str, Any]) -> None:
    part = folder / "state.part"
    part.write_text(json.dumps(told))
    part.replace(folder / "state")


# ---- who asks afterwards --------------------------------------------------------------------------------------------


def states(runs: Path) -> list[dict[str, Any]]:
    """All that is known of runs, oldest first. One that is neither `running` nor `ended` has lost its keeper."""
    held = _is_held(runs)
    found = []
    for path in runs.glob("*/state"):
        with contextlib.suppress(OSError, ValueError):
            found.append(json.loads(path.read_text()))
    found.sort(key=lambda state: state["began"])
    for state in found:
        state["running"] = held and state is found[-1] and not state["ended"]
    return found


def look(order: dict[str, Any], _: Ear, voice: Voice) -> None:
    """Say what is known of all runs, and what lives here of any."""
    voice.say(protocol.ANSWER, {"runs": states(Path(order["runs"])), "living": living()})


def living() -> dict[str, str]:
    """The tokens of all that goes on here without us, each with the command line of its newest process.

    Some of it is no run of this pod: ssh began it here for another one.
    """
    begin, found = variable(protocol.KEPT), {}
    for pid in sorted(process_tree.numbers()):
        for each in process_tree.environment(pid).split(b"\0"):
            if each.startswith(begin):
                command = process_tree.read(f"{pid}/cmdline").replace(b"\0", b" ").decode(errors="replace").strip()
                found[each.partition(b"=")[2].decode(errors="replace")] = command[:COMMAND]
    return found


def follow(order: dict[str, Any], ear: Ear, voice: Voice) -> None:
    """Say what a run prints, from so many bytes on, and how it ended."""
    runs, offset = Path(order["runs"]), int(order["offset"])
    while not ear.told_to_end():
        # Asked before the log is read: what it printed last is then in the log.
        state = _state(runs, order["name"])
        offset, all_said = _say_log(runs / order["name"], offset, voice)
        if all_said and not state["running"]:
            voice.say(protocol.ENDED, dict(state, offset=offset))
            return
        voice.beat()
        voice.pass_on()
        select.select([ear.source], [voice.out] if voice.waiting else [], [], FOLLOW_S)


def _say_log(folder: Path, offset: int, voice: Voice) -> tuple[int, bool]:
    """How far it was said by now, and whether that is all there is."""
    while voice.has_room:
        begins, data = log.read(folder, offset, protocol.PART)
        if begins != offset:
            voice.say(protocol.ANSWER, {"skipped": begins - offset})
        if not data:
            return begins, True
        voice.raw(protocol.OUT, data)
        offset = begins + len(data)
    return offset, False


def stop(order: dict[str, Any], _: Ear, voice: Voice) -> None:
    """End a run, and say how it ended once all of it is gone."""
    runs, end = Path(order["runs"]), None
    state = _state(runs, order["name"])
    while state["running"]:
        if end is None:
            end = time.monotonic() + state["grace_s"] + STOP_S
            with contextlib.suppress(OSError):
                os.kill(state["keeper"], signal.SIGTERM)
        if time.monotonic() > end:
            break
        voice.beat()
        voice.pass_on()
        time.sleep(FOLLOW_S)
        state = _state(runs, order["name"])
    left = [] if state["ended"] else process_tree.end(variable(state["token"]), 10.0)
    ended = state["ended"] or {
        "code": None,
        "signal": None,
        "asked": True,
        "left": [str(each["name"]) for each in left],
    }
    voice.say(protocol.ENDED, dict(state, ended=ended))


def _state(runs: Path, name: str) -> dict[str, Any]:
    found = next((each for each in states(runs) if each["name"] == name), None)
    if found is None:
        raise Refused("none", f"there is no run {name} here any more")
    return found


def _is_held(runs: Path) -> bool:
    """Whether a keeper is there: the lock goes with it, however it ends."""
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


def _whose(runs: Path) -> str:
    """Who runs what there."""
    found = next((each for each in states(runs) if each["running"]), None)
    return f"{found['about']} of {found['by']} runs there" if found else "another one begins there at this moment"
