"""What every runner promises (gpuctl/nccl/runner.py), on real hosts: over ssh, and through Ansible."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from gpuctl.core.errors import InvalidInput
from gpuctl.nccl import plan
from gpuctl.nccl.bandwidth import speed
from gpuctl.nccl.isolate.flow import isolate
from gpuctl.nccl.isolate.model import Fleet, Policy
from gpuctl.nccl.model import Launch, LaunchResult, Outcome
from gpuctl.nccl.runners.mpirun import MpirunOptions
from tests.integration.nccl.cluster import MIB, SWEEP, Cluster

RING = plan.with_env(replace(SWEEP, begin_bytes=64 * MIB), plan.RING)
SHORT = replace(RING, limit_s=12)
PAIR = ("h1", "h2")


@pytest.fixture(params=["ssh", "ansible"])
def nodes(request: pytest.FixtureRequest, cluster: Callable[[int], Cluster]) -> Callable[[int], Cluster]:
    """`nodes(4)`: so many, reached in the way that is tested."""

    def start(number: int) -> Cluster:
        made = cluster(number)
        made.through = request.param
        return made

    return start


def speeds(ends: list[LaunchResult]) -> list[float]:
    found = [speed(end.run) for end in ends]
    assert None not in found, [end.run.cause for end in ends]
    return [gbs for gbs in found if gbs is not None]


def test_launches_run_at_the_same_time_and_end_in_their_order(nodes: Callable[[int], Cluster]) -> None:
    four = nodes(4)
    four.fabric("provider ib", "slow h2 3 0.5", "pace_ms 400")
    launches = [
        Launch(("h4", "h1"), RING),
        Launch(("h3", "h2"), RING, rail="mlx5_3"),
    ]
    begun = time.monotonic()
    ends = four.run(*launches)
    assert time.monotonic() - begun < 40
    assert [end.launch for end in ends] == launches
    assert [(end.run.outcome, end.lost, dict(end.waiting)) for end in ends] == [(Outcome.COMPLETE, (), {})] * 2
    assert speeds(ends) == [pytest.approx(400, rel=0.1), pytest.approx(12.5, rel=0.1)]
    assert [[rank.host for rank in end.run.ranks] for end in ends] == [
        ["h4", "h4", "h1", "h1"],
        ["h3", "h3", "h2", "h2"],
    ]
    for launch in launches:
        words = [words for of, words in four.told if of == launch]
        assert words[0].startswith("started")
        assert words[-1].startswith("complete after")
    assert four.left() == {}


def test_a_hang_is_ended_and_told_while_others_go_on(nodes: Callable[[int], Cluster]) -> None:
    four = nodes(4)
    four.fabric(f"hang h2 {128 * MIB}")
    hung, good = four.run(Launch(PAIR, SHORT), Launch(("h3", "h4"), SHORT))
    assert (hung.run.outcome, good.run.outcome) == (Outcome.HUNG, Outcome.COMPLETE)
    assert dict(hung.waiting) == {"h1": "waiting", "h2": "gone"}
    assert hung.run.cause == "no end within 12 s, after 64M: on h2 ranks 2, 3 are doing nothing; h1 waits for it"
    assert (hung.lost, four.left()) == ((), {})


def test_a_node_that_vanishes_is_lost_and_the_other_is_clean(nodes: Callable[[int], Cluster]) -> None:
    pair = nodes(2)
    pair.fabric("pace_ms 3000")
    gone = False

    def vanish() -> bool:
        nonlocal gone
        if not gone and "all_reduce_perf" in pair.processes(pair["h2"]):
            pair["h2"].pause()
            gone = True
        return False

    (end,) = pair.run(Launch(PAIR, replace(RING, limit_s=20)), broken_off=vanish)
    assert end.run.outcome in (Outcome.HUNG, Outcome.FAILED)
    assert end.lost == ("h2",)
    assert "h2" in (end.run.cause or "")
    assert pair.left(but=["h2"]) == {}


def test_breaking_off_ends_everything(nodes: Callable[[int], Cluster]) -> None:
    pair = nodes(2)
    pair.fabric("pace_ms 2000")
    begun = False

    def enough() -> bool:
        nonlocal begun
        begun = begun or "all_reduce_perf" in pair.processes(pair["h2"])
        return begun

    (end,) = pair.run(Launch(PAIR, RING), broken_off=enough)
    assert (end.run.outcome, end.run.cause) == (Outcome.KILLED, "broken off")
    assert (end.lost, pair.left()) == ((), {})


def test_what_fails_names_its_cause_and_what_was_printed_is_kept(
    nodes: Callable[[int], Cluster], tmp_path: Path
) -> None:
    pair = nodes(2)
    pair.fabric(f"crash h2 {256 * MIB}")
    (end,) = pair.run(Launch(PAIR, RING), way=MpirunOptions(save_output=tmp_path))
    assert end.run.outcome is Outcome.FAILED
    assert "h2" in (end.run.cause or "")
    (kept,) = tmp_path.iterdir()
    assert "# Collective test starting: all_reduce_perf" in kept.read_text()
    (pair["h1"].root / "usr/local/bin/all_reduce_perf").unlink()
    (end,) = pair.run(Launch(PAIR, RING))
    assert (end.run.cause or "").startswith("h1: all_reduce_perf is not installed there: ")


def test_a_first_node_that_does_not_let_us_in_is_the_cause(nodes: Callable[[int], Cluster]) -> None:
    pair = nodes(2)
    (pair["h1"].root / "etc/ssh/authorized_keys").write_text("")
    (end,) = pair.run(Launch(PAIR, RING))
    assert end.run.outcome is Outcome.FAILED
    assert (end.run.cause or "").startswith("h1: ")
    assert "Permission denied" in (end.run.cause or "")
    assert "h1" in end.lost


def test_no_node_is_in_two_runs(nodes: Callable[[int], Cluster]) -> None:
    pair = nodes(2)
    with pytest.raises(InvalidInput, match="each node can be in one run at a time"):
        pair.run(Launch(PAIR, RING), Launch(("h2",), RING))
    assert pair.run() == []


def test_an_isolation_finds_the_node_and_its_adapter(nodes: Callable[[int], Cluster]) -> None:
    four = nodes(4)
    four.fabric("provider ib", "rails 2", "nic_gbs 100", "slow h4 1 0.5")
    policy = Policy(sweep=plan.with_env(replace(RING, begin_bytes=512 * MIB), plan.RING))
    _, end = isolate(Fleet(four.names, rails=("mlx5_0", "mlx5_1")), four.runner(), policy)
    assert end is not None
    assert [(str(fault.cause), fault.rail) for fault in end.faults] == [("h4", "mlx5_1")]
    assert four.left() == {}
