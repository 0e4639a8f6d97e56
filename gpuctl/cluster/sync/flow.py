"""Sync to all pods concurrently: one stream each, or one for pods that share a folder."""

from __future__ import annotations

import contextlib
import secrets
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from typing import Any

from gpuctl.cluster.sync import push
from gpuctl.cluster.sync import targets as places
from gpuctl.cluster.sync.local import Local
from gpuctl.cluster.sync.model import FOLDER, Outcome
from gpuctl.cluster.sync.push import PodSync, SyncRequest
from gpuctl.cluster.sync.stream import PodStream, open_to
from gpuctl.cluster.sync.targets import Target
from gpuctl.core.errors import GpuctlError, Unreachable
from gpuctl.domain.findings import Verdict
from gpuctl.edges.kube.cancel import Stop
from gpuctl.edges.kube.cluster import Cluster
from gpuctl.edges.kube.pod_exec import BrokenOff

TRIES = 3  # a broken connection is reopened, and everything is compared again
PAUSE_S = 1.0
SHARED_S = 10.0  # how long a shared folder may take until all pods see its new content
MOST = 64  # pods at the same time

OnOutcome = Callable[[Outcome], object]


@dataclass(frozen=True)
class PodConnector:
    """Opens streams to pods. `python`: the interpreter in the pod."""

    cluster: Cluster
    python: str = "python3"
    stop: Stop = field(default_factory=Stop)

    @contextlib.contextmanager
    def stream(self, target: Target) -> Iterator[PodStream]:
        """Open a stream to a pod."""
        if target.wrong:
            raise Unreachable(f"sync to the pod {target.pod}", target.wrong)
        with contextlib.closing(open_to(self.cluster, target.pod, target.container, self.python, self.stop)) as opened:
            yield opened


def sync(
    connector: PodConnector,
    targets: Sequence[Target],
    local: Local,
    request: SyncRequest,
    on_outcome: OnOutcome = lambda _: None,
) -> list[Outcome]:
    """Sync the folder to all targets; outcomes in their order. `on_outcome` is called as each pod finishes."""
    outcomes: dict[str, Outcome] = {}

    def report(outcome: Outcome) -> None:
        outcomes[outcome.pod] = outcome
        on_outcome(outcome)

    groups = places.groups(targets)
    with ThreadPoolExecutor(max_workers=min(MOST, len(groups)) or 1) as pool:
        jobs = [pool.submit(_group, connector, group, local, request, report) for group in groups]
        try:
            _wait(jobs)
        except BaseException:
            connector.stop.set()
            pool.shutdown(cancel_futures=True)
            raise
    return [outcomes[target.pod] for target in targets]


def _wait(jobs: Sequence[Future[None]]) -> None:
    for job in jobs:
        job.result()


def _group(
    connector: PodConnector, group: Sequence[Target], local: Local, request: SyncRequest, report: OnOutcome
) -> None:
    """Sync to one pod of a group; check that the others see the result."""
    taker = group[0]
    outcome, paths, generation = _sync_pod(connector, taker, local, request)
    report(outcome)
    if outcome.wrong or request.check:
        for other in group[1:]:
            report(_not_checked(other, outcome))
        return
    with ThreadPoolExecutor(max_workers=min(MOST, len(group))) as pool:
        jobs = [pool.submit(check_shared, connector, other, request, paths, generation) for other in group[1:]]
        for job in jobs:
            report(job.result())


def _not_checked(target: Target, taker: Outcome) -> Outcome:
    """Outcome of a pod that shares a folder to which nothing was written."""
    wrong = f"it shares the folder of {taker.pod}, which was not synced" if taker.wrong else target.wrong
    verdict = Verdict.UNKNOWN if wrong else Verdict.OK
    return Outcome(target.pod, verdict, "sees", wrong=wrong, shares=taker.pod)


def _sync_pod(
    connector: PodConnector, target: Target, local: Local, request: SyncRequest
) -> tuple[Outcome, Mapping[str, Any], str]:
    """Sync to one pod, retrying broken connections; also return the paths and generation it then has."""
    begun = time.monotonic()
    request = replace(request, session=secrets.token_hex(8))
    for tries in range(1, TRIES + 1):
        try:
            outcome, paths, generation = _attempt(connector, target, local, request)
            return replace(outcome, seconds=time.monotonic() - begun), paths, generation
        except BrokenOff:
            raise
        except Unreachable as error:
            if tries == TRIES or target.wrong or connector.stop.wait(PAUSE_S):
                return push.failed(target.pod, error), {}, ""
        except GpuctlError as error:
            return push.failed(target.pod, error), {}, ""
    raise AssertionError("every attempt returns or raises")


def _attempt(
    connector: PodConnector, target: Target, local: Local, request: SyncRequest
) -> tuple[Outcome, Mapping[str, Any], str]:
    with connector.stream(target) as stream:
        pod_sync = PodSync(stream, local, request)
        pod_sync.begin()
        plan = pod_sync.plan()
        if request.check:
            return push.preview(target.pod, plan), {}, ""
        outcome = pod_sync.carry_out(plan)
        return outcome, recorded_paths(pod_sync), pod_sync.generation


def recorded_paths(pod_sync: PodSync) -> dict[str, Any]:
    """The content of a pod's folder by its manifest, for other pods to compare."""
    entries = pod_sync.pod_state.entries.items()
    return {
        path: (entry.kind, entry.value)
        for path, entry in entries
        if entry.kind != FOLDER and not pod_sync.differs(path)
    }


def check_shared(
    connector: PodConnector, target: Target, request: SyncRequest, paths: Mapping[str, Any], generation: str
) -> Outcome:
    """Check that a pod sees the content another pod received; UNKNOWN if it does not, or does not answer."""
    begun = time.monotonic()
    try:
        with connector.stream(target) as stream:
            while True:
                answer = stream.check(request.target, paths)
                if answer["generation"] == generation and not answer["differs"]:
                    seconds = time.monotonic() - begun
                    return Outcome(target.pod, Verdict.OK, "sees", files=len(paths), seconds=seconds)
                if time.monotonic() - begun > SHARED_S or connector.stop.wait(PAUSE_S):
                    return _differs_outcome(target, answer["differs"])
    except BrokenOff:
        raise
    except GpuctlError as error:
        return replace(push.failed(target.pod, error), kind="sees")


def _differs_outcome(target: Target, differs: Sequence[str]) -> Outcome:
    wrong = f"{len(differs)} files differ there, such as {differs[0]}" if differs else "it still shows an older sync"
    hint = "a network file system may take a minute; otherwise check that it is the same volume"
    return Outcome(target.pod, Verdict.UNKNOWN, "sees", wrong=wrong, hint=hint)
