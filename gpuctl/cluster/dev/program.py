"""One program after the other in a pod, each heard in a thread of its own, and gone for certain before the next."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from gpuctl.cluster.dev import decide
from gpuctl.core.errors import GpuctlError, InvalidInput
from gpuctl.edges.kube.cluster import Request
from gpuctl.edges.kube.errors import NotThere
from gpuctl.remote import attached, detached
from gpuctl.remote.connection import Refused
from gpuctl.remote.model import Ended, Program, There

GRACE_S = 5.0  # after SIGTERM; who writes a program waits for each end of it
AGAIN_S, ANSWER_S = 1.0, 10.0
UNKNOWN = "?"
GIVE_UP_S = 15.0  # once the user wants to leave: so long a pod that does not answer is asked


@dataclass(frozen=True)
class Wanted:
    """What to run: a script by its path in `folder` of the pod. `debug`: its port; 0 without a debugger."""

    script: str
    words: Sequence[str] = ()
    folder: str = "/workspace"
    python: str = "python3"
    debug: int = 0
    wait: bool = False


def argv(wanted: Wanted) -> list[str]:
    """The command line in the pod. What is no Python runs by itself."""
    if not wanted.script.endswith(".py"):
        if wanted.debug:
            hint = "give a script that ends in .py, or leave --debug out"
            raise InvalidInput(f"debug {wanted.script}", "it is no Python", hint)
        return [f"./{wanted.script}", *wanted.words]
    waits = ["--wait-for-client"] if wanted.wait else []
    # Else the debugger misses breakpoints from Python 3.11 on; older ones do not mind.
    debugger = (
        ["-Xfrozen_modules=off", "-m", "debugpy", "--listen", f"127.0.0.1:{wanted.debug}", *waits]
        if wanted.debug
        else []
    )
    return [wanted.python, *debugger, wanted.script, *wanted.words]


def check(there: There, wanted: Wanted) -> None:
    """`GpuctlError` where the pod cannot run such a program: no Python, no debugpy, no right to run anything."""
    argv(wanted)
    if not wanted.script.endswith(".py"):
        return
    said: list[bytes] = []
    module = "debugpy" if wanted.debug else "sys"
    done = attached.run(there, Program([wanted.python, "-c", f"import {module}"]), said.append)
    if not done.well:
        last = b"".join(said).decode(errors="replace").strip().rpartition("\n")[2]
        home = "`gpuctl cluster shell NAME -- pip install --user debugpy` lasts as long as the pod"
        hint = f"add debugpy to the image; {home}" if wanted.debug else "--python names another one"
        raise GpuctlError(f"run {wanted.script} in {there.pod}", last or done.words, hint)


@dataclass(frozen=True)
class Ways:
    """Where it goes: what the program prints, what people are told (which never fails), and what happened."""

    out: Callable[[bytes], object]
    say: Callable[[str], object]
    post: Callable[[decide.Event], object]


class Runner:
    """`last`: how it ended last; `wrong`: why there is no such end. `broke`: what nobody expected on this side.

    `unsure`: why nobody knows whether it is gone; "" where it is.
    """

    def __init__(self, there: There, wanted: Wanted, ways: Ways) -> None:
        self.there, self.wanted, self.ways = there, wanted, ways
        self.name = f"{wanted.script} in {there.pod}"
        self.last: Ended | None = None
        self.broke: Exception | None = None
        self.wrong = self.unsure = ""
        self.leaving_at = float("inf")
        self._stop = threading.Event()

    def start(self) -> None:
        """Begin it; how that goes is posted."""
        self._stop, self.last, self.wrong = threading.Event(), None, ""
        threading.Thread(target=self._run, args=[self._stop], daemon=True, name="program").start()

    def end(self) -> None:
        """Tell it to end; that it did is posted."""
        self._stop.set()

    def leave(self) -> None:
        """From now on a pod that does not answer is not asked for ever."""
        self.leaving_at = min(self.leaving_at, time.monotonic())

    def _run(self, stop: threading.Event) -> None:
        environment = {"PYTHONUNBUFFERED": "1"}
        program = Program(argv(self.wanted), self.wanted.folder, environment, grace_s=GRACE_S)
        before = self._uid()
        try:
            self._hear(program, stop)
        except Refused as error:  # there is no such program: a change may bring it
            self.wrong = f"it cannot be started: {error.wrong}"
            self.ways.say(f"{self.name} cannot be started: {error.wrong}")
            self.ways.post(decide.Ended())
        except GpuctlError as error:
            self._lost(program, before, error.wrong)
        except Exception as error:  # noqa: BLE001 - nobody reads what it prints any more, as with `| head`
            self.broke = error
            self.ways.post(decide.Leave())
            self._lost(program, before, str(error))

    def _hear(self, program: Program, stop: threading.Event) -> None:
        """To its end."""
        self.last = attached.run(self.there, program, self.ways.out, stop, self._started)
        self.unsure = _left(self.last.left) or self.unsure
        self.ways.say(f"{self.name} {self.last.words}")
        self.ways.post(decide.Ended())

    def _started(self) -> None:
        self.ways.say(f"{self.name} runs")
        self.ways.post(decide.Started())

    def _lost(self, program: Program, before: str, why: str) -> None:
        self.wrong = why
        self.ways.say(f"{self.name} is not heard any more: {why}")
        self.ways.post(decide.Lost())
        self._clear(program.token, before)
        self.ways.post(decide.Cleared())

    def _clear(self, token: str, before: str) -> None:
        """Until nothing of it is left in a pod that answers, or the pod is another one."""
        told = False
        while why := self._why_not_gone(token, before):
            if time.monotonic() - self.leaving_at > (GIVE_UP_S if self.unsure else 0):
                return
            if not told:
                self.ways.say(f"{self.there.pod}: {why}; trying again")
                told = True
            time.sleep(AGAIN_S)

    def _why_not_gone(self, token: str, before: str) -> str:
        """Why nothing can be begun there yet; "" where all of it was ended as far as that can be done."""
        try:
            self.unsure = _left(detached.sweep(self.there, token, GRACE_S))
            return ""
        except GpuctlError as error:
            why = error.wrong
        now = self._uid()
        went = UNKNOWN not in (now, before) and now != before  # and with it all that ran in it
        self.unsure = why if now and not went else ""
        return "" if now and went else why

    def _uid(self) -> str:
        """Which pod it is: "" where there is none of that name, UNKNOWN where nobody can say."""
        cluster = self.there.cluster
        try:
            path = cluster.path_of(cluster.kind("v1", "Pod"), self.there.pod)
            # Once: who is patient with a cluster that is away keeps the user from leaving.
            found = cluster.once(Request(f"read the pod {self.there.pod}", "GET", path), ANSWER_S)
        except NotThere:
            return ""
        except GpuctlError:
            return UNKNOWN
        return str(found["metadata"]["uid"])


def _left(names: Sequence[str]) -> str:
    return f"{', '.join(names)} could not be ended" if names else ""
