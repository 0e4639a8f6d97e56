"""A program while it is being written: a folder synced to all pods, the program in one of them, its debug port here."""

from __future__ import annotations

import contextlib
import queue
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import Protocol

from gpuctl.cluster.dev import decide
from gpuctl.cluster.dev.decide import Action, Event, State
from gpuctl.cluster.dev.program import Runner, Wanted, Ways
from gpuctl.cluster.shell.flow import Door
from gpuctl.cluster.sync import targets as places
from gpuctl.cluster.sync import watch
from gpuctl.cluster.sync.model import Outcome
from gpuctl.cluster.sync.targets import Target
from gpuctl.core.errors import GpuctlError
from gpuctl.kube.forward import flow as forward
from gpuctl.kube.forward.state_machine import Line
from gpuctl.kube.forward.state_machine import State as Standing
from gpuctl.kube.forward.table import as_line
from gpuctl.remote.model import Ended, There
from gpuctl.workflows.forward import Wish, addresses, request

TICK_S = 0.05
PATIENT_S = 3.0  # a change that has not reached all pods after so long is told of
MOST = 3


class Screen(watch.Told, Protocol):
    """Shows what goes on; from several threads."""

    def out(self, part: bytes) -> None:
        """What the program printed; OSError where nobody can read it."""

    def say(self, text: str) -> None:
        """A line of our own; it never fails."""


@dataclass(frozen=True)
class Session:
    """What goes on together. `settings.told` is not asked: what the sync tells goes to `screen`, and to us."""

    door: Door
    there: There
    wanted: Wanted
    settings: watch.Settings
    targets: Sequence[Target]
    rank: int
    restarts: bool
    screen: Screen


def run(session: Session, asked: Callable[[], bool]) -> Ended | None:
    """Until we are `asked` to end, or without restarts the program has ended: then how; nothing is left in the pods.

    `GpuctlError` where nothing can go on, or where it is not known whether the program is gone.
    """
    events: queue.SimpleQueue[Event] = queue.SimpleQueue()
    screen = session.screen
    runner = Runner(session.there, session.wanted, Ways(screen.out, screen.say, events.put))
    groups = places.groups(session.targets)
    state = decide.begin(len(groups), session.wanted.script, session.restarts, time.monotonic())
    loop = Loop(runner, groups, screen)
    with _beside(session, events.put) as beside:
        action = Action.NOTHING
        while action is not Action.LEAVE:
            state, action = decide.step(state, _next(events, asked, state), time.monotonic())
            loop.carry_out(state, action)
        over = [each for each in beside if each.done()]
    if runner.unsure:
        wrong = f"{session.there.pod}: {runner.unsure}"
        raise GpuctlError("say whether the program is gone", wrong, "a pod that hears nothing for a minute ends it")
    if asked():
        return None
    return end_of(runner, over)


def end_of(runner: Runner, over: Sequence[Future[None]]) -> Ended:
    """How the program ended by itself; raises what ended the session before that."""
    for each in over:
        each.result()
    if runner.broke is not None:
        raise runner.broke
    if runner.last is None:
        raise GpuctlError(f"run {runner.name} to its end", runner.wrong or "it never began")
    return runner.last


def _next(events: queue.SimpleQueue[Event], asked: Callable[[], bool], state: State) -> Event:
    if asked() and not state.leaving:
        return decide.Leave()
    with contextlib.suppress(queue.Empty):
        return events.get(timeout=TICK_S)
    return decide.Tick()


class Loop:
    """Does what was decided, and tells of it."""

    def __init__(self, runner: Runner, groups: Sequence[Sequence[Target]], screen: Screen) -> None:
        self.runner, self.groups, self.screen = runner, groups, screen
        self.told = ""

    def carry_out(self, state: State, action: Action) -> None:
        if state.leaving:
            self.runner.leave()
        if action is Action.START:
            self.runner.start()
        elif action is Action.STOP:
            changed = sorted(state.owing)
            why = "the end: the program is told to end" if state.leaving else f"restart: {_few(changed)} changed"
            self.screen.say(why)
            self.runner.end()
        self._tell_of_waiting(state)

    def _tell_of_waiting(self, state: State) -> None:
        """Once, why the program is not begun although something changed."""
        late = time.monotonic() - state.at > PATIENT_S and state.newest > state.ran and not state.leaving
        text = self._why(state) if late else ""
        if text and text != self.told:
            self.screen.say(text)
        self.told = text

    def _why(self, state: State) -> str:
        if missing := [self.groups[each][0].pod for each in decide.behind(state)]:
            return f"waiting until {_few(missing)} has all of it"
        lacking = decide.refused(state).items()
        told = [f"{self.groups[each][0].pod} did not take {_few(sorted(paths))}" for each, paths in lacking]
        return f"not begun: {_few(told)}" if told else ""


def _few(names: Sequence[str]) -> str:
    more = f" and {len(names) - MOST} more" if len(names) > MOST else ""
    return ", ".join(names[:MOST]) + more


# ---- beside the program ---------------------------------------------------------------------------------------------


@contextlib.contextmanager
def _beside(session: Session, post: Callable[[Event], object]) -> Iterator[list[Future[None]]]:
    """The sync and, with a debugger, its forward; where one of them ends by itself, so does the session."""
    ended = threading.Event()
    group_of = {each.pod: n for n, group in enumerate(places.groups(session.targets)) for each in group}
    settings = watch.Settings(
        session.settings.way, session.settings.local, session.settings.wanted, News(session.screen, group_of, post)
    )
    with ThreadPoolExecutor(2) as pool:
        running = []
        try:
            if session.wanted.debug:
                wish = Wish(session.wanted.debug, name="debug")
                asked = request(session.door, [wish], session.rank)
                running.append(pool.submit(forward.keep, asked, Shown(session.screen, wish).show, ended))
            running.append(pool.submit(watch.watch, settings, session.targets))
            for each in running:
                each.add_done_callback(lambda _: post(decide.Leave()))
            yield running
        finally:
            ended.set()
            session.settings.way.stop.set()


class News:
    """Hands on what the sync tells: to the screen, and to what decides."""

    def __init__(self, screen: Screen, group_of: Mapping[str, int], post: Callable[[Event], object]) -> None:
        self.screen, self.group_of, self.post = screen, group_of, post

    def changed(self, version: int, paths: Sequence[str]) -> None:
        self.screen.changed(version, paths)
        self.post(decide.Changed(version, frozenset(paths)))

    def reached(self, outcome: Outcome, version: int) -> None:
        self.screen.reached(outcome, version)
        folder = self.group_of[outcome.pod]
        if outcome.way == "sync" and outcome.wrong:  # its disk is full
            self.post(decide.Away(folder))
        elif outcome.way == "sync":
            without = frozenset(each.path for each in (*outcome.kept, *outcome.failed))
            self.post(decide.Reached(folder, version, without))

    def away(self, outcome: Outcome) -> None:
        self.screen.away(outcome)
        self.post(decide.Away(self.group_of[outcome.pod]))


class Shown:
    """Says where the debugger is reached, and when that is not so."""

    def __init__(self, screen: Screen, wish: Wish) -> None:
        self.screen, self.wish = screen, wish
        self.before: Standing | None = None
        self.trouble = ""

    def show(self, lines: Sequence[Line], trouble: str) -> None:
        (line,) = lines
        if line.state is Standing.OPEN and self.before is not Standing.OPEN:
            self.screen.say(f"debugger: {addresses(lines, [self.wish])[0]}")
        elif line.state is not self.before and line.state is not Standing.STARTING:
            self.screen.say(f"debugger: {as_line(line)}")
        self.before = line.state if line.state is not Standing.STARTING else self.before
        if trouble and trouble != self.trouble:
            self.screen.say(trouble)
        self.trouble = trouble
