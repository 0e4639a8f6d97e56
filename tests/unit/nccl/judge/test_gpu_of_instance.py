"""A log of one machine type is not judged as another, and --strict counts warnings."""

from __future__ import annotations

from dataclasses import replace

import pytest
from click.testing import CliRunner

from gpuctl.cli.nccl import judge as commands
from gpuctl.domain.findings import Finding, Verdict
from gpuctl.nccl import calibrate
from gpuctl.nccl.baselines.consistency import contradicted
from gpuctl.nccl.context import RunContext
from tests.rig.nccl.judged import GIB, HEALTHY, P5EN, SHIPPED, found, recorded, run
from tests.rig.nccl.recorded import path


@pytest.mark.parametrize(
    ("name", "system", "message"),
    [
        ("a100_8g_allreduce_old_unchecked.log", "p5.48xlarge", "it has H100 GPUs, the log lists A100"),
        ("h100_2n16g_allreduce.log", "p4d.24xlarge", "it has A100 GPUs, the log lists H100"),
        ("sb_a100_8gpu_allreduce.log", "p5.48xlarge", "it has H100 GPUs, the log lists A100"),
        ("oci_h100_2n16g_allreduce.log", "p4d.24xlarge", "it has A100 GPUs, the log lists H100"),
    ],
)
def test_a_log_of_other_gpus_does_not_pass_as_a_machine_type(name: str, system: str, message: str) -> None:
    assert any(message in one for one in contradicted(recorded(name), RunContext(system), SHIPPED))
    result = CliRunner().invoke(commands.judge, ["--instance", system, str(path(name))])
    assert result.exit_code != 0
    assert message in str(result.exception)


def test_a_run_of_ours_on_other_gpus_is_no_proof_either() -> None:
    a100 = tuple(replace(rank, gpu="NVIDIA A100-SXM4-80GB") for rank in HEALTHY.ranks)
    (finding,) = found(replace(HEALTHY, ranks=a100), "machine")
    assert finding.verdict is Verdict.UNKNOWN
    assert "it has H200 GPUs, the log lists A100" in finding.message


@pytest.mark.parametrize("gpu", ["Tesla T4", "AMD Instinct MI300X"])
def test_gpus_of_a_name_that_is_no_known_model_are_others(gpu: str) -> None:
    others = replace(HEALTHY, ranks=tuple(replace(rank, gpu=gpu) for rank in HEALTHY.ranks))
    (finding,) = found(others, "machine")
    assert f"the log lists {gpu}" in finding.message


@pytest.mark.parametrize(
    ("gpu", "listed"),
    [("NVIDIA H200 NVL", "H200 NVL"), ("NVIDIA H100 PCIe", "H100 PCIe"), ("NVIDIA A100-PCIE-40GB", "A100 PCIe")],
)
def test_boards_for_a_slot_are_not_those_of_a_machine_with_nvswitches(gpu: str, listed: str) -> None:
    others = replace(HEALTHY, ranks=tuple(replace(rank, gpu=gpu) for rank in HEALTHY.ranks))
    (finding,) = found(others, "machine")
    assert finding.message.endswith(f"it has H200 GPUs, the log lists {listed}")


def test_a_site_of_its_own_is_held_to_the_gpus_that_it_was_measured_on() -> None:
    measured = replace(SHIPPED.rows[0], systems=("ours",), measured={"gpu": "NVIDIA H200"}, site=True)
    book = replace(SHIPPED, rows=(measured, *SHIPPED.rows))
    assert contradicted(HEALTHY, RunContext("ours"), book) == []
    a100 = tuple(replace(rank, gpu="NVIDIA A100-SXM4-80GB") for rank in HEALTHY.ranks)
    assert contradicted(replace(HEALTHY, ranks=a100), RunContext("ours"), book) != []


def test_gpus_of_the_machine_type_or_of_an_unknown_one_contradict_nothing() -> None:
    assert contradicted(HEALTHY, P5EN, SHIPPED) == []
    assert contradicted(recorded("a100_8g_allreduce_old_unchecked.log"), RunContext("our-own-machines"), SHIPPED) == []


@pytest.mark.parametrize(("strict", "code"), [((), 0), (("--strict",), 1)])
def test_a_warning_fails_only_with_strict(monkeypatch: pytest.MonkeyPatch, strict: tuple[str, ...], code: int) -> None:
    warning = Finding("baseline", "", Verdict.WARN, "below the warn limit")
    monkeypatch.setattr("gpuctl.nccl.judge.run.judge", lambda *_: [warning])
    assert CliRunner().invoke(commands.judge, [*strict, str(path("h100_1n8g_allreduce.log"))]).exit_code == code


def test_an_unprinted_bandwidth_is_refused_and_never_taken_for_zero() -> None:
    runs = [run({4 * GIB: speed, 8 * GIB: speed}) for speed in (361.0, 362.0, 363.0)]
    rows = (runs[2].rows[0], replace(runs[2].rows[1], out_of_place=None))
    result = calibrate.calibrate([*runs[:2], replace(runs[2], rows=rows)], P5EN, SHIPPED)
    assert "run 3: it printed no bandwidth at 8 GiB" in result.refused
    assert " 0 GB/s" not in " ".join(result.refused)
