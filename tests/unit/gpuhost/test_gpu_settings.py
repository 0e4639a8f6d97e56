"""Settings of GPUs on trees with a stand-in for nvidia-smi: set, kept over boots and driver loads, refused, undone."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from ansible_collections.gpuctl.fleet.plugins.module_utils.gpuhost import gpu_boot
from ansible_collections.gpuctl.fleet.plugins.module_utils.gpuhost.host import Host
from ansible_collections.gpuctl.fleet.plugins.module_utils.gpuhost.smi import FIELDS

from tests.rig.trees.gpus import (
    A100,
    H100,
    H200,
    REPLAY,
    T4,
    TITAN,
    UNIT_OF_UBUNTU,
    gpu_server,
    gpu_state,
    lost,
    reboot,
    reload_driver,
    smi,
    uuid,
)
from tests.rig.trees.host import Counting, TreeHost, changed, content, put, states, tune, undo, units

ALL = {
    "gpu.persistence": "on",
    "gpu.power_limit": "500",
    "gpu.graphics_clock": "1410,1980",
    "gpu.memory_clock": "2619,2619",
    "gpu.compute_mode": "exclusive_process",
}
DROP_IN = "etc/systemd/system/nvidia-persistenced.service.d/50-gpuctl.conf"
VOLATILE = ("gpu.persistence", "gpu.power_limit")


def knob(answer: dict[str, Any], name: str) -> dict[str, Any]:
    return next(row for row in answer["knobs"] if row["knob"] == name)


def settled_content(root: Path) -> dict[str, str]:
    """Files of the tree, without those of the stand-ins."""
    ignored = (REPLAY[1:], "run/standin-units.json")
    return {path: text for path, text in content(root).items() if not path.startswith(ignored)}


def test_check_promises_what_a_run_changes_and_a_second_run_changes_nothing(tmp_path: Path) -> None:
    root = gpu_server(tmp_path)
    smi(root, "-e", "1")  # the stand-in writes its file
    before = content(root)
    promised = changed(tune(root, ALL, check=True))
    assert content(root) == before
    answer = tune(root, ALL)
    assert {row["knob"] for row in answer["knobs"] if row["changed"]} == promised == {*ALL, "program.gpuctl-gpu"}
    assert set(states(answer).values()) == {"ok"}
    assert changed(tune(root, ALL)) == set()
    for index in (0, 1):
        state = gpu_state(root, index)
        assert (state["persistence"], state["power"], state["lgc"], state["lmc"], state["compute_mode"]) == (
            "Enabled",
            500.0,
            "1410,1980",
            "2619,2619",
            "Exclusive_Process",
        )


def test_undo_restores_every_gpu_and_leaves_no_file(tmp_path: Path) -> None:
    root = gpu_server(tmp_path)
    smi(root, "-i", "1", "-pl", "600")
    before, state = settled_content(root), [gpu_state(root, index) for index in (0, 1)]
    tune(root, ALL)
    assert set(states(undo(root)).values()) == {"ok"}
    assert settled_content(root) == before
    assert [gpu_state(root, index) for index in (0, 1)] == [{**state[0], "power": 700.0}, state[1]]


def test_a_boot_loses_the_settings_and_gpuctl_gpu_sets_them_again(tmp_path: Path) -> None:
    root = gpu_server(tmp_path)
    tune(root, ALL)
    before = gpu_state(root)
    lost(root)
    assert gpu_state(root)["power"] is None
    assert gpu_boot.main([], TreeHost(root)) == 0
    assert gpu_state(root) == before
    assert set(states(tune(root, ALL, check=True)).values()) == {"ok"}


def test_gpuctl_gpu_changes_nothing_on_a_second_run(tmp_path: Path) -> None:
    root = gpu_server(tmp_path)
    tune(root, ALL)
    host = Counting(root)
    assert gpu_boot.main([], host) == 0
    assert [command for command in host.started if "--query" not in command] == []


def test_a_reloaded_driver_has_unlocked_the_clocks_although_it_does_not_show_them(tmp_path: Path) -> None:
    root = gpu_server(tmp_path)
    tune(root, ALL)
    reload_driver(root)
    assert {"gpu.graphics_clock", "gpu.memory_clock", "gpu.power_limit"} <= changed(tune(root, ALL, check=True))
    assert gpu_boot.main([], TreeHost(root)) == 0
    assert changed(tune(root, ALL, check=True)) == set()


def test_a_clock_above_the_locked_range_proves_that_somebody_reset_it(tmp_path: Path) -> None:
    root = gpu_server(tmp_path)
    knobs = {"gpu.persistence": "on", "gpu.graphics_clock": "345,400"}
    tune(root, knobs)
    smi(root, "-i", "0", "-lgc", "1980,1980")
    assert "gpu.graphics_clock" in changed(tune(root, knobs, check=True))


@pytest.mark.parametrize("name", ["gpu.power_limit", "gpu.graphics_clock"])
def test_without_persistence_a_setting_that_the_driver_would_forget_is_refused(tmp_path: Path, name: str) -> None:
    answer = tune(gpu_server(tmp_path), {name: ALL[name]})
    assert knob(answer, name)["state"] == "refused"
    assert "set persistence: on as well" in knob(answer, name)["reason"]


@pytest.mark.parametrize(
    ("name", "value", "reason"),
    [
        ("gpu.power_limit", "900", "takes a power limit from 200 to 700 W, not 900"),
        ("gpu.graphics_clock", "1410,2500", "ends at 1980 MHz"),
    ],
)
def test_a_value_that_the_gpu_does_not_take_is_refused_before_anything_is_set(
    tmp_path: Path, name: str, value: str, reason: str
) -> None:
    root = gpu_server(tmp_path)
    answer = tune(root, {"gpu.persistence": "on", name: value})
    assert (knob(answer, name)["state"], reason in knob(answer, name)["reason"]) == ("refused", True)
    assert gpu_state(root)["power"] is None


def test_a_setting_that_the_gpu_does_not_have_is_unsupported_although_nvidia_smi_ends_with_0(tmp_path: Path) -> None:
    answer = tune(gpu_server(tmp_path, TITAN), {"gpu.persistence": "on", "gpu.power_limit": "200", "gpu.ecc": "on"})
    assert knob(answer, "gpu.power_limit")["state"] == "unsupported"
    assert knob(answer, "gpu.ecc")["state"] == "unsupported"


def test_a_refused_permission_is_a_failure_with_nvidias_words(tmp_path: Path) -> None:
    root = gpu_server(tmp_path, H100)
    put(root, f"{REPLAY}/no_permission", "")
    answer = tune(root, {"gpu.persistence": "on"})
    assert knob(answer, "gpu.persistence")["state"] == "failed"
    assert "Insufficient Permissions" in knob(answer, "gpu.persistence")["reason"]


def test_the_distributions_unit_that_switches_persistence_off_gets_a_drop_in(tmp_path: Path) -> None:
    root = gpu_server(tmp_path)
    put(root, "/usr/lib/systemd/system/nvidia-persistenced.service", UNIT_OF_UBUNTU)
    tune(root, {"gpu.persistence": "on"})
    lines = (root / DROP_IN).read_text().splitlines()
    assert lines[-2:] == [
        "ExecStart=",
        "ExecStart=/usr/bin/nvidia-persistenced --user nvidia-persistenced --verbose --persistence-mode",
    ]
    undo(root)
    assert not (root / DROP_IN).parent.exists()


def test_ecc_is_pending_until_the_next_boot(tmp_path: Path) -> None:
    root = gpu_server(tmp_path)
    answer = tune(root, {"gpu.ecc": "off"})
    row = knob(answer, "gpu.ecc")
    assert (row["state"], row["reboot"], row["now"], row["boot"]) == ("pending", True, "on", "off")
    reboot(root)
    assert knob(tune(root, {"gpu.ecc": "off"}, check=True), "gpu.ecc")["state"] == "ok"
    undo(root)
    assert gpu_state(root)["ecc"] == ["Disabled", "Enabled"]


def test_a_compute_mode_left_behind_without_mps_is_named(tmp_path: Path) -> None:
    root = gpu_server(tmp_path)
    smi(root, "-i", "1", "-c", "EXCLUSIVE_PROCESS")
    row = knob(tune(root, {"gpu.compute_mode": "default"}, check=True), "gpu.compute_mode")
    assert (row["state"], row["now"]) == ("differs", "default on 1 GPU, exclusive_process on 1 GPU")
    assert "left behind" in row["notes"][0]
    put(root, "/proc/77/comm", "nvidia-cuda-mps\n")
    assert knob(tune(root, {"gpu.compute_mode": "default"}, check=True), "gpu.compute_mode")["notes"] == []


def test_a_power_limit_that_somebody_else_set_since_is_a_conflict(tmp_path: Path) -> None:
    root = gpu_server(tmp_path, H100)
    tune(root, {name: ALL[name] for name in VOLATILE})
    smi(root, "-pl", "400")
    answer = undo(root, only=["gpu.power_limit"])
    assert knob(answer, "gpu.power_limit")["state"] == "conflict"
    assert "is 400, neither ours (500) nor what it was" in knob(answer, "gpu.power_limit")["reason"]


def test_a_gpu_that_is_gone_needs_no_undo(tmp_path: Path) -> None:
    root = gpu_server(tmp_path)
    tune(root, {"gpu.persistence": "on"})
    (root / "proc/driver/nvidia/gpus/0000:11:00.0/information").unlink()
    (root / "proc/driver/nvidia/gpus/0000:11:00.0").rmdir()
    assert set(states(undo(root)).values()) == {"ok"}
    assert gpu_state(root)["persistence"] == "Disabled"


def test_a_line_of_a_unit_that_sets_another_limit_is_named_and_loses(tmp_path: Path) -> None:
    root = gpu_server(tmp_path, H100)
    units(root, power__service={"boot": "enabled", "now": "inactive"})
    put(root, "/etc/systemd/system/power.service", "[Service]\nExecStart=/usr/bin/nvidia-smi -i 0 -pl 350\n")
    row = knob(tune(root, {name: ALL[name] for name in VOLATILE}), "gpu.power_limit")
    assert row["state"] == "ok"
    assert [(c["owner"], c["where"], c["wins"]) for c in row["conflicts"]] == [
        ("unit", "/etc/systemd/system/power.service:2", False)
    ]


def test_a_setting_that_is_left_out_is_undone_and_the_boot_program_goes_with_the_last(tmp_path: Path) -> None:
    root = gpu_server(tmp_path, H100)
    before = settled_content(root)
    tune(root, ALL, scope="gpu_settings")
    tune(root, {"gpu.persistence": "on"}, scope="gpu_settings")
    assert gpu_state(root)["power"] == 700.0
    assert (root / "usr/local/sbin/gpuctl-gpu").exists()
    tune(root, {}, scope="gpu_settings")
    assert settled_content(root) == before


def test_a_profile_and_gpu_settings_are_tuned_in_one_visit_and_undone_apart(tmp_path: Path) -> None:
    root = gpu_server(tmp_path, H100)
    rows = [{"name": "gpu.persistence", "value": "on", "why": "test", "source": "test"}]
    swappiness = {"name": "sysctl.vm.swappiness", "value": "1", "why": "test", "source": "test"}
    from ansible_collections.gpuctl.fleet.plugins.module_utils.gpuhost.api import visit

    profile = {"name": "test", "knobs": [swappiness], "gpu_settings": rows}
    answer = visit({"action": "tune", "profile": profile, "actor": "tester"}, TreeHost(root))
    assert set(states(answer)) == {"sysctl.vm.swappiness", "gpu.persistence", "program.gpuctl-gpu"}
    # The profile alone leaves the GPUs as they are; an empty gpu_settings gives them back.
    assert set(states(tune(root, {"sysctl.vm.swappiness": "1"}))) == {"sysctl.vm.swappiness"}
    assert gpu_state(root)["persistence"] == "Enabled"
    visit({"action": "tune", "profile": {**profile, "gpu_settings": []}, "actor": "tester"}, TreeHost(root))
    assert gpu_state(root)["persistence"] == "Disabled"
    assert (root / "proc/sys/vm/swappiness").read_text() == "1\n"


@pytest.mark.parametrize(
    ("smi_text", "state"),
    [
        ("NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver.", "unknown"),
        ("Unable to determine the device handle for GPU0000:10:00.0: GPU is lost.", "unknown"),
    ],
)
def test_a_driver_that_does_not_answer_is_unknown(tmp_path: Path, smi_text: str, state: str) -> None:
    root = gpu_server(tmp_path)
    put(root, f"{REPLAY}/fails", smi_text)
    row = knob(tune(root, {"gpu.persistence": "on"}), "gpu.persistence")
    assert (row["state"], smi_text in row["reason"]) == (state, True)


def test_a_host_without_nvidia_smi_is_unsupported(tmp_path: Path) -> None:
    root = gpu_server(tmp_path)
    (root / "usr/bin/nvidia-smi").unlink()
    assert states(tune(root, {"gpu.persistence": "on"}, check=True))["gpu.persistence"] == "unsupported"


def test_all_gpus_are_read_by_one_question(tmp_path: Path) -> None:
    root = gpu_server(tmp_path, *[H100] * 8)
    tune(root, ALL)
    host = Counting(root)
    assert changed(tune(root, ALL, host)) == set()
    assert [command.split()[1].partition("=")[0] for command in host.started if "nvidia-smi" in command] == [
        "--query-gpu"
    ]


def test_a_line_that_is_no_setting_is_reported_and_does_not_stop_the_others(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    root = gpu_server(tmp_path, T4)
    put(root, gpu_boot.CONFIG, "# ours\ngpu.colour red\ngpu.power_limit 900\ngpu.persistence on\n")
    assert gpu_boot.main([], TreeHost(root)) == 1
    errors = capsys.readouterr().err
    assert "gpu.colour is no setting" in errors
    assert "GPU 0: Provided power limit 900.00 W is not a valid power limit" in errors
    assert gpu_state(root)["persistence"] == "Enabled"


def test_a_host_without_settings_is_left_alone(tmp_path: Path) -> None:
    assert gpu_boot.main([], Host(tmp_path)) == 0
    assert list(tmp_path.rglob("*")) == []


def test_the_row_of_a_real_gpu_is_read(tmp_path: Path) -> None:
    """As an H200 answered the question of `smi.FIELDS`; driver 580.159.04, another UUID."""
    row = (
        "0, GPU-00000000-0000-4000-8000-000000000001, 00000000:00:06.0, NVIDIA H200, 0x233510DE, Enabled, Default, "
        "700.00, 700.00, 200.00, 700.00, Enabled, Enabled, Disabled, Disabled, 1980, 3201, 345, 3201"
    )
    root = gpu_server(tmp_path, H200)
    smi(root, "-pm", "1")
    assert smi(root, f"--query-gpu={','.join(FIELDS)}", "--format=csv,noheader,nounits").split(", ")[3:] == [
        *row.split(", ")[3:-1],
        "3201\n",
    ]
    put(root, "/usr/bin/nvidia-smi", f"#!/bin/sh\necho '{row}'\n", 0o755)
    knobs = {"gpu.persistence": "on", "gpu.ecc": "on", "gpu.power_limit": "700", "gpu.compute_mode": "default"}
    rows = {row["knob"]: row["now"] for row in tune(root, knobs, check=True)["knobs"]}
    assert [rows[name] for name in knobs] == ["on", "on", "700", "default"]


def test_uuids_name_the_settings_so_that_another_order_of_gpus_does_not_matter(tmp_path: Path) -> None:
    root = gpu_server(tmp_path, A100, A100)
    answer = tune(root, {"gpu.persistence": "on"}, check=True)
    settings = [step["setting"] for step in knob(answer, "gpu.persistence")["steps"]]
    assert [f"gpu:{uuid(index)}:persistence" in settings for index in (0, 1)] == [True, True]
