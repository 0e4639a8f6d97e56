"""Wait for builds: for our turn, and until ours has finished, by one watch, with its log streamed in parallel."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass

from gpuctl.cluster.deploy.model import ProgressListener
from gpuctl.cluster.environment import Environment, Object
from gpuctl.cluster.image_build import builds, judge
from gpuctl.core.errors import GpuctlError
from gpuctl.core.redact import removed
from gpuctl.edges.kube import watch
from gpuctl.edges.kube.cancel import Stop
from gpuctl.edges.kube.cluster import Cluster

LOG_S = 20.0  # limit for the rest of a log, once the build has finished


@dataclass(frozen=True)
class BuildOptions:
    """`show` receives the lines of the log (None: not followed); `limit_s`: the time limit of the build."""

    show: Callable[[str], None] | None = None
    limit_s: float = 7200


def turn(cluster: Cluster, env: Environment, limit_s: float, tell: ProgressListener) -> list[Object]:
    """Wait until no build of the environment is running, and return its builds.

    Needed for uploads: the server lets a new build wait for 5 minutes only, and a running one may take longer.
    """
    stop, reported = Stop(), set[str]()
    with _limited(stop, limit_s):
        for known in watch.watch(cluster, cluster.kind(builds.API, builds.BUILD), builds.labels(env), stop):
            running = {name for name, build in known.items() if judge.phase(build) == judge.RUNNING}
            if not running:
                return list(known.values())
            for name in sorted(running - reported):
                tell(f"Build {name}", "is running; ours starts when it has finished")
            reported |= running
    wrong = f"{', '.join(sorted(reported)) or 'another build'} has not finished after {limit_s:g} s"
    raise GpuctlError(
        f"begin a build of {env.name}", wrong, "--timeout waits longer; `oc cancel-build NAME` cancels it"
    )


@contextlib.contextmanager
def _limited(stop: Stop, limit_s: float) -> Iterator[None]:
    """Set `stop` after the time limit, and at the end of the block."""
    timer = threading.Timer(limit_s, stop.set)
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()
        stop.set()


class BuildWaiter:
    """Waits for one build; `tell` receives each phase."""

    def __init__(self, cluster: Cluster, env: Environment, name: str, tell: ProgressListener) -> None:
        self.cluster, self.env, self.name, self.tell = cluster, env, name, tell
        self.over, self.stop, self.log_stop = threading.Event(), Stop(), Stop()

    def wait(self, options: BuildOptions) -> Object:
        """Wait for the end; returns the finished build."""
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
                # Not joined: the log's reader may be blocked, and the build may have to be cancelled.
                pool.shutdown(wait=False)
        raise GpuctlError(
            f"wait for build {self.name}",
            f"it has not finished after {options.limit_s:g} s, and continues",
            f"`oc logs -f build/{self.name} -n {self.env.namespace}` follows it; --timeout waits longer",
        )

    def _phases(self) -> Iterator[Object]:
        """Yield the build on every change; phases are reported."""
        reported = ""
        kind = self.cluster.kind(builds.API, builds.BUILD)
        for known in watch.watch(self.cluster, kind, builds.labels(self.env), self.stop):
            if self.name not in known:
                raise judge.NotBuilt(
                    f"build {self.name}", "somebody deleted it", "run the same command to start another"
                )
            now = known[self.name]
            if judge.describe(now) != reported and not judge.is_over(now):
                reported = judge.describe(now)
                self.tell(f"Build {self.name}", reported)
                if hint := judge.hint(now):
                    self.tell("hint", hint)
            yield now

    def _log(self, show: Callable[[str], None]) -> None:
        kind = self.cluster.kind(builds.API, builds.BUILD)
        log = watch.Log(self.cluster, self.name, of=kind)
        try:
            for line in log.lines(self.over.is_set, self.log_stop):
                show(removed(line)[0])  # logs are passed on, and `git clone` prints its URL
        except GpuctlError as error:  # the build continues, and its result matters
            if not self.log_stop.is_set():
                self.tell(f"Build {self.name}", f"its log cannot be read: {error.wrong}")

    def _end_of(self, log: Future[None] | None, now: Object) -> None:
        """Wait for the rest of the log; a cancelled build has no log any more."""
        self.over.set()
        if log and judge.phase(now) in judge.BEGUN:
            try:
                log.result(LOG_S)
            except TimeoutError:
                message = f"the rest of its log did not arrive within {LOG_S:g} s; `oc logs build/{self.name}` shows it"
                self.tell(f"Build {self.name}", message)
