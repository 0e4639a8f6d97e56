"""`gpuctl nccl isolate --replay`: the runs of a file judged anew, and printed."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from gpuctl.cli.nccl.isolate import command
from gpuctl.core.errors import InvalidInput
from gpuctl.nccl.isolate import record
from gpuctl.nccl.isolate.model import Fleet, Policy
from tests.rig.nccl.simulated import CALM, known, net, play, play_fleet, play_rails, seeded, slow
from tests.rig.nccl_fleet.faults import Fault
from tests.rig.nccl_fleet.runner import SimulatedFleet
from tests.rig.reports import valid_json, valid_junit, valid_metrics


def replayed(path: Path, *arguments: str) -> tuple[int, str]:
    done = CliRunner().invoke(command, ["--replay", str(path), *arguments])
    return done.exit_code, done.stdout


@pytest.fixture
def kept(tmp_path: Path) -> Path:
    played = play_rails(net(64, rack=8), Fault("slow", "rail", ("node-9", "mlx5_2"), 0.5))
    record.write(tmp_path / "runs.json", played.fleet, played.history)
    return tmp_path / "runs.json"


def test_the_proof_is_printed_and_a_bad_node_is_exit_1(kept: Path) -> None:
    code, text = replayed(kept)
    assert code == 1
    assert "have adapter mlx5_2 of node-9" in text
    assert "the runs about node-9:" in text
    assert sum(line.endswith("slow") for line in text.splitlines()) == 4


def test_the_proof_as_data_carries_the_runs_it_rests_on(kept: Path) -> None:
    code, text = replayed(kept, "--output", "json")
    (fault,) = json.loads(text)["faults"]
    assert (code, fault["names"], fault["adapter"]) == (1, ["node-9"], "mlx5_2")
    assert [run["rail"] for run in fault["evidence"]].count("mlx5_2") == 2


def test_a_healthy_fleet_is_exit_0(tmp_path: Path) -> None:
    played = play(net(64, rack=8))
    record.write(tmp_path / "runs.json", played.fleet, played.history)
    assert replayed(tmp_path / "runs.json")[0] == 0


def test_a_warning_exits_1_only_with_strict(tmp_path: Path) -> None:
    network = net(8)
    hang = Fault("hang", "node", ("node-5",), times=1)
    played = play_fleet(known(network), SimulatedFleet(network, CALM, seeded(1), [hang]))
    record.write(tmp_path / "runs.json", played.fleet, played.history)
    assert replayed(tmp_path / "runs.json")[0] == 0
    code, text = replayed(tmp_path / "runs.json", "--strict", "--output", "json")
    assert (code, json.loads(text)["verdict"], json.loads(text)["exit_code"]) == (1, "WARN", 1)


def test_runs_that_are_not_at_their_end_are_no_verdict(tmp_path: Path) -> None:
    played = play(net(64, rack=8))
    record.write(tmp_path / "runs.json", played.fleet, played.history[:10])
    assert replayed(tmp_path / "runs.json") == (1, "")


def test_a_record_edited_into_nonsense_is_refused_with_the_place(tmp_path: Path) -> None:
    played = play(net(4))
    kept = record.as_dict(played.fleet, played.history)
    kept["history"][1]["run"]["rows"][0]["in_place"]["busbw_gbs"] = "fast"
    (tmp_path / "runs.json").write_text(json.dumps(kept))
    with pytest.raises(InvalidInput, match=r"history\[1\]\.run\.rows\[0\]\.in_place\.busbw_gbs is 'fast'"):
        record.read(tmp_path / "runs.json")


@pytest.mark.parametrize("text", ["", "[]", '{"form": "another"}', '{"form": "gpuctl nccl isolate 1", "nodes": 5}'])
def test_a_file_that_is_no_record_is_refused(tmp_path: Path, text: str) -> None:
    (tmp_path / "runs.json").write_text(text)
    with pytest.raises(InvalidInput, match="cannot read the runs of an isolation"):
        record.read(tmp_path / "runs.json")


@pytest.fixture
def broken_off(tmp_path: Path) -> tuple[Path, Fleet]:
    played = play(net(64, rack=8), [slow(13)])
    record.write(tmp_path / "half.json", played.fleet, played.history[:32])
    return tmp_path / "half.json", played.fleet


def test_a_record_that_was_broken_off_is_gone_on_with(broken_off: tuple[Path, Fleet]) -> None:
    assert len(record.resume(*broken_off, Policy())) == 32


def test_a_record_of_other_nodes_is_not_gone_on_with(kept: Path) -> None:
    with pytest.raises(InvalidInput, match="it is about other nodes"):
        record.resume(kept, play(net(4)).fleet, Policy())


@pytest.mark.parametrize(
    ("other", "says"),
    [
        ({"racks": {}}, "in other racks"),
        ({"rails": ("mlx5_0", "mlx5_1")}, "other adapters .those that NCCL opens, now mlx5_0, mlx5_1."),
    ],
)
def test_a_record_of_other_racks_or_adapters_is_not_gone_on_with(
    broken_off: tuple[Path, Fleet], other: dict[str, Any], says: str
) -> None:
    path, fleet = broken_off
    with pytest.raises(InvalidInput, match=says):
        record.resume(path, replace(fleet, **other), Policy())


def test_a_record_of_another_test_is_not_gone_on_with(broken_off: tuple[Path, Fleet]) -> None:
    policy = Policy(sweep=replace(Policy().sweep, gpus_per_node=4))
    with pytest.raises(InvalidInput, match="gpus_per_node was 8, is now 4"):
        record.resume(*broken_off, policy)


def test_a_finished_record_measures_nothing_and_is_refused(kept: Path) -> None:
    with pytest.raises(InvalidInput, match="already complete") as refused:
        record.resume(kept, record.read(kept).fleet, Policy())
    assert "--replay" in (refused.value.hint or "")
    assert "starts a new isolation" in (refused.value.hint or "")


def test_a_finished_record_is_gone_on_with_where_more_is_asked_for(tmp_path: Path) -> None:
    played = play(net(64, rack=8))
    record.write(tmp_path / "runs.json", played.fleet, played.history)
    assert record.resume(tmp_path / "runs.json", played.fleet, Policy(pairs_per_node=2)) == tuple(played.history)


def test_asked_for_a_network_a_replay_holds_the_runs_against_it(tmp_path: Path) -> None:
    played = play(net(64, rack=8))
    record.write(tmp_path / "runs.json", played.fleet, played.history)
    code, text = replayed(tmp_path / "runs.json", "--instance", "p5.48xlarge")
    assert code == 1
    assert "node-0: IB instead of efa on node-0" in text
    assert "--output json lists all" in text
    assert replayed(tmp_path / "runs.json", "--network", "ib")[0] == 0


def test_an_unknown_machine_type_is_refused(kept: Path) -> None:
    done = CliRunner().invoke(command, ["--replay", str(kept), "--instance", "p99.large"])
    assert isinstance(done.exception, InvalidInput)


def test_why_launches_never_began_is_in_the_proof(tmp_path: Path) -> None:
    network = net(16)
    closed = {"node-3": "node-3: all_reduce_perf is not installed there"}
    played = play_fleet(known(network), SimulatedFleet(network, CALM, seeded(1), closed=closed))
    record.write(tmp_path / "runs.json", played.fleet, played.history)
    code, text = replayed(tmp_path / "runs.json")
    assert code == 1
    assert "the launches that never started:" in text
    assert text.count("all_reduce_perf is not installed there") == 3
    told = json.loads(replayed(tmp_path / "runs.json", "--output", "json")[1])
    assert next(run["nodes"] for run in told["never_started"]) == ["node-2", "node-3"]


def test_what_is_for_runs_yet_to_be_made_is_refused_with_a_replay(kept: Path) -> None:
    done = CliRunner().invoke(command, ["--replay", str(kept), "--rails", "mlx5_2"])
    assert isinstance(done.exception, InvalidInput)
    assert "--rails cannot be combined with --replay" in done.exception.wrong


def test_the_verdict_is_a_report_that_ci_and_prometheus_read(kept: Path, tmp_path: Path) -> None:
    metrics = tmp_path / "isolate.prom"
    code, text = replayed(kept, "--output", "junit", "--metrics", str(metrics))
    cases = valid_junit(text)
    assert (code, "failure" in cases.values()) == (1, True)
    severities = valid_metrics(metrics.read_text())["gpuctl_check_severity"]
    assert max(value for _, value in severities) == 3
    assert metrics.stat().st_mode & 0o777 == 0o644
    assert valid_json(replayed(kept, "--output", "json")[1])["exit_code"] == 1
