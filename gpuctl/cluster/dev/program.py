"""Run one program after another in a pod, each followed in its own thread and confirmed gone before the next."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from gpuctl.cluster.dev import decide
from gpuctl.core.errors import GpuctlError, InvalidInput
from gpuctl.domain.kube_errors import NotFound
from gpuctl.edges.kube.cluster import Request
from gpuctl.remote import attached, detached
from gpuctl.remote.connection import Refused
from gpuctl.remote.model import PodTarget, ProcessExit, Program

GRACE_S = 5.0  # after SIGTERM; the developer waits for every restart
AGAIN_S, ANSWER_S = 1.0, 10.0
UNKNOWN = "?"
GIVE_UP_S = 15.0  # how long a silent pod is retried once the user wants to leave


@dataclass(frozen=True)
class ScriptRun:
    """A script to run, by its path in `folder` of the pod. `debug`: debugger port; 0 for none."""

    script: str
    args: Sequence[str] = ()
    folder: str = "/workspace"
    python: str = "python3"
    debug: int = 0
    wait: bool = False


def argv(script_run: ScriptRun) -> list[str]:
    """Return the command line in the pod. A file that is not Python is executed directly."""
    if not script_run.script.endswith(".py"):
        if script_run.debug:
            hint = "pass a script that ends in .py, or leave --debug out"
            raise InvalidInput(f"debug {script_run.script}", "it is not a Python file", hint)
        return [f"./{script_run.script}", *script_run.args]
    waits = ["--wait-for-client"] if script_run.wait else []
    # From Python 3.11 on the debugger misses breakpoints without it; older versions ignore it.
    debugger = (
        ["-Xfrozen_modules=off", "-m", "debugpy", "--listen", f"127.0.0.1:{script_run.debug}", *waits]
        if script_run.debug
        else []
    )
    return [script_run.python, *debugger, script_run.script, *script_run.args]


def check(target: PodTarget, script_run: ScriptRun) -> None:
    """`GpuctlError` if the pod cannot run the program: no Python, no debugpy, no permission to execute."""
    argv(script_run)
    if not script_run.script.endswith(".py"):
        return
    output: list[bytes] = []
    module = "debugpy" if script_run.debug else "sys"
    done = attached.run(target, Program([script_run.python, "-c", f"import {module}"]), output.append)
    if not done.succeeded:
        last = b"".join(output).decode(errors="replace").strip().rpartition("\n")[2]
        home = "`gpuctl cluster shell NAME -- pip install --user debugpy` lasts as long as the pod"
        hint = f"add debugpy to the image; {home}" if script_run.debug else "--python names another one"
        raise GpuctlError(f"run {script_run.script} in {target.pod}", last or done.description, hint)


@dataclass(frozen=True)
class Callbacks:
    """Receivers of the program's output, of messages for people (never raises), and of events."""

    out: Callable[[bytes], object]
    message: Callable[[str], object]
    post: Callable[[decide.Event], object]


class Runner:
    """Runs the program. `last`: its last exit status; `wrong`: why there is none. `broke`: an unexpected error on our
    side.

    `unsure`: why it is unknown whether the program is gone; "" if it is.
    """

    def __init__(self, target: PodTarget, script_run: ScriptRun, callbacks: Callbacks) -> None:
        self.target, self.script_run, self.callbacks = target, script_run, callbacks
        self.name = f"{script_run.script} in {target.pod}"
        self.last: ProcessExit | None = None
        self.broke: Exception | None = None
        self.wrong = self.unsure = ""
        self.leaving_at = float("inf")
        self._stop = threading.Event()

    def start(self) -> None:
        """Start the program; the result is posted."""
        self._stop, self.last, self.wrong = threading.Event(), None, ""
        threading.Thread(target=self._run, args=[self._stop], daemon=True, name="program").start()

    def end(self) -> None:
        """Ask it to end; the end is posted."""
        self._stop.set()

    def leave(self) -> None:
        """From now on, do not retry a silent pod forever."""
        self.leaving_at = min(self.leaving_at, time.monotonic())

    def _run(self, stop: threading.Event) -> None:
        environment = {"PYTHONUNBUFFERED": "1"}
        program = Program(argv(self.script_run), self.script_run.folder, environment, grace_s=GRACE_S)
        before = self._uid()
        try:
            self._follow(program, stop)
        except Refused as error:  # no such program: a change may add it
            self.wrong = f"it cannot be started: {error.wrong}"
            self.callbacks.message(f"{self.name} cannot be started: {error.wrong}")
            self.callbacks.post(decide.Exited())
        except GpuctlError as error:
            self._lost(program, before, error.wrong)
        except Exception as error:  # noqa: BLE001 - nobody reads what it prints any more, as with `| head`
            self.broke = error
            self.callbacks.post(decide.Leave())
            self._lost(program, before, str(error))

    def _follow(self, program: Program, stop: threading.Event) -> None:
        """Follow the program to its end."""
        self.last = attached.run(self.target, program, self.callbacks.out, stop, self._started)
        self.unsure = _left(self.last.left) or self.unsure
        self.callbacks.message(f"{self.name} {self.last.description}")
        self.callbacks.post(decide.Exited())

    def _started(self) -> None:
        self.callbacks.message(f"{self.name} runs")
        self.callbacks.post(decide.Started())

    def _lost(self, program: Program, before: str, why: str) -> None:
        self.wrong = why
        self.callbacks.message(f"{self.name} has lost its connection: {why}")
        self.callbacks.post(decide.Lost())
        self._clear(program.token, before)
        self.callbacks.post(decide.Cleared())

    def _clear(self, token: str, before: str) -> None:
        """Retry until nothing of it is left in a responding pod, or the pod is another one."""
        reported = False
        while why := self._why_not_gone(token, before):
            if time.monotonic() - self.leaving_at > (GIVE_UP_S if self.unsure else 0):
                return
            if not reported:
                self.callbacks.message(f"{self.target.pod}: {why}; trying again")
                reported = True
            time.sleep(AGAIN_S)

    def _why_not_gone(self, token: str, before: str) -> str:
        """Why nothing can be started there yet; "" once all of it was ended as far as possible."""
        try:
            self.unsure = _left(detached.sweep(self.target, token, GRACE_S))
            return ""
        except GpuctlError as error:
            why = error.wrong
        uid = self._uid()
        replaced = UNKNOWN not in (uid, before) and uid != before  # and with it everything that ran in it
        self.unsure = why if uid and not replaced else ""
        return "" if uid and replaced else why

    def _uid(self) -> str:
        """The pod's uid: "" if no pod has that name, UNKNOWN if that cannot be read."""
        cluster = self.target.cluster
        try:
            path = cluster.path_of(cluster.kind("v1", "Pod"), self.target.pod)
            # One attempt: retrying against an unreachable cluster would keep the user from leaving.
            pod = cluster.once(Request(f"read the pod {self.target.pod}", "GET", path), ANSWER_S)
        except NotFound:
            return ""
        except GpuctlError:
            return UNKNOWN
        return str(pod["metadata"]["uid"])


def _left(names: Sequence[str]) -> str:
    return f"{', '.join(names)} could not be ended" if names else ""
