"""DCGM's diagnosis of this host's GPUs, which goes on without a listener: started, looked at, and collected.

One at a time; its files are in FOLDER until the result has been collected, or the host reboots.
"""

from __future__ import annotations

import contextlib
import json
import os
import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from .facts.busy import busy
from .host import Host
from .lock import FOLDER as RUN_FOLDER
from .lock import lock

if TYPE_CHECKING:
    from .answer_types import Diagnosis

FOLDER = f"{RUN_FOLDER}/diagnosis"
FILES = ("request", "pid", "output", "errors", "code", "code.new")
UNIT = "gpuctl-diagnosis"
MOST_BYTES = 4 << 20  # of its output; that of eight GPUs has some ten KiB
STARTING_S = 15  # until it has a pid
# Arguments: program, level, folder. Its own streams are closed at once: nobody waits for them.
SCRIPT = """exec </dev/null >/dev/null 2>&1; umask 077; echo $$ >"$3/pid"
"$1" diag -r "$2" -j >"$3/output" 2>"$3/errors"; echo $? >"$3/code.new"; mv "$3/code.new" "$3/code"
"""


class Started(NamedTuple):
    """Record of a diagnosis. `began`: seconds since 1970 by this host's clock; it names the diagnosis."""

    level: int
    began: int
    by: str


def visit(host: Host, request: Mapping[str, Any]) -> Diagnosis:
    """State of the diagnosis, after starting one if the request has `start` and none runs or waits to be collected.

    `level`: 1 to 3. `collected`: `began` of one whose result has arrived, and which is forgotten. `new`: a result
    that waits is older than a change, and does not count. A host in use starts none.
    """
    level, started = int(request["level"]), _started(host)
    if started is not None and request.get("collected") == started.began:
        _forget(host)
        return _answer("none")
    if started is not None:
        now = _state(host, started)
        counts = now["state"] == "done" and started.level == level and not (request.get("start") and request.get("new"))
        if now["state"] == "running" or counts:
            return now
        if not request.get("start"):
            return now
    return _start(host, level, str(request.get("actor", ""))) if request.get("start") else _answer("none")


def _start(host: Host, level: int, by: str) -> Diagnosis:
    program = host.which("dcgmi")
    if program is None:
        return _answer("missing")
    users = busy(host)
    if users:
        return _answer("busy", users=users)
    started = Started(level, int(time.time()), by)
    with lock(host, by):
        _forget(host)
        host.make_private_folder(FOLDER)
        host.replace(f"{FOLDER}/request", json.dumps(started._asdict()), mode=0o600)
        command = ("sh", "-c", SCRIPT, "sh", program, str(level), host.real(FOLDER))
        if host.exists("/run/systemd/system"):  # a unit outlives the session of the login that started it
            result = host.run("systemd-run", f"--unit={UNIT}", "--collect", "--quiet", *command, changes=True, limit=30)
        else:
            result = host.run("setsid", "-f", *command, changes=True, limit=30)
        if not result.ok:
            _forget(host)
            return _answer("lost", error=f"it could not be started: {result.last_line}")
    return _answer("running", started)


def _state(host: Host, started: Started) -> Diagnosis:
    code = (host.read_or_none(f"{FOLDER}/code") or "").strip()
    if code.isdigit():
        try:
            output = host.read_regular(f"{FOLDER}/output", MOST_BYTES) or ""
            errors = host.read_regular(f"{FOLDER}/errors", MOST_BYTES) or ""
        except OverflowError:
            return _answer("done", started, code=int(code), error=f"it printed more than {MOST_BYTES >> 20} MiB")
        return _answer("done", started, code=int(code), output=output, error=errors.strip()[-2000:] or None)
    if _runs(host) or time.time() - started.began < STARTING_S:
        return _answer("running", started)
    return _answer("lost", started, error="it was killed before it ended")


def _runs(host: Host) -> bool:
    """True if the process that waits for the diagnosis is alive: its command line has our folder."""
    pid = (host.read_or_none(f"{FOLDER}/pid") or "").strip()
    if not pid.isdigit():
        return False
    try:
        with open(f"/proc/{pid}/cmdline", "rb") as stream:
            return os.fsencode(host.real(FOLDER)) in stream.read()
    except OSError:
        return False


def _started(host: Host) -> Started | None:
    text = host.read_or_none(f"{FOLDER}/request")
    try:
        return None if text is None else Started(**json.loads(text))
    except (ValueError, TypeError):
        return None


def _forget(host: Host) -> None:
    for name in FILES:
        with contextlib.suppress(NotADirectoryError):
            host.remove(f"{FOLDER}/{name}")
    host.remove_folder(FOLDER)


def _answer(state: str, started: Started | None = None, **more: Any) -> Diagnosis:
    known = dict.fromkeys(("level", "began", "by")) if started is None else started._asdict()
    empty: dict[str, Any] = {"users": [], "code": None, "output": None, "error": None}
    return {"state": state, "now": int(time.time()), **known, **empty, **more}  # type: ignore[typeddict-item]
