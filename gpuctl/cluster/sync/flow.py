"""Sync to all pods at the same time: each its own stream, one for those that share a folder."""

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
from gpuctl.cluster.sync.push import Bringer, Wanted
from gpuctl.cluster.sync.stream import PodStream, open_to
from gpuctl.cluster.sync.targets import Target
from gpuctl.core.errors import GpuctlError, Unreachable
from gpuctl.domain.findings import Verdict
from gpuctl.edges.kube.cancel import Stop
from gpuctl.edges.kube.cluster import Cluster
from gpuctl.edges.kube.pod_exec import BrokenOff
from gpuctl.remote.supervisor import frames

TRIES = 3  # a connection that breaks is made again, and everything looked at anew
PAUSE_S = 1.0
SEEN_S = 10.0  # how long a shared folder may take until all pods see what is in it
MOST = 64  # pods at the same time

Told = Callable[[Outcome], object]


@dataclass(frozen=True)
class Way:
    """How pods are reached. `python`: the program there that runs ours."""

    cluster: Cluster
    python: str = "python3"
    stop: Stop = field(default_factory=Stop)

    @contextlib.contextmanager
    def stream(self, target: Target) -> Iterator[PodStream]:
        """An open stream to a pod."""
        if target.wrong:
            raise Unreachable(f"sync to the pod {target.pod}", target.wrong)
        with contextlib.closing(open_to(self.cluster, target.pod, target.container, self.python, self.stop)) as opened:
            yield opened


def sync(
    way: Way, targets: Sequence[Target], local: Local, wanted: Wanted, told: Told = lambda _: None
) -> list[Outcome]:
    """Bring the folder to all of them; what came of it, in their order. `told` hears of each pod as it is done."""
    found: dict[str, Outcome] = {}

    def tell(outcome: Outcome) -> None:
        found[outcome.pod] = outcome
        told(outcome)

    groups = places.groups(targets)
    with ThreadPoolExecutor(max_workers=min(MOST, len(groups)) or 1) as pool:
        jobs = [pool.submit(_group, way, group, local, wanted, tell) for group in groups]
        try:
            _wait(jobs)
        except BaseException:
            way.stop.set()
            pool.shutdown(cancel_futures=True)
            raise
    return [found[each.pod] for each in targets]


def _wait(jobs: Sequence[Future[None]]) -> None:
    for job in jobs:
        job.result()


def _group(way: Way, group: Sequence[Target], local: Local, wanted: Wanted, tell: Told) -> None:
    """One of them gets it; the others are asked whether they see it."""
    taker = group[0]
    outcome, paths, generation = _bring(way, taker, local, wanted)
    tell(outcome)
    if outcome.wrong or wanted.check:
        for each in group[1:]:
            tell(_not_asked(each, outcome))
        return
    with ThreadPoolExecutor(max_workers=min(MOST, len(group))) as pool:
        jobs = [pool.submit(sees, way, each, wanted, paths, generation) for each in group[1:]]
        for job in jobs:
            tell(job.result())


def _not_asked(target: Target, taker: Outcome) -> Outcome:
    """Of a pod that shares the folder of another, where nothing was written there."""
    wrong = f"it shares the folder of {taker.pod}, which did not get it" if taker.wrong else target.wrong
    verdict = Verdict.UNKNOWN if wrong else Verdict.OK
    return Outcome(target.pod, verdict, "sees", wrong=wrong, shares=taker.pod)


def _bring(way: Way, target: Target, local: Local, wanted: Wanted) -> tuple[Outcome, Mapping[str, Any], str]:
    """Bring it to one pod, again after a break; with the paths that were put, and the generation that they make."""
    begun = time.monotonic()
    wanted = replace(wanted, session=secrets.token_hex(8))
    for tries in range(1, TRIES + 1):
        try:
            outcome, paths, generation = _try(way, target, local, wanted)
            return replace(outcome, seconds=time.monotonic() - begun), paths, generation
        except BrokenOff:
            raise
        except Unreachable as error:
            if tries == TRIES or target.wrong or way.stop.wait(PAUSE_S):
                return push.failed(target.pod, error), {}, ""
        except GpuctlError as error:
            return push.failed(target.pod, error), {}, ""
    raise AssertionError("every try ends in one of these ways")


def _try(way: Way, target: Target, local: Local, wanted: Wanted) -> tuple[Outcome, Mapping[str, Any], str]:
    with way.stream(target) as stream:
        bringer = Bringer(stream, local, wanted)
        bringer.begin()
        plan = bringer.plan()
        if wanted.check:
            return push.would(target.pod, plan), {}, ""
        outcome = bringer.carry_out(plan)
        return outcome, put(bringer), bringer.generation


def put(bringer: Bringer) -> dict[str, Any]:
    """What a pod's folder holds by its record, for other pods to compare."""
    entries = bringer.seen.entries.items()
    return {
        path: (each.kind, each.value) for path, each in entries if each.kind != FOLDER and not bringer.differs(path)
    }


def sees(way: Way, target: Target, wanted: Wanted, paths: Mapping[str, Any], generation: str) -> Outcome:
    """Whether a pod sees what another was given; UNKNOWN where it does not, or cannot be asked."""
    begun = time.monotonic()
    try:
        with way.stream(target) as stream:
            while True:
                answer = stream.ask(frames.CHECK, {"target": wanted.target, "paths": paths})
                if answer["generation"] == generation and not answer["differs"]:
                    seconds = time.monotonic() - begun
                    return Outcome(target.pod, Verdict.OK, "sees", files=len(paths), seconds=seconds)
                if time.monotonic() - begun > SEEN_S or way.stop.wait(PAUSE_S):
                    return _does_not_see(target, answer["differs"])
    except BrokenOff:
        raise
    except GpuctlError as error:
        return replace(push.failed(target.pod, error), way="sees")


def _does_not_see(target: Target, differs: Sequence[str]) -> Outcome:
    wrong = f"it sees {len(differs)} files otherwise, {differs[0]} among them" if differs else "it sees an older sync"
    hint = "a network file system may take a minute; is it the same volume?"
    return Outcome(target.pod, Verdict.UNKNOWN, "sees", wrong=wrong, hint=hint)
