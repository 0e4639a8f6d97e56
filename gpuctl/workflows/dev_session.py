"""Development session: sync a folder to all pods, run a program in one of them, forward its debug port."""

from __future__ import annotations

import contextlib
import os
import queue
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Protocol

from gpuctl.cluster import pod_selection
from gpuctl.cluster.access import PodAccess, open_lasting_access
from gpuctl.cluster.dev import decide, program
from gpuctl.cluster.dev.decide import Action, Event, State
from gpuctl.cluster.dev.program import Callbacks, Runner, ScriptRun
from gpuctl.cluster.dev.request import DevRequest
from gpuctl.cluster.environment import CONTAINER
from gpuctl.cluster.sync import pods, watch
from gpuctl.cluster.sync import targets as places
from gpuctl.cluster.sync.flow import PodConnector
from gpuctl.cluster.sync.local import Local
from gpuctl.cluster.sync.model import Outcome
from gpuctl.cluster.sync.push import SyncRequest
from gpuctl.cluster.sync.targets import Target
from gpuctl.core.errors import GpuctlError, InvalidInput
from gpuctl.kube.forward import flow as forward
from gpuctl.kube.forward.state_machine import Line
from gpuctl.kube.forward.state_machine import State as ForwardState
from gpuctl.kube.forward.table import as_line
from gpuctl.remote.model import PodTarget, ProcessExit
from gpuctl.workflows.forward import PortRequest, addresses, request
from gpuctl.workflows.sync import local_folder, pod_folder

TICK_S = 0.05
PATIENT_S = 3.0  # a change that has not reached all pods after this long is reported
MOST = 3


class Screen(watch.ProgressListener, Protocol):
    """Shows progress; called from several threads."""

    def out(self, part: bytes) -> None:
        """Output of the program; OSError if nobody reads it."""

    def message(self, text: str) -> None:
        """A message of gpuctl; never raises."""


@dataclass(frozen=True)
class Session:
    """Inputs of a session. `settings.listener` is replaced: sync events go to `screen` and to the decisions."""

    access: PodAccess
    target: PodTarget
    script_run: ScriptRun
    settings: watch.Settings
    targets: Sequence[Target]
    rank: int
    restarts: bool
    screen: Screen


def prepare(request: DevRequest, screen: Screen) -> Session:
    """Check the request, find the pods, and check that the program can run; nothing is started.

    `InvalidInput` before a cluster is contacted if the script or a folder is wrong.
    """
    folder = request.folder
    local, target = local_folder(folder), pod_folder(folder.target)
    script = script_in(local, request.script)
    access = open_lasting_access(request.selection)
    rank, debug = request.rank or 0, request.debug or request.wait
    port = access.env.cluster.ports.debug if debug else 0
    script_run = ScriptRun(script, request.args, target, folder.python, port, request.wait)
    doing = f"run {script} on {access.env.name}"
    pod = pod_selection.pod_of_rank(access.cluster, access.env, doing, rank)
    pod_selection.check(pod, doing)
    targets = pods.labelled(access.cluster, access.env.selector, target)
    connector = PodConnector(access.cluster, folder.python)
    settings = watch.Settings(connector, local, SyncRequest(target, folder.force), screen)
    pod_target = PodTarget(access.cluster, pod_selection.name_of(pod), CONTAINER, python=folder.python)
    program.check(pod_target, script_run)
    return Session(access, pod_target, script_run, settings, targets, rank, not request.no_restart, screen)


def script_in(local: Local, text: str) -> str:
    """Return the script's path in the folder; `InvalidInput` if the pods would not receive it."""
    doing = f"run {text}"
    path = Path(text)
    inside = Path(os.path.normpath(path if path.is_absolute() else local.source / path))
    if not inside.is_relative_to(local.source):
        raise InvalidInput(doing, f"it is not in {local.source}", "use a path inside the synced folder")
    name = str(PurePosixPath(inside.relative_to(local.source)))
    if not inside.is_file():
        hint = "--source names the folder of the project"
        raise InvalidInput(doing, f"{local.source} has no such file", hint)
    if name not in local.scanned.items:
        raise InvalidInput(doing, "it is excluded from the sync", "check .gpuctlignore and --exclude")
    return name


def run(session: Session, interrupted: Callable[[], bool]) -> ProcessExit | None:
    """Run until `interrupted` (None), or without restarts until the program ends (its exit status).

    Nothing stays in the pods. `GpuctlError` if the session cannot continue, or if the program may still run.
    """
    events: queue.SimpleQueue[Event] = queue.SimpleQueue()
    screen = session.screen
    runner = Runner(session.target, session.script_run, Callbacks(screen.out, screen.message, events.put))
    groups = places.groups(session.targets)
    state = decide.begin(len(groups), session.script_run.script, session.restarts, time.monotonic())
    loop = Loop(runner, groups, screen)
    with _beside(session, events.put) as beside:
        action = Action.NOTHING
        while action is not Action.LEAVE:
            state, action = decide.step(state, _next(events, interrupted, state), time.monotonic())
            loop.carry_out(state, action)
        over = [future for future in beside if future.done()]
    if runner.unsure:
        wrong = f"{session.target.pod}: {runner.unsure}"
        raise GpuctlError(
            "confirm that the program is gone", wrong, "a pod without a connection ends it after a minute"
        )
    if interrupted():
        return None
    return end_of(runner, over)


def end_of(runner: Runner, over: Sequence[Future[None]]) -> ProcessExit:
    """Return the program's exit status; raise the error that ended the session before it."""
    for future in over:
        future.result()
    if runner.broke is not None:
        raise runner.broke
    if runner.last is None:
        raise GpuctlError(f"run {runner.name} to its end", runner.wrong or "it never started")
    return runner.last


def _next(events: queue.SimpleQueue[Event], interrupted: Callable[[], bool], state: State) -> Event:
    if interrupted() and not state.leaving:
        return decide.Leave()
    with contextlib.suppress(queue.Empty):
        return events.get(timeout=TICK_S)
    return decide.Tick()


class Loop:
    """Carries out decisions and reports them."""

    def __init__(self, runner: Runner, groups: Sequence[Sequence[Target]], screen: Screen) -> None:
        self.runner, self.groups, self.screen = runner, groups, screen
        self.reported = ""

    def carry_out(self, state: State, action: Action) -> None:
        if state.leaving:
            self.runner.leave()
        if action is Action.START:
            self.runner.start()
        elif action is Action.STOP:
            changed = sorted(state.owing)
            why = "ending the program" if state.leaving else f"restart: {_few(changed)} changed"
            self.screen.message(why)
            self.runner.end()
        self._report_waiting(state)

    def _report_waiting(self, state: State) -> None:
        """Report once why the program is not started although a file changed."""
        late = time.monotonic() - state.at > PATIENT_S and state.newest > state.ran and not state.leaving
        text = self._why(state) if late else ""
        if text and text != self.reported:
            self.screen.message(text)
        self.reported = text

    def _why(self, state: State) -> str:
        if missing := [self.groups[folder][0].pod for folder in decide.behind(state)]:
            return f"waiting for {_few(missing)} to receive the change"
        lacking = decide.refused(state).items()
        reasons = [f"{self.groups[folder][0].pod} did not take {_few(sorted(paths))}" for folder, paths in lacking]
        return f"not started: {_few(reasons)}" if reasons else ""


def _few(names: Sequence[str]) -> str:
    more = f" and {len(names) - MOST} more" if len(names) > MOST else ""
    return ", ".join(names[:MOST]) + more


# ---- beside the program ---------------------------------------------------------------------------------------------


@contextlib.contextmanager
def _beside(session: Session, post: Callable[[Event], object]) -> Iterator[list[Future[None]]]:
    """Run the sync and, with a debugger, its port forward; if one of them ends, so does the session."""
    stopped = threading.Event()
    group_of = {pod.pod: n for n, group in enumerate(places.groups(session.targets)) for pod in group}
    settings = watch.Settings(
        session.settings.connector,
        session.settings.local,
        session.settings.request,
        SyncEvents(session.screen, group_of, post),
    )
    with ThreadPoolExecutor(2) as pool:
        running = []
        try:
            if session.script_run.debug:
                port = PortRequest(session.script_run.debug, name="debug")
                forward_request = request(session.access, [port], session.rank)
                running.append(
                    pool.submit(forward.maintain, forward_request, DebugAddress(session.screen, port).show, stopped)
                )
            running.append(pool.submit(watch.watch, settings, session.targets))
            for job in running:
                job.add_done_callback(lambda _: post(decide.Leave()))
            yield running
        finally:
            stopped.set()
            session.settings.connector.stop.set()


class SyncEvents:
    """Passes sync events on to the screen and to the decisions."""

    def __init__(self, screen: Screen, group_of: Mapping[str, int], post: Callable[[Event], object]) -> None:
        self.screen, self.group_of, self.post = screen, group_of, post

    def changed(self, version: int, paths: Sequence[str]) -> None:
        self.screen.changed(version, paths)
        self.post(decide.Changed(version, frozenset(paths)))

    def reached(self, outcome: Outcome, version: int) -> None:
        self.screen.reached(outcome, version)
        folder = self.group_of[outcome.pod]
        if outcome.kind == "sync" and outcome.wrong:  # its disk is full
            self.post(decide.Away(folder))
        elif outcome.kind == "sync":
            without = frozenset(path.path for path in (*outcome.kept, *outcome.failed))
            self.post(decide.Reached(folder, version, without))

    def away(self, outcome: Outcome) -> None:
        self.screen.away(outcome)
        self.post(decide.Away(self.group_of[outcome.pod]))


class DebugAddress:
    """Reports the debugger's address, and when it is not available."""

    def __init__(self, screen: Screen, port: PortRequest) -> None:
        self.screen, self.port = screen, port
        self.before: ForwardState | None = None
        self.trouble = ""

    def show(self, lines: Sequence[Line], trouble: str) -> None:
        (line,) = lines
        if line.state is ForwardState.OPEN and self.before is not ForwardState.OPEN:
            self.screen.message(f"debugger: {addresses(lines, [self.port])[0]}")
        elif line.state is not self.before and line.state is not ForwardState.STARTING:
            self.screen.message(f"debugger: {as_line(line)}")
        self.before = line.state if line.state is not ForwardState.STARTING else self.before
        if trouble and trouble != self.trouble:
            self.screen.message(trouble)
        self.trouble = trouble
