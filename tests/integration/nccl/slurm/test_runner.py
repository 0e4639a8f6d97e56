"""The runner on Slurm: a real controller, real nodes, real srun and PMIx, real barriers between ranks of a stand-in."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from gpuctl.core.errors import GpuctlError, InvalidInput
from gpuctl.nccl import plan
from gpuctl.nccl.bandwidth import speed
from gpuctl.nccl.model import Launch, LaunchResult, Outcome, Sweep
from gpuctl.nccl.runners.slurm import step
from gpuctl.nccl.runners.slurm.runner import SlurmRunner
from tests.integration.nccl.slurm.conftest import Start
from tests.integration.nccl.slurm.site import NODES, Site
from tests.rig.host import wait_until

MIB = 1 << 20
RING = plan.with_env(Sweep(begin_bytes=8 * MIB, end_bytes=256 * MIB, gpus_per_node=2, limit_s=60), plan.RING)
SHORT = replace(RING, limit_s=6)
SLOW = "pace_ms 1500"


def quiet(_: Launch, __: str) -> None:
    """Hear nothing of the progress."""


def run(
    runner: SlurmRunner,
    *launches: Launch,
    told: Callable[[Launch, str], None] = quiet,
    broken_off: Callable[[], bool] = lambda: False,
) -> list[LaunchResult]:
    return runner.run(launches, told, broken_off)


@contextmanager
def beside(site: Site, *argv: str) -> Iterator[subprocess.Popen[str]]:
    """A program of somebody else's, while a test goes on."""
    environment = {**os.environ, **site.environment}
    with subprocess.Popen(argv, env=environment, stdout=subprocess.PIPE, text=True) as process:
        try:
            yield process
        finally:
            process.terminate()


def nothing_left(site: Site) -> bool:
    return site.queue() == "" and not any(site.tests_on(node) for node in NODES)


def test_all_nodes_run_as_one_job_which_is_given_back(site: Site, runner: Start) -> None:
    heard: list[str] = []
    one = runner()
    (end,) = run(one, Launch(NODES, RING), told=lambda _, words: heard.append(words))
    assert (end.run.outcome, end.run.cause, end.lost, end.waiting) == (Outcome.COMPLETE, None, (), {})
    assert [row.size_bytes for row in end.run.rows] == [MIB << power for power in range(3, 9)]
    assert [rank.host for rank in end.run.ranks] == ["h1", "h1", "h2", "h2", "h3", "h3", "h4", "h4"]
    assert {transport.network for transport in end.run.transports} == {"Libfabric"}
    assert heard[-2:] == ["256M done", heard[-1]]
    assert set(site.states().values()) == {"allocated"}
    one.close()
    assert nothing_left(site)


def test_ranks_follow_the_order_of_the_launch(runner: Start) -> None:
    (end,) = run(runner(), Launch(("h3", "h1"), RING))
    assert [rank.host for rank in end.run.ranks] == ["h3", "h3", "h1", "h1"]


def test_pairs_of_a_round_run_at_the_same_time_in_one_job(site: Site, runner: Start) -> None:
    jobs: set[str] = set()
    begun, one = time.monotonic(), runner()
    site.fabric("pace_ms 200")
    ends = run(one, *plan.rounds("pairs", NODES, RING)[0], told=lambda *_: jobs.add(site.queue()))
    assert [end.run.outcome for end in ends] == [Outcome.COMPLETE] * 2
    assert time.monotonic() - begun < sum(end.seconds for end in ends)
    assert len(jobs) == 1
    run(one, *plan.rounds("pairs", NODES, RING)[1], told=lambda *_: jobs.add(site.queue()))
    assert len(jobs) == 1


def test_a_node_alone_is_one_process_with_all_its_gpus(runner: Start) -> None:
    ends = run(runner(), *plan.rounds("single", NODES[:2], RING)[0])
    assert [end.run.outcome for end in ends] == [Outcome.COMPLETE] * 2
    assert len({rank.pid for rank in ends[0].run.ranks}) == 1
    assert [rank.host for rank in ends[1].run.ranks] == ["h2", "h2"]


def test_a_slow_adapter_slows_its_node(site: Site, runner: Start) -> None:
    site.fabric("slow h2 3 0.5")
    slow, well = run(runner(), Launch(("h1", "h2"), RING), Launch(("h3", "h4"), RING))
    assert speed(slow.run) == pytest.approx((speed(well.run) or 0) / 2, rel=0.1)


def test_a_hang_is_ended_on_every_node_and_says_who_waited_for_whom(site: Site, runner: Start) -> None:
    site.fabric(f"hang h2 {64 * MIB}")
    one = runner()
    hung, well = run(one, Launch(("h1", "h2"), SHORT), Launch(("h3", "h4"), SHORT))
    assert (hung.run.outcome, well.run.outcome) == (Outcome.HUNG, Outcome.COMPLETE)
    assert hung.waiting == {"h1": "waiting", "h2": "gone"}
    assert hung.run.cause == "no end within 6 s, after 32M: on h2 ranks 2, 3 are doing nothing; h1 waits for it"
    assert hung.lost == ()
    assert not any(site.tests_on(node) for node in NODES)
    site.fabric()
    (again,) = run(one, Launch(("h1", "h2"), RING))
    assert again.run.outcome is Outcome.COMPLETE


def test_a_crash_names_rank_and_node_and_ends_the_others(site: Site, runner: Start) -> None:
    site.fabric(f"crash h2 {64 * MIB}")
    (end,) = run(runner(), Launch(("h1", "h2"), RING))
    assert end.run.outcome is Outcome.FAILED
    assert end.run.cause is not None
    assert end.run.cause.startswith(("rank 2 on h2: ", "rank 3 on h2: "))  # both strike, either may be first to say so
    assert (end.lost, site.tests_on("h1"), site.tests_on("h2")) == ((), [], [])


def test_a_rank_that_is_killed_is_named(site: Site, runner: Start) -> None:
    def kill(_: Launch, words: str) -> None:
        if words == "64M done":
            pids = (site.plot.cgroup / "h2/node/cgroup.procs").read_text().split()
            names = {pid: Path(f"/proc/{pid}/comm").read_text().strip() for pid in pids}
            os.kill(next(int(pid) for pid, name in names.items() if name == "all_reduce_perf"), signal.SIGKILL)

    site.fabric("pace_ms 300")
    (end,) = run(runner(), Launch(("h1", "h2"), RING), told=kill)
    assert end.run.outcome in (Outcome.FAILED, Outcome.KILLED)
    assert "h2" in (end.run.cause or "")


def test_wrong_values_make_a_run_corrupt(site: Site, runner: Start) -> None:
    site.fabric(f"wrong h1 {128 * MIB}")
    (end,) = run(runner(), Launch(("h1", "h2"), RING))
    assert end.run.outcome is Outcome.CORRUPT


def test_a_node_that_vanishes_is_lost(site: Site, runner: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(step, "PROBE_LIMIT_S", 5.0)
    monkeypatch.setattr(step, "GONE_S", 12.0)

    def vanish(_: Launch, words: str) -> None:
        if words == "16M done":
            site.cable("h2", "down")

    site.fabric("pace_ms 300")
    try:
        (end,) = run(runner(), Launch(("h1", "h2"), SHORT), told=vanish)
        assert end.run.outcome in (Outcome.HUNG, Outcome.FAILED, Outcome.KILLED)
        assert end.lost == ("h2",)
        assert "h2" in (end.run.cause or "")
        assert site.tests_on("h1") == []
    finally:
        site.cable("h2", "up")


def test_a_job_that_somebody_cancels_is_said_and_nothing_more_is_started(site: Site, runner: Start) -> None:
    def cancel(_: Launch, words: str) -> None:
        if words == "16M done":
            site.ask("scancel", "--user=root")

    site.fabric("pace_ms 300")
    one = runner()
    (end,) = run(one, Launch(("h1", "h2"), RING), told=cancel)
    assert end.run.outcome is Outcome.KILLED
    assert end.run.cause is not None
    assert end.run.cause.endswith("(cancelled)")
    (after,) = run(one, Launch(("h1", "h2"), RING))
    assert (after.run.outcome, after.run.cause) == (Outcome.KILLED, end.run.cause)


def test_breaking_off_ends_everything(site: Site, runner: Start) -> None:
    enough = threading.Event()
    site.fabric(SLOW)
    (end,) = run(
        runner(),
        Launch(("h1", "h2"), RING),
        told=lambda _, __: enough.set(),
        broken_off=lambda: enough.is_set() and bool(site.tests_on("h2")),
    )
    assert (end.run.outcome, end.run.cause, end.lost) == (Outcome.KILLED, "broken off", ())
    assert not any(site.tests_on(node) for node in NODES)


def test_nodes_that_others_use_are_waited_for_and_then_left_alone(site: Site, runner: Start) -> None:
    heard: list[str] = []
    with beside(site, "srun", "--nodes=1", "--nodelist=h2", "--exclusive", "--job-name=theirs", "sleep", "60"):
        wait_until(lambda: site.states()["h2"] == "allocated", 10, "the other job does not run")
        with pytest.raises(GpuctlError, match=r"not granted within 3 s: job \d+ .*nodes are in use \(Resources\)") as e:
            run(runner(wait_s=3), Launch(NODES, RING), told=lambda _, words: heard.append(words))
        assert e.value.exit_code == 3
        assert site.queue() == "theirs RUNNING\n"
    assert heard[-1].endswith("its nodes are in use (Resources)")


def test_breaking_off_leaves_the_queue(site: Site, runner: Start) -> None:
    with beside(site, "srun", "--nodes=1", "--nodelist=h2", "--exclusive", "--job-name=theirs", "sleep", "60"):
        wait_until(lambda: site.states()["h2"] == "allocated", 10, "the other job does not run")
        (end,) = run(runner(), Launch(NODES, RING), broken_off=lambda: "PENDING" in site.queue())
        assert (end.run.outcome, end.run.cause) == (Outcome.KILLED, "broken off")
        assert site.queue() == "theirs RUNNING\n"


def test_what_slurm_refuses_is_said_in_its_words(site: Site, runner: Start) -> None:
    with pytest.raises(InvalidInput, match="Invalid partition name specified"):
        run(runner(partition="nosuch"), Launch(NODES, RING))
    assert site.queue() == ""


def test_a_test_that_is_not_installed_is_named_with_the_nodes(runner: Start) -> None:
    (end,) = run(runner(), Launch(("h1", "h2"), replace(RING, collective="alltoall")))
    assert end.run.outcome is Outcome.FAILED
    assert end.run.cause is not None
    assert "h1" in end.run.cause
    assert "alltoall_perf is not installed: build it" in end.run.cause


def test_mpi_that_does_not_fit_is_said(runner: Start) -> None:
    (end,) = run(runner(mpi="pmi2"), Launch(("h1", "h2"), RING))
    assert (end.run.outcome, end.run.cause) == (Outcome.FAILED, "MPI on the nodes cannot be started by --mpi=pmi2")


def test_secrets_of_the_environment_stand_on_no_command_line(site: Site, runner: Start) -> None:
    seen: list[str] = []

    def look(_: Launch, words: str) -> None:
        if words == "16M done":
            seen.append(subprocess.run(["ps", "-eo", "args"], capture_output=True, text=True, check=True).stdout)

    (end,) = run(runner(), Launch(("h1", "h2"), plan.with_env(RING, {"MY_TOKEN": "hunter2"})), told=look)
    assert end.run.outcome is Outcome.COMPLETE
    assert "all_reduce_perf" in seen[0]
    assert "hunter2" not in seen[0]


def test_what_a_run_printed_can_be_kept(runner: Start, tmp_path: Path) -> None:
    (end,) = run(runner(save_output=tmp_path), Launch(("h1", "h2"), RING))
    assert (end.run.outcome, end.run.cause) == (Outcome.COMPLETE, None)
    (kept,) = tmp_path.iterdir()
    assert "# Collective test concluded: all_reduce_perf" in kept.read_text()


def test_a_job_that_we_are_in_is_used_and_stays(site: Site, runner: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    site.ask("salloc", "--no-shell", "--nodes=2", "--gres=gpu:2", "--exclusive", "--job-name=theirs")
    number = site.ask("squeue", "-h", "-o", "%i").strip()
    try:
        monkeypatch.setenv("SLURM_JOB_ID", number)
        one = runner(("h1", "h2"))
        (end,) = run(one, Launch(("h1", "h2"), RING))
        one.close()
        assert end.run.outcome is Outcome.COMPLETE
        assert site.queue() == "theirs RUNNING\n"
    finally:
        site.ask("scancel", number)


PROGRAM = """
import sys
from gpuctl.core.signals import ctrl_c
from gpuctl.nccl.model import Launch, Sweep
from gpuctl.nccl.runners.slurm.command import Settings
from gpuctl.nccl.runners.slurm import step
from gpuctl.nccl.runners.slurm.runner import SlurmRunner
with ctrl_c() as broken_off:
    runner = SlurmRunner(("h1", "h2"), Settings(search_path=(sys.argv[1],)))
    sweep = Sweep(begin_bytes=8 << 20, end_bytes=8 << 30, gpus_per_node=2)
    runner.run([Launch(("h1", "h2"), sweep)], lambda _, words: print(words, flush=True), broken_off)
"""


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_the_nodes_are_given_back_however_gpuctl_ends(site: Site, number: signal.Signals) -> None:
    site.fabric(SLOW)
    with beside(site, sys.executable, "-c", PROGRAM, str(site.programs)) as process:
        assert process.stdout is not None
        for line in process.stdout:
            if line == "8M done\n":
                break
        assert site.queue().startswith("gpuctl-nccl-")
        process.send_signal(number)
        process.wait(30)
    wait_until(lambda: nothing_left(site), 20, "something is left")
