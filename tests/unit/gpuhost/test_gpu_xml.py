"""nvidia-smi's XML of a faulty GPU: an error text never counts as a value."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.gpuctl.fleet.plugins.module_utils.gpuhost.facts import gpu_xml

from tests.rig.recordings import recording

DATA = Path(__file__).parents[2] / "data"
H100 = (DATA / "nvidia-smi/570-h100-8gpu.xml").read_text()
ERRORS = ["[GPU requires reset]", "GPU requires reset", "[Unknown Error]", "ERR!", "GPU is lost", "[GPU is lost]"]


def first_gpu(element: str, value: str, text: str) -> dict[str, Any]:
    """GPU 0 of the machine with one value replaced; the other GPUs stay as they were."""
    before = f"<{element}>{value}</{element}>"
    assert before in H100
    gpus = gpu_xml.parse(H100.replace(before, f"<{element}>{text}</{element}>", 1))["gpus"]
    assert all(not gpu["errors"] and not gpu["unread"] for gpu in gpus[1:])
    return dict(gpus[0])


@pytest.mark.parametrize("text", ERRORS)
@pytest.mark.parametrize(
    ("element", "value", "name"),
    [
        ("remapped_row_pending", "No", "remap_pending"),
        ("remapped_row_failure", "No", "remap_failure"),
        ("remapped_row_unc", "0", "remapped"),
        ("dram_uncorrectable", "0", "uncorrectable"),
        ("current_ecc", "Enabled", "ecc"),
        ("gpu_util", "0 %", "busy_percent"),
        ("clocks_event_reason_hw_slowdown", "Not Active", "slowed_by"),
        ("state", "Completed", "fabric_state"),
    ],
)
def test_an_error_in_place_of_a_value_is_no_value(element: str, value: str, name: str, text: str) -> None:
    gpu = first_gpu(element, value, text)
    assert gpu[name] is None
    assert text in gpu["unread"][name]
    assert [(path.rpartition("/")[2], error) for path, error in gpu["errors"].items()] == [(element, text)]


@pytest.mark.parametrize("text", ERRORS)
def test_an_error_is_noticed_where_nothing_else_is_read(text: str) -> None:
    assert first_gpu("gpu_temp", "33 C", text)["errors"] == {"temperature/gpu_temp": text}


@pytest.mark.parametrize("text", ["[N/A]", "N/A", "[Not Supported]", ""])
def test_a_value_that_the_gpu_does_not_have_is_missing_and_no_error(text: str) -> None:
    gpu = first_gpu("remapped_row_pending", "No", text)
    assert gpu["remap_pending"] is None
    assert not gpu["errors"]


@pytest.mark.parametrize("text", ["Maybe", "Insufficient Permissions", "[Insufficient Permissions]", "yes", "0"])
def test_only_yes_and_no_count_for_a_boolean_value(text: str) -> None:
    gpu = first_gpu("remapped_row_failure", "No", text)
    assert gpu["remap_failure"] is None
    assert gpu["unread"] == {"remap_failure": text}


@pytest.mark.parametrize("text", ["7\u02d9\u01d90 W", "7?0.00 W", "700..00 W", "70 0 W", "7\u0660\u0660 W"])
def test_a_damaged_number_is_no_smaller_number(text: str) -> None:
    gpu = first_gpu("default_power_limit", "700.00 W", text)
    assert (gpu["default_power_limit_w"], gpu["unread"]) == (None, {"default_power_limit_w": text})


@pytest.mark.parametrize("text", ["N/A", "[Unknown Error]", ""])
def test_a_sum_without_one_of_its_parts_is_unknown_unless_the_rest_shows_errors(text: str) -> None:
    assert first_gpu("sram_uncorrectable_parity", "0", text)["uncorrectable"] is None
    with_errors = H100.replace("<dram_uncorrectable>0<", "<dram_uncorrectable>3<", 1)
    part = with_errors.replace("<sram_uncorrectable_parity>0<", f"<sram_uncorrectable_parity>{text}<", 1)
    assert gpu_xml.parse(part)["gpus"][0]["uncorrectable"] == 3


def test_gpus_before_the_a100_count_double_bit_errors() -> None:
    """In the form of a Tesla P100: some memories have no counter, but their total has one."""
    counters = "<double_bit><l1_cache>N/A</l1_cache><device_memory>2</device_memory><total>2</total></double_bit>"
    log = "<nvidia_smi_log><gpu><ecc_errors><volatile>{}</volatile></ecc_errors></gpu></nvidia_smi_log>"
    assert gpu_xml.parse(log.format(counters))["gpus"][0]["uncorrectable"] == 2
    unread = counters.replace("<total>2", "<total>ERR!")
    assert gpu_xml.parse(log.format(unread))["gpus"][0]["uncorrectable"] is None


@pytest.mark.parametrize("text", ["[Unknown Error]", "Insufficient Permissions", "N/A"])
def test_processes_that_cannot_be_listed_are_unknown_and_not_none(text: str) -> None:
    assert "<processes>" in H100
    head, _, rest = H100.partition("<processes>")
    _, _, tail = rest.partition("</processes>")
    gpus = gpu_xml.parse(f"{head}<processes>{text}</processes>{tail}")["gpus"]
    assert gpus[0]["processes"] is None
    assert gpus[1]["processes"] == []


def test_the_name_of_a_process_is_no_error_of_the_gpu() -> None:
    row = "<process_info><pid>12</pid><type>C</type><process_name>[Unknown Error]</process_name></process_info>"
    head, _, rest = H100.partition("<processes>")
    gpu = gpu_xml.parse(f"{head}<processes>{row}{rest}")["gpus"][0]
    assert gpu["errors"] == {}
    assert [process["pid"] for process in gpu["processes"] or ()] == [12]


def assert_no_errors(text: str) -> None:
    gpus = gpu_xml.parse(text)["gpus"]
    assert gpus
    assert [gpu["errors"] for gpu in gpus] == [{}] * len(gpus)


@pytest.mark.parametrize("name", ["510-a100-mig", "516-rtx3070-desktop", "570-h100-8gpu"])
def test_healthy_gpus_have_no_errors(name: str) -> None:
    assert_no_errors((DATA / f"nvidia-smi/{name}.xml").read_text())


@pytest.mark.parametrize("name", ["x_a100-sxm4-mig", "x_rtx-2080-win", "x_h100_8g_driver570"])
def test_recorded_gpus_have_no_errors(name: str) -> None:
    assert_no_errors(recording(f"nvidia-smi/{name}.xml").read_text())


@pytest.mark.parametrize(
    ("tag", "text", "unrepairable", "pending", "unread"),
    [
        ("unrepairable_memory", "Yes", True, None, {}),
        ("unrepairable_memory", "No", False, None, {}),
        ("unrepairable_memory", "N/A", None, None, {}),
        ("unrepairable_memory", "Perhaps", None, None, {"unrepairable": "Perhaps"}),
        ("tpc_repair_pending", "Yes", None, True, {}),
        (
            "channel_repair_pending", "No</channel_repair_pending><tpc_repair_pending>No</tpc_repair_pending>", None,
            False, {},
        ),
    ],
)  # fmt: skip
def test_repairs_that_newer_drivers_report(
    tag: str, text: str, unrepairable: bool | None, pending: bool | None, unread: dict[str, str]
) -> None:
    element = f"<{tag}>{text}" if text.endswith(">") else f"<{tag}>{text}</{tag}>"
    gpu = gpu_xml.parse(H100.replace("<ecc_errors>", f"<ecc_errors>{element}", 1))["gpus"][0]
    assert (gpu["unrepairable"], gpu["repair_pending"], gpu["unread"]) == (unrepairable, pending, unread)


def t4(driver: str) -> str:
    """GPUs of the machine as T4 print themselves: SRAM is counted together, and no rows are remapped."""
    gone = "sram_uncorrectable_secded|sram_threshold_exceeded|gpu_recovery_action"
    text = re.sub(rf"\s*<({gone})>.*?</\1>", "", H100)
    text = text.replace("sram_uncorrectable_parity", "sram_uncorrectable")
    text = re.sub(r"<(remapped_rows)>.*?</\1>", r"<\1>N/A</\1>", text, flags=re.DOTALL)
    return text.replace("570.86.15", driver)


@pytest.mark.parametrize("driver", ["510.47.03", "535.161.08", "580.82.09", "595.80"])
def test_a_gpu_before_the_a100_needs_no_values_that_its_kind_never_has(driver: str) -> None:
    gpus = gpu_xml.parse(t4(driver))["gpus"]
    assert [gpu["unread"] for gpu in gpus] == [{}] * 8
    assert {gpu["uncorrectable"] for gpu in gpus} == {0}


@pytest.mark.parametrize(
    ("element", "name", "driver", "due"),
    [
        ("sram_threshold_exceeded", "sram_threshold", "535.161.08", True),
        ("sram_threshold_exceeded", "sram_threshold", "525.125.06", False),
        ("remapped_row_pending", "remap_pending", "510.47.03", True),
        ("remapped_row_pending", "remap_pending", "470.57.02", False),
        ("row_remapper_histogram_none", "banks_without_reserve", "470.57.02", False),
        ("gpu_recovery_action", "recovery", "560.35.03", False),
        ("gpu_recovery_action", "recovery", "570.86.15", True),
    ],
)
def test_a_value_is_due_from_the_oldest_driver_that_is_known_to_print_it(
    element: str, name: str, driver: str, due: bool
) -> None:
    text = re.sub(rf"\s*<{element}>.*?</{element}>", "", H100).replace("570.86.15", driver)
    assert [gpu["unread"] for gpu in gpu_xml.parse(text)["gpus"]] == [{name: gpu_xml.DAMAGED} if due else {}] * 8


def test_a_log_without_its_section_of_remapped_rows_is_damaged() -> None:
    """Lines of the section would else count as those of the one before it."""
    text = re.sub(r"<remapped_rows>.*?</remapped_rows>", "", H100, flags=re.DOTALL)
    unread = gpu_xml.parse(text)["gpus"][0]["unread"]
    assert unread == dict.fromkeys(("remap_pending", "remap_failure", "remapped"), gpu_xml.DAMAGED)
