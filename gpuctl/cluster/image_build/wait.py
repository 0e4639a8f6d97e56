"""Waits for builds: for its turn, and until it is over, with its phases by one watch and its log beside it."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass

from gpuctl.cluster.deploy.model import Tell
from gpuctl.cluster.environment import Environment, Object
from gpuctl.cluster.image_build import builds, judge
from gpuctl.core.errors import GpuctlError
from gpuctl.edges.kube import watch
from gpuctl.edges.kube.cancel import Stop
from gpuctl.edges.kube.cluster import Cluster

LOG_S = 20.0  # for the rest of a log, once the build is over


@dataclass(frozen=True)
class Wish:
    """`show` gets the lines of the log (None: nobody follows it); `limit_s`: how long the build may take."""

    show: Callable[[str], None] | None = None
    limit_s: float = 7200


def turn(cluster: Cluster, env: Environment, limit_s: float, tell: Tell) -> list[Object]:
    """The environment's builds, once none of them runs.

    For a folder: the server lets a build wait for 5 minutes only, and one that runs may take longer.
    """
    stop, reported = Stop(), set[str]()
    with _limited(stop, limit_s):
        for known in watch.watch(cluster, cluster.kind(builds.API, builds.BUILD), builds.labels(env), stop):
            running = {name for name, build in known.items() if judge.phase(build) == judge.RUNNING}
            if not running:
                return list(known.values())
            for name in sorted(running - reported):
                tell(f"Build {name}", "is running; ours begins when it is over")
            reported |= running
    wrong = f"{', '.join(sorted(reported)) or 'another build'} is not over after {limit_s:g} s"
    raise GpuctlError(f"begin a build of {env.name}", wrong, "--timeout waits longer; `oc cancel-build NAME` ends it")


@contextlib.contextmanager
def _limited(stop: Stop, limit_s: float) -> Iterator[None]:
    """Ends what is read after a while, and with the block."""
    timer = threading.Timer(limit_s, stop.set)
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()
        stop.set()


class Waiting:
    """`tell` hears each phase."""

    def __init__(self, cluster: Cluster, env: Environment, name: str, tell: Tell) -> None:
        self.cluster, self.env, self.name, self.tell = cluster, env, name, tell
        self.over, self.stop, self.log_stop = threading.Event(), Stop(), Stop()

    def wait(self, options: Wish) -> Object:
        """The build as it is when it is over."""
        log: Future[None] | None = None
        pool = ThreadPoolExecutor(1)
        with _limited(self.stop, options.limit_s):
            try:
                for now in self._phases():
                    if options.show and log is None and judge.phase(now) in judge.BEGUN:
                        log = pool.submit(self._log, options.show)
                    if judge.is_over(now):
                        self._end_of(log, now)
                        return now
            finally:
                self.log_stop.set()
                # Not waited for: who reads the log may have stopped reading, and a build waits to be cancelled.
                pool.shutdown(wait=False)
        raise GpuctlError(
            f"wait for build {self.name}",
            f"it is not over after {options.limit_s:g} s, and goes on",
            f"`oc logs -f build/{self.name} -n {self.env.namespace}` follows it; --timeout waits longer",
        )

    def _phases(self) -> Iterator[Object]:
        """The build, each time that it changed; what changed is told."""
        reported = ""
        kind = self.cluster.kind(builds.API, builds.BUILD)
        for known in watch.watch(self.cluster, kind, builds.labels(self.env), self.stop):
            if self.name not in known:
                raise judge.NotBuilt(f"build {self.name}", "somebody deleted it", "the same command begins another")
            now = known[self.name]
            if judge.words(now) != reported and not judge.is_over(now):
                reported = judge.words(now)
                self.tell(f"Build {self.name}", reported)
                if hint := judge.hint(now):
                    self.tell("hint", hint)
            yield now

    def _log(self, show: Callable[[str], None]) -> None:
        kind = self.cluster.kind(builds.API, builds.BUILD)
        log = watch.Log(self.cluster, self.name, of=kind)
        try:
            for line in log.lines(self.over.is_set, self.log_stop):
                show(line)
        except GpuctlError as error:  # the build goes on, and is what counts
            if not self.log_stop.is_set():
                self.tell(f"Build {self.name}", f"its log cannot be read: {error.wrong}")

    def _end_of(self, log: Future[None] | None, now: Object) -> None:
        """What is left of the log; a build that was cancelled has none any more."""
        self.over.set()
        if log and judge.phase(now) in judge.BEGUN:
            try:
                log.result(LOG_S)
            except TimeoutError:
                message = f"the rest of its log did not come within {LOG_S:g} s; `oc logs build/{self.name}` shows it"
                self.tell(f"Build {self.name}", message)
