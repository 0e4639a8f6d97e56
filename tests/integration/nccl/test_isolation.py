"""Eight and twelve real hosts, one of them bad: it is named, nobody else is, and it does not take long."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from gpuctl.domain.findings import Verdict
from gpuctl.nccl import plan
from gpuctl.nccl.isolate.flow import Watch, isolate
from gpuctl.nccl.isolate.model import Conclusion, Fleet, Policy
from gpuctl.nccl.model import Launch, LaunchResult, Outcome
from tests.integration.nccl.cluster import MIB, SWEEP, Cluster
from tests.rig import Rig

NODES = 12
WITHIN_S = 120
SMALL = "provider ib\nrails 4\nnic_gbs 100"


@pytest.fixture(scope="module")
def twelve(rig: Rig, all_reduce_perf: Path) -> Iterator[Cluster]:
    """The hosts of all tests; each test says anew how their network is."""
    made = Cluster(rig, rig.up([f"h{number}" for number in range(1, NODES + 1)]), all_reduce_perf)
    made.furnish()
    yield made
    rig.down()


def isolated(
    nodes: Cluster,
    faults: Sequence[str],
    rails: tuple[str, ...] | None = (),
    limit_s: float = 20,
    watch: Watch | None = None,
) -> tuple[list[LaunchResult], Conclusion]:
    """Isolate on a network with these faults; without rails the adapters are found in what NCCL says it opened."""
    nodes.fabric(*faults)
    policy = Policy(sweep=plan.with_env(replace(SWEEP, limit_s=limit_s), plan.RING))
    begun = time.monotonic()
    history, end = isolate(Fleet(nodes.names, rails=rails), nodes.runner(), policy, watch)
    took = time.monotonic() - begun
    assert end is not None
    assert took < WITHIN_S
    return history, end


def named(end: Conclusion) -> list[str]:
    return [str(fault.cause) for fault in end.faults]


def transports(end: Conclusion) -> dict[str, Verdict]:
    """What was found of the network, by the node it is about."""
    return {finding.subject: finding.verdict for finding in end.findings if finding.check == "transport"}


def test_nobody_is_accused_on_a_healthy_cluster(twelve: Cluster) -> None:
    _, end = isolated(twelve, [])
    assert (named(end), end.unresolved) == ([], ())
    assert transports(end) == {"": Verdict.OK}


def test_a_slow_adapter_is_found_with_its_node(twelve: Cluster) -> None:
    history, end = isolated(twelve, [SMALL, "slow h7 2 0.5"], rails=None)
    assert named(end) == ["h7"]
    (fault,) = end.faults
    assert fault.rail == "mlx5_2"
    assert fault.slower == pytest.approx(0.5, abs=0.1)
    assert len(history) - end.rails - end.controls <= end.budget


@pytest.mark.parametrize(
    ("fault", "outcome", "network"),
    [
        pytest.param("dead h3 1", Outcome.COMPLETE, {"h3": Verdict.FAIL}, id="a dead EFA device"),
        pytest.param("tcp h5", Outcome.COMPLETE, {"h5": Verdict.FAIL}, id="sockets"),
        pytest.param(f"hang h8 {64 * MIB}", Outcome.HUNG, {"": Verdict.OK}, id="a hang"),
        pytest.param(f"wrong h2 {64 * MIB}", Outcome.CORRUPT, {"": Verdict.OK}, id="wrong data"),
        pytest.param(f"crash h1 {64 * MIB}", Outcome.FAILED, {"": Verdict.OK}, id="a crash"),
    ],
)
def test_a_fault_is_laid_on_its_node(
    twelve: Cluster, fault: str, outcome: Outcome, network: dict[str, Verdict]
) -> None:
    eight = Cluster(twelve.rig, twelve.hosts[:8], twelve.program)
    bad = fault.split()[1]
    history, end = isolated(eight, [fault])
    assert named(end) == [bad]
    assert {run.run.outcome for run in history if bad in run.launch.nodes} == {outcome}
    assert {run.run.outcome for run in history if bad not in run.launch.nodes} == {Outcome.COMPLETE}
    assert transports(end) == network
    assert eight.left() == {}


def test_a_node_that_vanishes_is_named(twelve: Cluster) -> None:
    class Cable(Watch):
        """Pulls it once the first sizes are done."""

        pulled = threading.Event()

        def progress(self, launch: Launch, line: str) -> None:
            if "h6" in launch.nodes and line == "64M done" and not self.pulled.is_set():
                self.pulled.set()
                twelve["h6"].pause()

    try:
        _, end = isolated(twelve, [], watch=Cable())
        assert named(end) == ["h6"]
        assert end.faults[0].lost
        assert twelve.left(but=["h6"]) == {}
    finally:
        twelve["h6"].resume()
