"""gpuctl explain: names of every kind, in the forms that people type and paste."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
import yaml
from click.testing import CliRunner, Result

from gpuctl.cli.explain import explain
from gpuctl.core.errors import InvalidInput
from gpuctl.core.exit_codes import INVALID_INPUT, MEANINGS
from tests.unit.cli.test_completion import completed

README = Path(__file__).parents[3] / "README.md"


@pytest.fixture(autouse=True)
def _own_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GPUCTL_CONFIG_DIR", str(tmp_path))


def run(*words: str) -> Result:
    return CliRunner().invoke(explain, list(words))


def refusal(*words: str) -> InvalidInput:
    error = run(*words).exception
    assert isinstance(error, InvalidInput)
    assert error.exit_code == INVALID_INPUT
    return error


@pytest.mark.parametrize(
    ("words", "first_line"),
    [
        (["xid", "79"], "Xid 79  ROBUST_CHANNEL_GPU_HAS_FALLEN_OFF_THE_BUS"),
        (["xid 79"], "Xid 79  ROBUST_CHANNEL_GPU_HAS_FALLEN_OFF_THE_BUS"),
        (["xid:79"], "Xid 79  ROBUST_CHANNEL_GPU_HAS_FALLEN_OFF_THE_BUS"),
        (["Xid79"], "Xid 79  ROBUST_CHANNEL_GPU_HAS_FALLEN_OFF_THE_BUS"),
        (["79"], "Xid 79  ROBUST_CHANNEL_GPU_HAS_FALLEN_OFF_THE_BUS"),
        (["gsp_rpc_timeout"], "Xid 119  GSP_RPC_TIMEOUT"),
        (["robust_channel_gr_exception"], "Xid 13  ROBUST_CHANNEL_GR_EXCEPTION / ROBUST_CHANNEL_GR_ERROR_SW_NOTIFY"),
        (["sxid", "20034"], "SXid 20034  DLPL_LTSSM_FAULT_UP"),
        (["20034"], "SXid 20034  DLPL_LTSSM_FAULT_UP"),
        (["0x40"], "hw_thermal_slowdown  HW Thermal Slowdown"),
        (["0x0000000000000040"], "hw_thermal_slowdown  HW Thermal Slowdown"),
        (["hw_thermal_slowdown"], "hw_thermal_slowdown  HW Thermal Slowdown"),
        (["HW", "Thermal", "Slowdown"], "hw_thermal_slowdown  HW Thermal Slowdown"),
        (["clocks_throttle_reasons.hw_thermal_slowdown"], "hw_thermal_slowdown  HW Thermal Slowdown"),
        (["dcgm", "118"], "DCGM error 118  SRAM_THRESHOLD"),
        (["DCGM_FR_SRAM_THRESHOLD"], "DCGM error 118  SRAM_THRESHOLD"),
        (["dcgm:sram_threshold"], "DCGM error 118  SRAM_THRESHOLD"),
        (["exit", "3"], "exit code 3  gpuctl"),
        (["exit code 130"], "exit code 130  gpuctl"),
        (["exit", "137"], "exit code 137  SIGKILL"),
        (["exit", "226"], "exit code 226  dcgmi diag"),
        (["knob", "sysctl.vm.swappiness"], "sysctl.vm.swappiness  inference"),
    ],
)
def test_a_name_of_any_form_is_explained(words: list[str], first_line: str) -> None:
    result = run(*words)
    assert result.exit_code == 0, result.exception
    assert result.output.splitlines()[0] == first_line


def test_an_explanation_has_meaning_action_and_source() -> None:
    lines = run("xid", "79").output.splitlines()
    texts = dict(re.split(r": +", line.strip(), maxsplit=1) for line in lines[1:])
    assert texts["meaning"].startswith("The GPU fell off the PCIe bus")
    assert texts["action"].startswith("drain the node and reboot it")
    assert texts["immediate"] == "RESTART_BM"
    assert texts["read back"] == 'journalctl -k | grep "Xid.*: 79,"'
    assert "docs.nvidia.com" in texts["source"]


def test_a_mask_explains_each_of_its_bits() -> None:
    heads = [line for line in run("0x244").output.splitlines() if line and not line.startswith(" ")]
    assert heads == ["sw_power_cap  SW Power Cap", "hw_thermal_slowdown  HW Thermal Slowdown", "0x200  unknown bits"]
    assert refusal("0x200").wrong == "unknown name"


def test_a_knob_is_explained_by_every_profile_that_sets_it() -> None:
    rows = json.loads(run("sysctl.vm.swappiness", "--output", "json").output)
    profiles = {row["details"]["profile"]: row["details"]["value"] for row in rows}
    assert profiles["training"] == "0"
    assert profiles["minimal"] == "10"
    assert all(row["kind"] == "knob" and row["source"] and row["meaning"] for row in rows)


def test_json_and_yaml_have_the_same_values() -> None:
    plain = json.loads(run("xid", "48", "-o", "json").output)
    assert yaml.safe_load(run("xid", "48", "-o", "yaml").output) == plain
    assert plain[0]["details"] == {"immediate": "WORKFLOW_XID_48", "investigatory": "WORKFLOW_XID_48"}
    assert plain[0]["action"].startswith("reset the GPU, then read its row remaps")


@pytest.mark.parametrize(
    ("words", "hint"),
    [
        (["hw_thermal_slowdwn"], "did you mean hw_thermal_slowdown?"),
        (["throttle", "hw_thermal_slowdwn"], "did you mean hw_thermal_slowdown?"),
        (["sysctl.vm.swapiness"], "did you mean sysctl.vm.swappiness?"),
        (["dcgm", "SRAM_THRESHLD"], "did you mean SRAM_THRESHOLD?"),
        (["GSP_RPC_TIMOUT"], "did you mean GSP_RPC_TIMEOUT?"),
        (["exit", "33"], "did you mean 3?"),
        (["xid", "999"], "if a kernel log has it, contact NVIDIA support with the output of nvidia-bug-report.sh"),
        (["zzzzzz"], "names look like these: "),
        ([""], "names look like these: "),
    ],
)
def test_an_unknown_name_is_refused_with_the_closest_one(words: list[str], hint: str) -> None:
    assert refusal(*words).hint.startswith(hint)


def test_a_broken_profile_is_named_where_a_knob_is_explained_and_matters_to_nothing_else(tmp_path: Path) -> None:
    (tmp_path / "profiles").mkdir()
    (tmp_path / "profiles/site.yml").write_text("about: x\nknbs: {}\n")
    assert run("xid", "79").exit_code == 0
    assert "site.yml:2" in refusal("knob", "sysctl.vm.swappiness").wrong


def test_the_exit_codes_of_the_readme_are_explained() -> None:
    documented = [int(code) for code in re.findall(r"^\| (\d+) \|", README.read_text(), re.MULTILINE)]
    assert documented == [0, 1, 2, 3, 4, 130, 141]
    assert set(documented) <= set(MEANINGS)


def test_names_are_completed() -> None:
    assert "throttle" in completed("explain", "thr")
    assert completed("explain", "hw_t") == ["hw_thermal_slowdown"]
    assert completed("explain", "xid", "17") == ["17", "170", "171", "172", "173", "174", "175", "176"]
    assert completed("explain", "dcgm", "13") == ["13", "130", "131", "132"]
