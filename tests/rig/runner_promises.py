"""Promises that every Runner keeps (gpuctl/nccl/runner.py), whatever starts its launches.

tests/component/test_runners.py holds runners to them that need neither hosts nor a cluster; tests/integration/nccl has
ssh and Ansible on hosts, Slurm, and pods, MPIJobs and environments on Kubernetes.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum
from pathlib import Path

import pytest

from gpuctl.core.errors import InvalidInput
from gpuctl.nccl.isolate.launch_failures import never_started
from gpuctl.nccl.model import Launch, LaunchResult, Outcome, Sweep
from gpuctl.nccl.runner import Runner

LOG = (Path(__file__).parents[1] / "data/nccl/a100_8g_allreduce_old_unchecked.log").read_text()
FAILURE = "h1: Test NCCL failure all_reduce.cu:44 'unhandled system error (run with NCCL_DEBUG=INFO for details) / '\n"
MIB = 1 << 20


class Behaviour(Enum):
    """The behaviour of the test that launches run, as `Site.behave` sets it."""

    COMPLETE = "it prints its results and ends"
    FAILED = "it prints its ranks, then an error, and ends"
    HANGING = "it prints its ranks and never ends"
    MISSING = "it cannot be started"


@dataclass(frozen=True)
class Site:
    """A runner and two nodes. `left`: everything of a launch that still is on a node or in the cluster.

    `limit_s`: a limit that a complete test keeps and that ends a hanging one.
    """

    runner: Runner
    nodes: tuple[str, str]
    behave: Callable[[Behaviour], None]
    left: Callable[[], Sequence[str]]
    limit_s: float = 2.0
    sweep: Sweep = field(default_factory=lambda: Sweep(begin_bytes=64 * MIB, end_bytes=64 * MIB, limit_s=60))

    def launches(self, limit_s: float | None = None) -> list[Launch]:
        """A launch on each node; the second node comes first."""
        sweep = self.sweep if limit_s is None else replace(self.sweep, limit_s=limit_s)
        return [Launch((node,), sweep) for node in reversed(self.nodes)]


@dataclass
class Progress:
    """What a runner reports, and to whom an interruption is due."""

    messages: list[tuple[Launch, str]] = field(default_factory=list)

    def __call__(self, launch: Launch, message: str) -> None:
        self.messages.append((launch, message))

    def started(self, launch: Launch) -> bool:
        return any(of == launch and message.startswith("started") for of, message in self.messages)


def gives_results_with_output_in_the_order_of_the_launches(site: Site) -> None:
    site.behave(Behaviour.COMPLETE)
    launches, progress = site.launches(), Progress()
    results = site.runner.run(launches, progress, lambda: False)
    assert all(isinstance(result, LaunchResult) for result in results)
    assert [result.launch for result in results] == launches
    assert [(result.run.outcome, result.run.cause) for result in results] == [(Outcome.COMPLETE, None)] * 2
    for result in results:
        assert result.run.rows
        assert (result.lost, dict(result.waiting), result.left) == ((), {}, "")
        assert not never_started(result)
        assert progress.started(result.launch)
    assert site.left() == []


def tells_a_test_that_failed_from_one_that_never_started(site: Site) -> None:
    site.behave(Behaviour.FAILED)
    for result in site.runner.run(site.launches(), Progress(), lambda: False):
        assert result.run.outcome is Outcome.FAILED
        assert result.run.cause
        assert not never_started(result)
    site.behave(Behaviour.MISSING)
    for result in site.runner.run(site.launches(), Progress(), lambda: False):
        assert result.run.outcome in (Outcome.FAILED, Outcome.EMPTY)
        assert result.run.cause
        assert never_started(result) == result.run.cause
    assert site.left() == []


def ends_a_launch_at_its_limit(site: Site) -> None:
    site.behave(Behaviour.HANGING)
    results = site.runner.run(site.launches(site.limit_s), Progress(), lambda: False)
    assert [(result.run.outcome, result.lost) for result in results] == [(Outcome.HUNG, ())] * 2
    for result in results:
        assert result.run.cause
        assert not never_started(result)
    assert site.left() == []


def ends_every_launch_and_leaves_nothing_when_interrupted(site: Site) -> None:
    site.behave(Behaviour.HANGING)
    launches, progress = site.launches(), Progress()
    begun = time.monotonic()
    results = site.runner.run(launches, progress, lambda: all(progress.started(launch) for launch in launches))
    assert time.monotonic() - begun < site.sweep.limit_s
    assert [result.launch for result in results] == launches
    assert [(result.run.outcome, result.run.cause) for result in results] == [(Outcome.KILLED, "broken off")] * 2
    assert [result.lost for result in results] == [(), ()]
    assert site.left() == []


def refuses_launches_that_share_a_node(site: Site) -> None:
    site.behave(Behaviour.COMPLETE)
    progress = Progress()
    launch = Launch(site.nodes, site.sweep)
    with pytest.raises(InvalidInput, match=site.nodes[0]):
        site.runner.run([launch, Launch(site.nodes[:1], site.sweep)], progress, lambda: False)
    assert progress.messages == []


def runs_nothing_without_launches(site: Site) -> None:
    assert site.runner.run([], Progress(), lambda: False) == []


PROMISES = (
    gives_results_with_output_in_the_order_of_the_launches,
    tells_a_test_that_failed_from_one_that_never_started,
    ends_a_launch_at_its_limit,
    ends_every_launch_and_leaves_nothing_when_interrupted,
    refuses_launches_that_share_a_node,
    runs_nothing_without_launches,
)
