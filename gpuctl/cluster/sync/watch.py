"""Keep pods as the folder is here: a stream to each stays open, and is opened again where it breaks."""

from __future__ import annotations

import contextlib
import secrets
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

from gpuctl.cluster.sync import file_events, flow, pods, push
from gpuctl.cluster.sync import targets as places
from gpuctl.cluster.sync.flow import Way
from gpuctl.cluster.sync.local import Local
from gpuctl.cluster.sync.model import Outcome
from gpuctl.cluster.sync.push import Bringer, Wanted
from gpuctl.cluster.sync.targets import Target
from gpuctl.core.errors import GpuctlError, Unreachable
from gpuctl.edges.kube.errors import Forbidden, NotLoggedIn
from gpuctl.edges.kube.pod_exec import BrokenOff

LOOK_S = 0.25  # how soon a stream that broke is noticed
ALIVE_S = 20.0
WAIT_S, LONG_S = 1.0, 10.0  # until a pod that is away, or cannot take it, is tried again
FULL_S, NEVER = 60.0, float("inf")  # until a full disk is tried again, to which much may be sent in vain
ALL_S = 30.0  # the whole folder is read again this often: no event is relied upon for ever


class Told(Protocol):
    """Hears what goes on; from several threads."""

    def changed(self, version: int, paths: Sequence[str]) -> None:
        """The folder here changed: its next version."""

    def reached(self, outcome: Outcome, version: int) -> None:
        """A pod has this version, with what came of it."""

    def away(self, outcome: Outcome) -> None:
        """A pod cannot be reached now; it is tried again."""


@dataclass(frozen=True)
class Settings:
    """What to keep in sync, where, and by which way."""

    way: Way
    local: Local
    wanted: Wanted
    told: Told


def watch(settings: Settings, targets: Sequence[Target], begun: Callable[[], object] = lambda: None) -> None:
    """Until `settings.way.stop`, or Ctrl-C. `begun` is called once changes are noticed."""
    stop, news = settings.way.stop, threading.Condition()
    followers = [Follower(settings, group, news) for group in places.groups(targets)]
    threads = [threading.Thread(target=each.run, daemon=True, name=f"sync-{each.target.pod}") for each in followers]
    told, read = file_events.changes(settings.local.source, stop), time.monotonic()
    try:
        next(told, None)  # from here on nothing is missed; what changed before is
        settings.local.look_again()
        for thread in threads:
            thread.start()
        begun()
        for paths in told:
            for each in followers:
                each.check()
            if not stop.is_set() and not any(thread.is_alive() for thread in threads):
                raise GpuctlError("sync any longer", "no pod can be synced to", "what was said of each above says why")
            read = _take_in(paths, settings, news, read)
    finally:
        stop.set()
        for thread in threads:
            thread.join(5)


def _take_in(paths: set[str], settings: Settings, news: threading.Condition, read: float) -> float:
    """Wake the followers where something changed; when the whole folder was read last."""
    local = settings.local
    late = time.monotonic() - read > ALL_S
    if (paths or late) and (changed := local.look_again(None if late else paths)):
        settings.told.changed(local.version, changed)
        with news:
            news.notify_all()
    return time.monotonic() if late else read


class Follower:
    """Keeps one folder in one pod, or the pods that share it."""

    def __init__(self, settings: Settings, group: Sequence[Target], news: threading.Condition) -> None:
        self.settings, self.group, self.news = settings, group, news
        self.target = group[0]
        self.wanted = replace(settings.wanted, session=secrets.token_hex(8))
        self.version = 0
        self.wrong: Exception | None = None

    def run(self) -> None:
        """Until the stop is set; what breaks is told, and tried again. What is our own fault is kept for `check`."""
        try:
            self._run()
        except Exception as error:  # noqa: BLE001 - in a thread, where nobody would see it
            self.wrong = error

    def check(self) -> None:
        """Raises what ended it, where that is not told of: also that nobody reads what is told (`| head`)."""
        if self.wrong is not None:
            raise self.wrong

    def _run(self) -> None:
        way = self.settings.way
        while not way.stop.is_set():
            try:
                with way.stream(self.target) as stream:
                    self._follow(Bringer(stream, self.settings.local, self.wanted))
            except BrokenOff:
                return
            except (Forbidden, NotLoggedIn) as error:
                self._away(error)
                return
            except Unreachable as error:
                self._away(error)
                self._find(WAIT_S)
            except GpuctlError as error:  # another sync holds the folder, the image has no Python: that lasts
                self._away(error)
                self._find(LONG_S)

    def _away(self, error: GpuctlError) -> None:
        self.settings.told.away(push.failed(self.target.pod, error))

    def _find(self, wait_s: float) -> None:
        """Wait until there is a pod to talk to again, which may be another of the group, or of the same name."""
        way, folder = self.settings.way, self.settings.wanted.target
        while not way.stop.wait(wait_s):
            with contextlib.suppress(GpuctlError):
                self.group = [pods.now(way.cluster, each, folder) for each in self.group]
                running = [each for each in self.group if not each.wrong]
                if running:
                    self.target = running[0]
                    return

    def _follow(self, bringer: Bringer) -> None:
        """All of it first, whatever was there before; then what changes."""
        bringer.begin()
        first = True
        while not self.settings.way.stop.is_set():
            version = self.settings.local.version
            plan = bringer.plan()
            if first or plan.steps or plan.kept:
                outcome = bringer.carry_out(plan)
            else:
                outcome = push.nothing(self.target.pod, plan)
            self.version = version
            self.settings.told.reached(outcome, version)
            if first:
                self._ask_others(bringer, version)
            first = False
            self._wait(bringer, FULL_S if outcome.wrong else NEVER)

    def _ask_others(self, bringer: Bringer, version: int) -> None:
        """Whether those that share the folder see it."""
        way, wanted = self.settings.way, self.settings.wanted
        for each in self.group:
            if each.pod != self.target.pod:
                now = replace(pods.now(way.cluster, each, wanted.target), place=each.place)
                found = flow.sees(way, now, wanted, flow.put(bringer), bringer.generation)
                self.settings.told.reached(found, version)

    def _wait(self, bringer: Bringer, most_s: float) -> None:
        """Until something changed here, or so long; raises where the stream broke meanwhile."""
        begun = heard = time.monotonic()
        while self._is_newest() and time.monotonic() - begun < most_s and not self.settings.way.stop.is_set():
            with self.news:
                if self._is_newest():
                    self.news.wait(LOOK_S)
            if bringer.stream.has_news() or time.monotonic() - heard > ALIVE_S:
                bringer.stream.alive()
                heard = time.monotonic()

    def _is_newest(self) -> bool:
        return self.settings.local.version == self.version
