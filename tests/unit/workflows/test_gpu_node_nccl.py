"""NCCL on each host by itself: the judgement of one host's test, and its step of a roll-out."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from gpuctl.cli.gpu_node.bootstrap import bootstrap
from gpuctl.hosts.model import Target
from gpuctl.nccl.baselines import load
from gpuctl.nccl.model import Launch, LaunchResult, Outcome, Run, Sweep, Timing
from gpuctl.nccl.parsing import parse
from gpuctl.workflows import gpu_node_nccl
from gpuctl.workflows.gpu_node_plan import PlanRequest
from tests.rig.living_fleet import FleetHost, LivingFleet
from tests.unit.workflows.test_gpu_node_rollout import rows, states

LOG = Path(__file__).parents[2] / "data/nccl/h100_1n8g_allreduce.log"
MISSING = "h1: all_reduce_perf is not installed there: build it"


def run() -> Run:
    (result,) = parse.runs(LOG.read_text().splitlines())
    return result


def half(timing: Timing | None, wrong: float | None = 0) -> Timing:
    """As one GPU measures: no bus bandwidth."""
    assert timing is not None
    return replace(timing, busbw_gbs=0.0, wrong=wrong)


def verdicts(run: Run, gpus: int = 8, lost: tuple[str, ...] = ()) -> list[tuple[str, str]]:
    launch = Launch(("n1",), Sweep(gpus_per_node=gpus))
    findings = gpu_node_nccl.judged(LaunchResult(launch, run, 1.0, lost), load.book())
    assert {(row.check, row.subject) for row in findings} == {("nccl", "n1")}
    return [(str(row.verdict), row.message) for row in findings]


def test_the_bandwidth_of_a_sound_test_is_shown() -> None:
    first, *more = verdicts(run())
    assert first[0] == "OK"
    assert first[1].startswith("all_reduce over 8 GPUs, ")
    assert first[1].endswith(" GB/s (no baseline)")
    assert {verdict for verdict, _ in more} <= {"WARN"}


def test_a_test_that_did_not_end_well_is_no_success() -> None:
    hung = replace(run(), outcome=Outcome.HUNG, cause="no end within 300 s")
    assert verdicts(hung)[0][0] == "FAIL"
    empty = replace(run(), rows=(), outcome=Outcome.EMPTY, cause=None)
    assert {"OK"}.isdisjoint(verdict for verdict, _ in verdicts(empty))
    assert {"OK"}.isdisjoint(verdict for verdict, _ in verdicts(replace(empty, outcome=Outcome.FAILED), gpus=1))
    assert verdicts(replace(empty, outcome=Outcome.FAILED, cause=MISSING)) == [("UNKNOWN", f"not tested: {MISSING}")]
    assert ("UNKNOWN", "whether processes of the test are left could not be determined") in verdicts(
        run(), lost=("n1",)
    )


def test_a_broken_test_of_one_gpu_is_not_ok() -> None:
    still = [replace(row, out_of_place=half(row.out_of_place), in_place=half(row.in_place)) for row in run().rows]
    alone = replace(run(), rows=tuple(still), ranks=run().ranks[:1], avg_busbw_gbs=0.0)
    assert verdicts(alone, gpus=1) == [("OK", "all_reduce over 1 GPU")]
    unchecked = [replace(row, out_of_place=half(row.out_of_place, None), in_place=None) for row in still]
    assert verdicts(replace(alone, rows=tuple(unchecked)), gpus=1)[0][0] == "UNKNOWN"
    assert verdicts(replace(alone, rows=()), gpus=1)[0][0] == "UNKNOWN"
    assert verdicts(replace(alone, outcome=Outcome.TRUNCATED), gpus=1)[0][0] == "UNKNOWN"


def ignore(*_: object) -> None:
    """Take progress, and show none."""


class StandinRunner:
    """Runs nothing; the test of host b hangs."""

    def __init__(self, hosts: Sequence[Target], search_path: tuple[str, ...]) -> None:
        assert search_path == ("/opt/nccl-tests",)

    def run(self, launches: Sequence[Launch], listener: Any, broken_off: Any) -> list[LaunchResult]:
        """See Runner.run."""
        hung = replace(run(), outcome=Outcome.HUNG, cause="no end within 300 s")
        return [LaunchResult(launch, hung if launch.nodes == ("b",) else run(), 1.0) for launch in launches]


def test_a_host_takes_jobs_again_only_after_its_test(monkeypatch: pytest.MonkeyPatch) -> None:
    fleet = LivingFleet(a=FleetHost(), b=FleetHost())
    fleet.connect(monkeypatch)
    monkeypatch.setattr(gpu_node_nccl, "runner", StandinRunner)
    words = ("--drain", "slurm", "--reboot", "--nccl", "--search-path", "/opt/nccl-tests")
    result = CliRunner().invoke(bootstrap, ["-i", "prod", "--yes", "-o", "json", *words])
    assert states(result) == {"a": "done", "b": "failed"}, result.output
    assert (rows(result)["b"]["step"], rows(result)["b"]["drain"]) == ("nccl", "drained")
    assert (fleet.acts["a"][-1], fleet.acts["b"][-1]) == ("undrain", "reboot")


def test_a_host_is_read_right_before_its_own_test(monkeypatch: pytest.MonkeyPatch) -> None:
    jobs: dict[str, int] = {"a": 0, "b": 0}
    tested: list[str] = []

    def read_tools(hosts: Sequence[Target], *_: Any) -> tuple[dict[str, Any], dict[str, str]]:
        return {host.name: {"gpu": {"gpus": [{"mig": None}]}, "jobs": jobs[host.name]} for host in hosts}, {}

    class Starts(StandinRunner):
        """A job starts on host b during the test of host a."""

        def run(self, launches: Sequence[Launch], listener: Any, broken_off: Any) -> list[LaunchResult]:
            tested.extend(launch.nodes[0] for launch in launches)
            jobs["b"] = 1
            return super().run(launches, listener, broken_off)

    monkeypatch.setattr(gpu_node_nccl, "read_tools", read_tools)
    monkeypatch.setattr(gpu_node_nccl, "users", lambda _, facts: ["a job"] * facts["jobs"])
    monkeypatch.setattr(gpu_node_nccl, "runner", Starts)
    request = PlanRequest(forks=1)
    hosts = [Target("a", address="a"), Target("b", address="b")]
    findings = gpu_node_nccl.run_nccl(hosts, request, ("/opt/nccl-tests",), ignore, ignore)
    assert tested == ["a"]
    assert [row.message for row in findings["b"]] == ["not tested, as it is in use: a job"]
