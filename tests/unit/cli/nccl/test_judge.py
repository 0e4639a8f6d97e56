"""gpuctl nccl judge, baselines and calibrate, as they are called."""

from __future__ import annotations

import json
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from gpuctl.cli.nccl.baselines import baselines, known_instance
from gpuctl.cli.nccl.calibrate import calibrate
from gpuctl.cli.nccl.isolate import command as isolate
from gpuctl.cli.nccl.judge import judge
from gpuctl.cli.nccl.run import command as run
from gpuctl.core.errors import InvalidInput
from gpuctl.nccl.baselines.load import book
from tests.rig.nccl.recorded import DATA
from tests.rig.reports import valid_json, valid_junit, valid_metrics

H100 = str(DATA / "h100_1n8g_allreduce.log")
AZURE = "Standard_ND96isr_H100_v5"


@pytest.fixture(autouse=True)
def own_place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("GPUCTL_CONFIG_DIR", str(tmp_path / "config"))
    return tmp_path / "config"


def test_a_run_that_holds_exits_with_0_and_says_what_it_was_held_to() -> None:
    said = CliRunner().invoke(judge, [H100, "--instance", AZURE])
    assert said.exit_code == 0
    assert said.output.startswith(f"OK  {H100}: all_reduce on 1 node, 8 GPUs each, 8 ranks")
    assert "479.96 GB/s at 16 GiB, fail below 460" in said.output


def test_no_baseline_is_told_and_is_no_failure() -> None:
    said = CliRunner().invoke(judge, [H100])
    assert said.exit_code == 0
    assert said.output.startswith("WARN")
    assert "no baseline" in said.output


def test_several_files_are_all_judged_and_the_worst_decides() -> None:
    wrong = str(DATA / "gh200_2n2g_allreduce_wrong.log")
    said = CliRunner().invoke(judge, [H100, wrong, "-o", "json"])
    assert said.exit_code == 1
    told = json.loads(said.output)
    assert [(one["run"], one["verdict"]) for one in told["runs"]] == [(H100, "WARN"), (wrong, "FAIL")]
    assert next(one["check"] for one in told["findings"] if one["target"] == wrong) == "corruption"
    assert (told["runs"][1]["known"]["nodes"], told["runs"][1]["known"]["gpus_per_node"]) == (2, 1)


def test_a_log_comes_from_standard_input_too() -> None:
    said = CliRunner().invoke(judge, ["-", "--instance", AZURE], input=Path(H100).read_text())
    assert said.exit_code == 0
    assert said.output.startswith("OK  -: all_reduce")


@pytest.mark.parametrize(
    ("arguments", "wrong"),
    [
        (["missing.log"], "No such file"),
        ([H100, "--algo", "Rnig"], "NCCL has no such algorithm"),
        ([H100, "--collective", "allreduce"], "no such test"),
    ],
)
def test_what_cannot_be_used_is_refused(arguments: list[str], wrong: str) -> None:
    said = CliRunner().invoke(judge, arguments)
    assert isinstance(said.exception, InvalidInput)
    assert wrong in str(said.exception)


OCI = str(DATA / "h100_2n16g_allreduce.log")  # 16 ranks on two named nodes
ROCE = str(DATA / "h100_2n2g_roce_info.log")  # its NCCL_ALGO was Ring


@pytest.mark.parametrize(
    ("arguments", "wrong"),
    [
        ([OCI, "--nodes", "4"], "--nodes 4: the log lists 2 nodes (alder-1"),
        ([OCI, "--nodes", "99"], "--nodes 99: the log lists 2 nodes (alder-1"),
        ([OCI, "--gpus-per-node", "4"], "--gpus-per-node 4: the log lists 8 on each node"),
        ([OCI, "--collective", "broadcast"], "--collective broadcast: the log is of all_reduce"),
        ([ROCE, "--algo", "Tree"], "--algo Tree: the log shows that NCCL_ALGO was Ring"),
        ([ROCE, "--algo", "default"], "--algo default: the log shows that NCCL_ALGO was Ring"),
        ([str(DATA / "a100_2n16g_elided_noavg.log"), "--nodes", "1"], "--nodes 1: the log lists 2 nodes"),
        ([str(DATA / "h200_16n128g_excerpt.log"), "--nodes", "4", "--gpus-per-node", "8"], "not the 128 ranks"),
        ([str(DATA / "h200_16n128g_excerpt.log"), "--nodes", "999"], "--nodes 999: the log is of 128 ranks"),
    ],
)
def test_what_a_log_denies_is_not_judged(arguments: list[str], wrong: str) -> None:
    said = CliRunner().invoke(judge, arguments)
    assert isinstance(said.exception, InvalidInput)
    assert wrong in str(said.exception)


def test_what_a_log_says_itself_or_leaves_open_may_be_told() -> None:
    two = ["--nodes", "2", "--gpus-per-node", "8", "--collective", "all_reduce"]
    for arguments in ([OCI, *two], [ROCE, "--algo", "ring"], [H100, "--algo", "NVLS"]):
        assert not isinstance(CliRunner().invoke(judge, arguments).exception, InvalidInput)


def test_a_ring_that_is_faster_than_the_wires_is_not_believed() -> None:
    said = CliRunner().invoke(judge, [OCI, "--instance", "p5.48xlarge", "--network", "ib", "--algo", "Ring"])
    assert said.exit_code == 1
    assert "UNKNOWN  line-rate       467.41 GB/s at 8 GiB is above the 400 GB/s" in said.output
    assert "the run used no ring, or the machine type is another" in said.output


def test_logs_that_deny_what_is_told_of_them_make_no_baseline() -> None:
    said = CliRunner().invoke(calibrate, [OCI, ROCE, H100, "--instance", "ours", "--nodes", "1"])
    assert isinstance(said.exception, InvalidInput)
    assert "the log lists 2 nodes" in str(said.exception)


def test_a_misspelt_machine_type_is_refused_before_anything_is_judged() -> None:
    said = CliRunner().invoke(judge, [H100, "--instance", "p5.48xlagre"])
    assert isinstance(said.exception, InvalidInput)
    assert "did you mean p5.48xlarge?" in str(said.exception)
    known_instance(None, "run", book())
    known_instance("p5.48xlarge", "run", book())


def test_baselines_are_listed_and_explained_with_their_source() -> None:
    listed = CliRunner().invoke(baselines, ["list", "-o", "json"])
    assert all(row["source"] and row["why"] for row in json.loads(listed.output))
    explained = CliRunner().invoke(baselines, ["explain", "p5en.48xlarge"])
    assert "8 H200 GPUs, 400 GB/s a node, efa" in explained.output
    assert "why: Ring, which AWS's tuner chooses" in explained.output
    unknown = CliRunner().invoke(baselines, ["explain", "p5en"])
    assert isinstance(unknown.exception, InvalidInput)


def test_rows_that_the_default_sweep_does_not_reach_say_how_to_reach_them() -> None:
    told = "rows for sizes above 8GiB are not reached by default: `gpuctl nccl run -e 16G` reaches them"
    assert told in CliRunner().invoke(baselines, ["list"]).output
    assert told in CliRunner().invoke(baselines, ["explain", AZURE]).output
    assert told not in CliRunner().invoke(baselines, ["explain", "p5.48xlarge"]).output, "8 GiB is among its sizes"


def test_a_site_calibrates_and_is_judged_by_its_own_rows(own_place: Path, tmp_path: Path) -> None:
    repeats = [str(tmp_path / f"{busbw}.log") for busbw in ("479.96", "478.10", "480.30")]
    for path in repeats:
        Path(path).write_text(Path(H100).read_text().replace("479.96", Path(path).stem))
    shown = CliRunner().invoke(calibrate, [*repeats, "--instance", "our-dgx", "--check"])
    assert shown.exit_code == 0
    assert not own_place.exists(), "--check keeps nothing"
    kept = CliRunner().invoke(calibrate, [*repeats, "--instance", "our-dgx"])
    assert kept.exit_code == 0
    assert (own_place / "nccl_baselines.yml").is_file()
    said = CliRunner().invoke(judge, [H100, "--instance", "our-dgx"])
    assert said.output.startswith(f"OK  {H100}: all_reduce on 1 node, 8 GPUs each, 8 ranks")
    assert "this site's own of " in said.output


def test_calibrate_refuses_a_run_that_nobody_checked(own_place: Path) -> None:
    unchecked = str(DATA / "a100_8g_allreduce_old_unchecked.log")
    said = CliRunner().invoke(calibrate, [unchecked] * 3 + ["--instance", "ours"])
    assert isinstance(said.exception, InvalidInput)
    assert "not checked" in str(said.exception)
    assert not own_place.exists()


def test_the_heading_says_what_was_forced_what_nccl_used_and_what_nobody_told() -> None:
    forced = CliRunner().invoke(judge, [str(DATA / "h100_2n2g_roce_info.log")]).output
    assert "on 2 nodes, 1 GPU each, 2 ranks; NCCL_ALGO=Ring; no machine type given" in forced
    bare = CliRunner().invoke(judge, [str(DATA / "gb200_excerpt.log")]).output
    assert "collective not named (nodes, GPUs, ranks unknown); NCCL_ALGO unknown" in bare
    assert "give --nodes 1" in bare
    alike = CliRunner().invoke(judge, [str(DATA / "mi350x_8g_collapsed.log")]).output
    assert alike.count("only a fall at the same size again is a fault") == 1, "the same advice is given once"


@pytest.mark.parametrize("command", [judge, calibrate, run, isolate])
def test_a_network_that_nobody_knows_is_refused_by_every_command(command: click.Command) -> None:
    said = CliRunner().invoke(command, [*([H100] if command is judge else []), "--network", "infinibnd"])
    assert said.exit_code == 2
    assert "did you mean infiniband?" in said.output


def test_a_network_is_told_by_any_of_its_names() -> None:
    roce = str(DATA / "h100_2n2g_roce_info.log")
    for name in ("roce", "RoCEv2", "rocev2"):
        said = CliRunner().invoke(judge, [roce, "--network", name, "-o", "json"])
        assert "FAIL" not in [one["verdict"] for one in json.loads(said.output)["findings"]]
        assert json.loads(said.output)["runs"][0]["known"]["network"] == "roce"


@pytest.mark.parametrize("algo", ["NVLS_TREE", "allreduce:Ring", "^nvls", "Ring,Tree", "default"])
def test_an_algorithm_is_told_as_nccl_algo_has_it(algo: str) -> None:
    assert CliRunner().invoke(judge, [H100, "--algo", algo]).exit_code == 0


def test_a_judgement_is_a_report_with_a_suite_for_each_log(tmp_path: Path) -> None:
    wrong = str(DATA / "gh200_2n2g_allreduce_wrong.log")
    metrics = tmp_path / "judge.prom"
    done = CliRunner().invoke(judge, [H100, wrong, "-o", "junit", "--metrics", str(metrics)])
    cases = valid_junit(done.output)
    assert (done.exit_code, cases["gpuctl.nccl.judge.corruption", "4 MiB"]) == (1, "failure")
    severities = valid_metrics(metrics.read_text())["gpuctl_check_severity"]
    assert {labels["target"] for labels, _ in severities} == {H100, wrong}
    assert valid_json(CliRunner().invoke(judge, [H100, "-o", "json"]).output)["verdict"] == "WARN"


def test_a_strict_judgement_fails_its_warnings_in_the_report_too() -> None:
    usual = CliRunner().invoke(judge, [H100, "-o", "junit"])
    strict = CliRunner().invoke(judge, [H100, "--strict", "-o", "junit"])
    assert (usual.exit_code, strict.exit_code) == (0, 1)
    assert "failure" not in valid_junit(usual.output).values()
    assert "failure" in valid_junit(strict.output).values()


def test_the_runs_of_two_pods_in_one_log_are_judged_apart_and_named_by_their_pods(tmp_path: Path) -> None:
    lines = Path(H100).read_text().splitlines()
    log = tmp_path / "both.json"
    records = [{"message": line, "podName": pod} for line in lines for pod in ("pod-a", "pod-b")]
    log.write_text("".join(json.dumps(record) + "\n" for record in records))
    said = CliRunner().invoke(judge, [str(log), "--instance", AZURE])
    assert said.exit_code == 0
    assert f"OK  {log} run 1 (pod-a): all_reduce on 1 node" in said.output
    assert f"OK  {log} run 2 (pod-b): all_reduce on 1 node" in said.output
