"""The runner over ssh and mpirun: real hosts, a real mpirun, real barriers between ranks of a stand-in."""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from dataclasses import replace

import pytest

from gpuctl.nccl import plan
from gpuctl.nccl.bandwidth import speed
from gpuctl.nccl.model import Launch, LaunchResult, Outcome, Sweep
from tests.integration.nccl.cluster import MIB, SWEEP, Cluster

LINE_RATE = 400.0  # 16 adapters of 25 GB/s
RING = plan.with_env(SWEEP, plan.RING)
SHORT = replace(RING, limit_s=12)


def both(cluster: Cluster, sweep: Sweep = RING) -> Launch:
    return Launch(cluster.names[:2], sweep)


def speed_of(end: LaunchResult) -> float:
    found = speed(end.run)
    assert found is not None
    return found


def test_a_healthy_pair_ends_complete_and_leaves_nothing(pair: Cluster) -> None:
    (end,) = pair.run(both(pair))
    assert (end.run.outcome, end.run.cause, end.lost, end.waiting) == (Outcome.COMPLETE, None, (), {})
    assert [row.size_bytes for row in end.run.rows] == [MIB << power for power in range(3, 11)]
    assert [rank.host for rank in end.run.ranks] == ["h1", "h1", "h2", "h2"]
    assert speed_of(end) == pytest.approx(LINE_RATE, rel=0.1)
    assert pair.told[0] == (end.launch, "started")
    assert (end.launch, "1G done") in pair.told
    assert pair.left() == {}


def test_a_slow_adapter_slows_its_node(pair: Cluster) -> None:
    pair.fabric("slow h2 3 0.5")
    (end,) = pair.run(both(pair))
    assert end.run.outcome is Outcome.COMPLETE
    assert speed_of(end) == pytest.approx(LINE_RATE / 2, rel=0.1)


def test_a_run_can_be_kept_to_one_adapter(pair: Cluster) -> None:
    pair.fabric("provider ib", "slow h2 3 0.5")
    one, other = (pair.run(replace(both(pair), rail=rail))[0] for rail in ("mlx5_3", "mlx5_4"))
    assert speed_of(one) == pytest.approx(12.5, rel=0.1)
    assert speed_of(other) == pytest.approx(25, rel=0.1)
    assert {nic for transport in other.run.transports for nic in transport.nics} == {"mlx5_4:1/IB"}


def test_a_dead_adapter_shows_in_the_speed(pair: Cluster) -> None:
    pair.fabric("dead h2 3")
    (end,) = pair.run(both(pair))
    assert speed_of(end) == pytest.approx(LINE_RATE * 15 / 16, rel=0.04)


def test_a_node_that_fell_back_to_sockets_says_so(pair: Cluster) -> None:
    pair.fabric("tcp h2")
    (end,) = pair.run(both(pair))
    networks = {(one.host, one.network) for one in end.run.transports}
    assert {host for host, network in networks if network == "Socket"} == {"h2"}
    assert speed_of(end) < 2


def test_wrong_values_make_a_run_corrupt(pair: Cluster) -> None:
    pair.fabric(f"wrong h1 {256 * MIB}")
    (end,) = pair.run(both(pair))
    assert end.run.outcome is Outcome.CORRUPT
    assert [row.size_bytes // MIB for row in end.run.rows if row.in_place and row.in_place.wrong] == [256, 512, 1024]


def test_a_crash_names_rank_and_node(pair: Cluster) -> None:
    pair.fabric(f"crash h2 {64 * MIB}")
    (end,) = pair.run(both(pair))
    assert end.run.outcome is Outcome.FAILED
    assert end.run.cause is not None
    assert "h2" in end.run.cause
    assert pair.left() == {}


def test_a_rank_that_was_stopped_is_named(pair: Cluster) -> None:
    def stop(_: Launch, words: str) -> None:
        if words == "64M done":
            pair["h2"].run("pkill", "-STOP", "-o", "-x", "all_reduce_perf")

    (end,) = pair.run(both(pair, SHORT), during=stop)
    assert end.run.outcome is Outcome.HUNG
    assert end.run.cause is not None
    assert re.search(r"on h2 rank [23] is stopped; h1 waits for it", end.run.cause)
    assert pair.left() == {}


def test_a_node_that_stays_away_ends_its_ranks_by_itself(pair: Cluster) -> None:
    left: list[str] = []

    def vanish(_: Launch, words: str) -> None:
        if words == "64M done":
            pair["h2"].pause()
            left.append(pair.processes(pair["h2"]))

    (end,) = pair.run(both(pair, replace(RING, limit_s=6)), during=vanish)
    assert end.lost == ("h2",)
    assert "all_reduce_perf" in left[0]
    wait_until(lambda: not pair.processes(pair["h2"]), 60)


def test_a_node_alone_is_one_process_with_all_its_gpus(pair: Cluster) -> None:
    ends = pair.run(*plan.rounds("single", pair.names, replace(SWEEP, gpus_per_node=8))[0])
    assert [end.run.outcome for end in ends] == [Outcome.COMPLETE] * 2
    assert [{rank.host for rank in end.run.ranks} for end in ends] == [{"h1"}, {"h2"}]
    assert len({rank.pid for rank in ends[0].run.ranks}) == 1
    assert len(ends[0].run.ranks) == 8


def test_one_split_launch_tells_of_the_slowest_pair(cluster: Callable[[int], Cluster]) -> None:
    four = cluster(4)
    four.fabric("slow h4 0 0.5")
    ((launch,), *_) = plan.rounds("pairs", four.names, SWEEP, split=True)
    (end,) = four.run(launch)
    assert launch.nodes == ("h1", "h4", "h2", "h3")
    assert speed_of(end) == pytest.approx(LINE_RATE / 2, rel=0.1)


def test_what_is_not_installed_is_said_with_how_to_get_it(pair: Cluster) -> None:
    (pair["h1"].root / "usr/local/bin/all_reduce_perf").unlink()
    (end,) = pair.run(both(pair))
    assert end.run.outcome is Outcome.FAILED
    assert end.run.cause is not None
    assert end.run.cause.startswith("h1: all_reduce_perf is not installed there: ")
    assert "github.com/NVIDIA/nccl-tests" in end.run.cause


def test_a_program_that_only_the_other_node_lacks_is_named(pair: Cluster) -> None:
    (pair["h2"].root / "usr/local/bin/all_reduce_perf").unlink()
    (end,) = pair.run(both(pair))
    assert end.run.cause == "/usr/local/bin/all_reduce_perf is not on every node, in the same place"


def test_a_node_that_the_first_may_not_enter_is_named(pair: Cluster) -> None:
    (pair["h2"].root / "etc/ssh/authorized_keys").write_text("")
    (end,) = pair.run(both(pair))
    assert end.run.outcome is Outcome.FAILED
    assert end.run.cause == "h2: the first node may not log in there over ssh"


def test_the_first_node_that_does_not_let_us_in_is_named(pair: Cluster) -> None:
    (pair["h1"].root / "etc/ssh/authorized_keys").write_text("")
    (end,) = pair.run(both(pair))
    assert end.run.outcome is Outcome.FAILED
    assert end.run.cause is not None
    assert end.run.cause.startswith("h1: it does not let us log in")


def test_secrets_of_the_environment_stand_on_no_command_line(pair: Cluster) -> None:
    seen: list[str] = []

    def look(_: Launch, words: str) -> None:
        if words == "64M done":
            seen.extend(pair.processes(host) for host in pair.hosts)

    sweep = plan.with_env(RING, {"MY_TOKEN": "hunter2"})
    (end,) = pair.run(both(pair, sweep), during=look)
    assert end.run.outcome is Outcome.COMPLETE
    assert any("all_reduce_perf" in text for text in seen)
    assert not any("hunter2" in text for text in seen)


def wait_until(done: Callable[[], bool], limit_s: float) -> None:
    end = time.monotonic() + limit_s
    while not done():
        assert time.monotonic() < end, "it never became so"
        time.sleep(0.5)
