"""Keep pods in sync with the local folder: a stream to each stays open, and is reopened when it breaks."""

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
from gpuctl.cluster.sync.flow import PodConnector
from gpuctl.cluster.sync.local import Local
from gpuctl.cluster.sync.model import Outcome
from gpuctl.cluster.sync.push import PodSync, SyncRequest
from gpuctl.cluster.sync.targets import Target
from gpuctl.core.errors import GpuctlError, Unreachable
from gpuctl.domain.kube_errors import Forbidden, NotLoggedIn
from gpuctl.edges.kube.pod_exec import BrokenOff

LOOK_S = 0.25  # how soon a broken stream is noticed
ALIVE_S = 20.0
WAIT_S, LONG_S = 1.0, 10.0  # pause before a pod is tried again that is unreachable, or rejects the sync
FULL_S, NEVER = 60.0, float("inf")  # pause before a full disk is tried again: much may be sent in vain
ALL_S = 30.0  # interval of full scans: events may be lost


class ProgressListener(Protocol):
    """Receives progress; called from several threads."""

    def changed(self, version: int, paths: Sequence[str]) -> None:
        """The local folder changed; `version` is its next version."""

    def reached(self, outcome: Outcome, version: int) -> None:
        """A pod has this version, with this outcome."""

    def away(self, outcome: Outcome) -> None:
        """A pod is unreachable; it is tried again."""


@dataclass(frozen=True)
class Settings:
    connector: PodConnector
    local: Local
    request: SyncRequest
    listener: ProgressListener


def watch(settings: Settings, targets: Sequence[Target], begun: Callable[[], object] = lambda: None) -> None:
    """Sync until `settings.connector.stop` or Ctrl-C. `begun` is called once changes are noticed."""
    stop, news = settings.connector.stop, threading.Condition()
    followers = [Follower(settings, group, news) for group in places.groups(targets)]
    threads = [
        threading.Thread(target=follower.run, daemon=True, name=f"sync-{follower.target.pod}") for follower in followers
    ]
    events, read = file_events.changes(settings.local.source, settings.local.folders, stop), time.monotonic()
    try:
        next(events, None)  # from here on no change is missed; earlier ones are read now
        settings.local.rescan()
        for thread in threads:
            thread.start()
        begun()
        for paths in events:
            for follower in followers:
                follower.check()
            if not stop.is_set() and not any(thread.is_alive() for thread in threads):
                raise GpuctlError("sync any longer", "no pod can be synced to", "see the messages above")
            read = _take_in(paths, settings, news, read)
    finally:
        stop.set()
        for thread in threads:
            thread.join(5)


def _take_in(paths: set[str], settings: Settings, news: threading.Condition, read: float) -> float:
    """Wake the followers if something changed; return the time of the last full scan."""
    local = settings.local
    late = time.monotonic() - read > ALL_S
    if (paths or late) and (changed := local.rescan(None if late else paths)):
        settings.listener.changed(local.version, changed)
        with news:
            news.notify_all()
    return time.monotonic() if late else read


class Follower:
    """Keeps one folder in sync, in one pod or the pods that share it."""

    def __init__(self, settings: Settings, group: Sequence[Target], news: threading.Condition) -> None:
        self.settings, self.group, self.news = settings, group, news
        self.target = group[0]
        self.request = replace(settings.request, session=secrets.token_hex(8))
        self.version = 0
        self.wrong: Exception | None = None

    def run(self) -> None:
        """Run until the stop flag is set; pods are retried and reported, our own faults are kept for `check`."""
        try:
            self._run()
        except Exception as error:  # noqa: BLE001 - in a thread, where nobody would see it
            self.wrong = error

    def check(self) -> None:
        """Raise what ended the thread without a report, including that nobody reads the output (`| head`)."""
        if self.wrong is not None:
            raise self.wrong

    def _run(self) -> None:
        connector = self.settings.connector
        while not connector.stop.is_set():
            try:
                with connector.stream(self.target) as stream:
                    self._follow(PodSync(stream, self.settings.local, self.request))
            except BrokenOff:
                return
            except (Forbidden, NotLoggedIn) as error:
                self._away(error)
                return
            except Unreachable as error:
                self._away(error)
                self._find(WAIT_S)
            except (
                GpuctlError
            ) as error:  # another sync has locked the folder, or the image has no Python: not temporary
                self._away(error)
                self._find(LONG_S)

    def _away(self, error: GpuctlError) -> None:
        self.settings.listener.away(push.failed(self.target.pod, error))

    def _find(self, wait_s: float) -> None:
        """Wait for a pod to connect to again: another one of the group, or one of the same name."""
        connector, folder = self.settings.connector, self.settings.request.target
        while not connector.stop.wait(wait_s):
            with contextlib.suppress(GpuctlError):
                self.group = [pods.refresh(connector.cluster, member, folder) for member in self.group]
                running = [member for member in self.group if not member.wrong]
                if running:
                    self.target = running[0]
                    return

    def _follow(self, pod_sync: PodSync) -> None:
        """Sync everything first, then changes."""
        pod_sync.begin()
        first = True
        while not self.settings.connector.stop.is_set():
            version = self.settings.local.version
            plan = pod_sync.plan()
            if first or plan.steps or plan.kept:
                outcome = pod_sync.carry_out(plan)
            else:
                outcome = push.unchanged(self.target.pod, plan)
            self.version = version
            self.settings.listener.reached(outcome, version)
            if first:
                self._check_others(pod_sync, version)
            first = False
            self._wait(pod_sync, FULL_S if outcome.wrong else NEVER)

    def _check_others(self, pod_sync: PodSync, version: int) -> None:
        """Check that the pods that share the folder see it."""
        connector, request = self.settings.connector, self.settings.request
        for other in self.group:
            if other.pod != self.target.pod:
                refreshed = replace(pods.refresh(connector.cluster, other, request.target), place=other.place)
                outcome = flow.check_shared(
                    connector, refreshed, request, flow.recorded_paths(pod_sync), pod_sync.generation
                )
                self.settings.listener.reached(outcome, version)

    def _wait(self, pod_sync: PodSync, most_s: float) -> None:
        """Wait for a local change, at most `most_s`; raises if the stream broke meanwhile."""
        begun = heard_at = time.monotonic()
        while self._is_newest() and time.monotonic() - begun < most_s and not self.settings.connector.stop.is_set():
            with self.news:
                if self._is_newest():
                    self.news.wait(LOOK_S)
            if pod_sync.stream.has_news() or time.monotonic() - heard_at > ALIVE_S:
                pod_sync.stream.alive()
                heard_at = time.monotonic()

    def _is_newest(self) -> bool:
        return self.settings.local.version == self.version
