"""MIG layouts on trees: made by profile name, made again after boots and driver loads, refused, undone."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from ansible_collections.gpuctl.fleet.plugins.module_utils.gpuhost import gpu_boot, mig_layout, smi
from ansible_collections.gpuctl.fleet.plugins.module_utils.gpuhost.kinds import program

from tests.rig.recordings import recording
from tests.rig.trees.gpus import (
    A100,
    H100,
    REPLAY,
    T4,
    gpu_server,
    gpu_state,
    hold,
    lost,
    reload_driver,
)
from tests.rig.trees.gpus import smi as run_smi
from tests.rig.trees.host import (
    Counting,
    TreeHost,
    changed,
    link,
    put,
    states,
    tune,
    undo,
)

KNOB = "gpu.mig"
SEVEN = [{"gpus": "all", "instances": {"1g.10gb": 7}}]
MIXED = [{"gpus": [0], "instances": {"1g.10gb": 1, "3g.40gb": 1, "2g.20gb": 1}}]


def mig(root: Path, entries: object, **options: Any) -> dict[str, Any]:
    """The row of `gpu.mig` after a run."""
    answer = tune(root, {KNOB: _checked(entries)}, **options)
    return next(row for row in answer["knobs"] if row["knob"] == KNOB)


def _checked(entries: object) -> str:
    from ansible_collections.gpuctl.fleet.plugins.module_utils.gpuhost.kinds import gpu

    return gpu.TYPES["mig"].check(entries)


def instances(root: Path, index: int = 0) -> list[str]:
    return [one["profile"] for one in gpu_state(root, index)["instances"]]


def test_check_promises_what_a_run_makes_and_a_second_run_makes_nothing(tmp_path: Path) -> None:
    root = gpu_server(tmp_path)
    row = mig(root, SEVEN, check=True)
    assert (row["state"], row["now"], row["desired"]) == ("differs", "off", "1g.10gb:7")
    assert gpu_state(root)["mig"] == ["Disabled", "Disabled"]
    assert mig(root, SEVEN)["state"] == "ok"
    assert [instances(root, index) for index in (0, 1)] == [["1g.10gb"] * 7] * 2
    assert all(one["compute"] for one in gpu_state(root)["instances"])
    assert changed(tune(root, {KNOB: _checked(SEVEN)})) == set()


def test_a_mixed_layout_is_made_with_the_largest_instance_first_on_its_gpu_alone(tmp_path: Path) -> None:
    root = gpu_server(tmp_path)
    assert mig(root, MIXED)["state"] == "ok"
    assert instances(root) == ["3g.40gb", "2g.20gb", "1g.10gb"]
    assert gpu_state(root, 1)["mig"] == ["Disabled", "Disabled"]


@pytest.mark.parametrize("model", [H100, A100])
def test_after_a_boot_mode_and_instances_are_made_again_whatever_the_gpu_has_kept(tmp_path: Path, model: str) -> None:
    root = gpu_server(tmp_path, model)
    layout = [{"instances": {"1g.10gb": 4 if model == A100 else 7}}]
    mig(root, layout)
    made = instances(root)
    lost(root)
    assert gpu_state(root)["mig"][0] == ("Enabled" if model == A100 else "Disabled")
    assert instances(root) == []
    assert gpu_boot.main([], TreeHost(root)) == 0
    assert instances(root) == made
    assert mig(root, layout, check=True)["state"] == "ok"


def test_after_a_driver_load_the_instances_are_made_again(tmp_path: Path) -> None:
    root = gpu_server(tmp_path, H100)
    mig(root, SEVEN)
    reload_driver(root)
    assert mig(root, SEVEN, check=True)["state"] == "differs"
    assert gpu_boot.main([], TreeHost(root)) == 0
    assert instances(root) == ["1g.10gb"] * 7


def test_gpuctl_gpu_leaves_instances_of_somebody_else(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    root = gpu_server(tmp_path, H100)
    mig(root, SEVEN)
    run_smi(root, "mig", "-i", "0", "-dci")
    run_smi(root, "mig", "-i", "0", "-dgi")
    run_smi(root, "mig", "-i", "0", "-cgi", "3g.40gb,3g.40gb", "-C")
    assert gpu_boot.main([], TreeHost(root)) == 1
    assert instances(root) == ["3g.40gb"] * 2
    assert "it has other instances (3g.40gb:2), which stay" in capsys.readouterr().err


def test_undo_removes_the_instances_and_the_mode(tmp_path: Path) -> None:
    root = gpu_server(tmp_path, H100)
    mig(root, SEVEN)
    assert set(states(undo(root)).values()) == {"ok"}
    assert (instances(root), gpu_state(root)["mig"]) == ([], ["Disabled", "Disabled"])


def test_undo_makes_the_instances_from_before(tmp_path: Path) -> None:
    root = gpu_server(tmp_path, H100)
    run_smi(root, "-mig", "1")
    run_smi(root, "mig", "-cgi", "3g.40gb,1g.20gb", "-C")
    mig(root, SEVEN)
    undo(root)
    assert instances(root) == ["3g.40gb", "1g.20gb"]


def test_a_gpu_that_a_program_holds_is_refused_and_the_program_named(tmp_path: Path) -> None:
    root = gpu_server(tmp_path)
    hold(root, 1, 4711, "nv-hostengine")
    row = mig(root, SEVEN)
    assert row["state"] == "refused"
    assert "GPU 1 is held by nv-hostengine (pid 4711): end these first" in row["reason"]
    assert gpu_state(root)["mig"] == ["Disabled", "Disabled"]


def test_the_persistence_daemon_holds_no_gpu_back(tmp_path: Path) -> None:
    root = gpu_server(tmp_path, H100)
    put(root, "/proc/9/comm", "nvidia-persiste\n")
    link(root, "/proc/9/fd/7", "/dev/nvidia0")
    assert mig(root, SEVEN)["state"] == "ok"


def test_a_holder_that_the_host_does_not_show_is_a_failure_and_leaves_no_pending_mode(tmp_path: Path) -> None:
    root = gpu_server(tmp_path, H100)
    put(root, f"{REPLAY}/in_use", "0")
    row = mig(root, SEVEN)
    assert row["state"] == "failed"
    assert "In use by another client: held by a program that this host does not show" in row["reason"]
    assert gpu_state(root)["mig"] == ["Disabled", "Disabled"]


def test_a_layout_stays_as_it_is_while_a_program_uses_it(tmp_path: Path) -> None:
    root = gpu_server(tmp_path, H100)
    mig(root, SEVEN)
    hold(root, 0, 4711, "python3")
    assert mig(root, SEVEN)["state"] == "ok"
    assert mig(root, [{"instances": {"3g.40gb": 2}}])["state"] == "refused"
    answer = undo(root)
    assert states(answer)[KNOB] == "failed"
    assert "held by python3 (pid 4711)" in next(r["reason"] for r in answer["knobs"] if r["knob"] == KNOB)
    assert instances(root) == ["1g.10gb"] * 7


@pytest.mark.parametrize(
    ("instances_of", "reason"),
    [
        ({"1g.5gb": 7}, "has no MIG profile 1g.5gb; it has 1g.10gb, 1g.20gb"),
        ({"3g.40gb": 3}, "holds 3g.40gb at most 2"),
        ({"3g.40gb": 2, "1g.10gb": 2}, "need 8 slices, NVIDIA H100 80GB HBM3 has 7"),
    ],
)
@pytest.mark.parametrize("mode", ["0", "1"])
def test_a_layout_that_the_gpu_cannot_have_is_refused_with_what_it_has(
    tmp_path: Path, instances_of: dict[str, int], reason: str, mode: str
) -> None:
    root = gpu_server(tmp_path, H100)
    run_smi(root, "-mig", mode)
    row = mig(root, [{"instances": instances_of}])
    assert (row["state"], reason in row["reason"]) == ("refused", True), row["reason"]


def test_a_layout_that_only_the_driver_refuses_leaves_the_instances_from_before(tmp_path: Path) -> None:
    root = gpu_server(tmp_path, H100)
    mig(root, MIXED)
    row = mig(root, [{"instances": {"3g.40gb": 2, "1g.10gb": 1}}])
    assert row["state"] == "failed"
    assert "it is 3g.40gb:1 2g.20gb:1 1g.10gb:1 again" in row["reason"]
    assert instances(root) == ["3g.40gb", "2g.20gb", "1g.10gb"]


def test_a_gpu_without_mig_is_unsupported_and_can_be_filtered_out(tmp_path: Path) -> None:
    root = gpu_server(tmp_path, T4, H100)
    row = mig(root, SEVEN)
    assert (row["state"], "Tesla T4) has no MIG: leave it out" in row["reason"]) == ("unsupported", True)
    for pattern in ("*H100*", "0x233010DE"):
        assert mig(root, [{"filter": [pattern], "instances": {"1g.10gb": 7}}])["state"] == "ok"
    assert instances(root, 1) == ["1g.10gb"] * 7


def test_two_entries_for_one_gpu_and_a_gpu_that_is_not_there_are_refused(tmp_path: Path) -> None:
    root = gpu_server(tmp_path)
    assert "two entries of mig are for GPU 0" in mig(root, [*SEVEN, *MIXED])["reason"]
    assert "this host has no GPU 5, only 2" in mig(root, [{"gpus": [5], "instances": "off"}])["reason"]


@pytest.mark.parametrize(
    ("path", "sign"),
    [
        ("/var/log/pods/gpu-operator_nvidia-mig-manager-x7k2p_0f0e/mig/0.log", "nvidia-mig-manager-x7k2p"),
        (
            "/etc/systemd/system/multi-user.target.wants/nvidia-mig-manager.service",
            "nvidia-mig-manager.service, enabled",
        ),
        ("/etc/default/kubelet", "the node label nvidia.com/mig.config in /etc/default/kubelet"),
    ],
)
def test_hands_off_where_a_mig_manager_rules(tmp_path: Path, path: str, sign: str) -> None:
    root = gpu_server(tmp_path, H100)
    put(root, path, 'KUBELET_EXTRA_ARGS="--node-labels=nvidia.com/mig.config=all-1g.10gb"\n')
    row = mig(root, SEVEN)
    assert (row["state"], sign in row["reason"]) == ("refused", True), row["reason"]
    assert gpu_state(root)["mig"] == ["Disabled", "Disabled"]


def test_where_the_gpu_cannot_be_reset_the_mode_waits_for_a_reboot_and_the_instances_follow(tmp_path: Path) -> None:
    root = gpu_server(tmp_path, A100)
    put(root, f"{REPLAY}/no_reset", "")
    layout = [{"instances": {"1g.5gb": 7}}]
    row = mig(root, layout)
    assert (row["state"], row["reboot"]) == ("pending", True)
    assert "at the next reboot" in row["reason"]
    assert changed(tune(root, {KNOB: _checked(layout)})) == set()
    lost(root)
    assert gpu_boot.main([], TreeHost(root)) == 0
    assert mig(root, layout, check=True)["state"] == "ok"


def test_a_reset_for_the_mode_loses_no_other_setting(tmp_path: Path) -> None:
    root = gpu_server(tmp_path, A100)
    knobs = {"gpu.persistence": "on", "gpu.power_limit": "300", "gpu.graphics_clock": "1000,1410"}
    tune(root, knobs)
    answer = tune(root, {**knobs, KNOB: _checked([{"instances": {"1g.5gb": 7}}])})
    assert set(states(answer).values()) == {"ok"}
    assert (gpu_state(root)["power"], gpu_state(root)["lgc"]) == (300.0, "1000,1410")


def test_compute_instances_of_somebody_else_are_not_taken_for_a_whole_layout(tmp_path: Path) -> None:
    root = gpu_server(tmp_path, H100)
    run_smi(root, "-mig", "1")
    run_smi(root, "mig", "-cgi", "3g.40gb,3g.40gb")
    row = mig(root, [{"instances": {"3g.40gb": 2}}])
    assert (row["state"], "with compute instances none" in row["reason"]) == ("refused", True)
    assert "nvidia-smi mig -i 0 -dci" in row["reason"]


def test_the_container_toolkits_list_is_refreshed(tmp_path: Path) -> None:
    root = gpu_server(tmp_path, H100)
    put(
        root,
        "/usr/lib/systemd/system/nvidia-cdi-refresh.service",
        "[Service]\nExecStart=/usr/bin/nvidia-ctk cdi generate\n",
    )
    host = Counting(root)
    mig(root, SEVEN, host=host)
    assert host.started.count("systemctl restart -- nvidia-cdi-refresh.service") == 1


def test_a_busy_host_keeps_its_instances(tmp_path: Path) -> None:
    root = gpu_server(tmp_path, H100)
    put(root, f"{REPLAY}/processes.csv", "4711, python3, 1024, GPU-x\n")
    row = mig(root, SEVEN)
    assert (row["state"], row["reason"].startswith("changes the MIG instances of GPU 0; this host is busy")) == (
        "refused",
        True,
    )


def test_the_unit_makes_instances_before_whatever_lists_or_uses_them() -> None:
    before = " ".join(line for line in program.GPU_UNIT.splitlines() if line.startswith("Before="))
    for unit in ("kubelet", "nvidia-dcgm", "dcgm-exporter", "docker", "slurmd", "nvidia-cdi-refresh", "k3s"):
        assert f"{unit}.service" in before
    assert "nvidia-persistenced.service" in program.GPU_UNIT


class Answers(TreeHost):
    """Answers nvidia-smi's questions with recorded texts."""

    def __init__(self, root: Path, **texts: str) -> None:
        super().__init__(root)
        self.texts = texts

    def _run(self, argv: Any, *more: Any) -> Any:
        from ansible_collections.gpuctl.fleet.plugins.module_utils.gpuhost.host import Result

        return Result(0, self.texts[argv[-1].strip("-")], "")


@pytest.mark.parametrize(
    ("file", "profiles"),
    [
        (
            "mig_lgip_h100_sxm_132sm",
            "1g.10gb:7 1g.10gb+me:1 1g.20gb:4 2g.20gb:3 3g.40gb:2 4g.40gb:1 7g.80gb:1",
        ),
        ("mig_lgip_a30", "1g.6gb:4 1g.6gb+me:1 2g.12gb:2 2g.12gb+me:1 4g.24gb:1"),
    ],
)
def test_recorded_lists_of_profiles_are_read_by_name(tmp_path: Path, file: str, profiles: str) -> None:
    text = recording(f"nvidia-smi/{file}.txt").read_text()
    gpu = smi.gpus(TreeHost(gpu_server(tmp_path, H100)))[0]
    with_mig = smi.GpuState({**gpu.values, "mig.mode.current": "Enabled"})
    assert mig_layout._offered(Answers(tmp_path, lgip=text), with_mig) == mig_layout.instances_of(profiles)


def test_recorded_instances_are_read_by_name(tmp_path: Path) -> None:
    text = recording("nvidia-smi/mig_lgi_h100_2g3g.txt").read_text()
    devices = (
        "GPU 0: NVIDIA H100\n  MIG 3g.40gb     Device  0: (UUID: MIG-0)\n  MIG 2g.20gb     Device  1: (UUID: MIG-1)\n"
    )
    gpu = smi.gpus(TreeHost(gpu_server(tmp_path, H100)))[0]
    with_mig = smi.GpuState({**gpu.values, "mig.mode.current": "Enabled"})
    assert mig_layout.read(Answers(tmp_path, lgi=text, L=devices), with_mig) == "3g.40gb:1 2g.20gb:1"


def test_the_stand_in_lists_in_the_recorded_layout(tmp_path: Path) -> None:
    root = gpu_server(tmp_path, H100)
    mig(root, [{"instances": {"3g.40gb": 1, "2g.20gb": 1}}])
    for argument, file in (("-lgi", "mig_lgi_h100_2g3g"), ("-lgip", "mig_lgip_h100_sxm_132sm")):
        lines = recording(f"nvidia-smi/{file}.txt").read_text().splitlines()
        printed = run_smi(root, "mig", argument).splitlines()
        assert printed[:5] == lines[:5], argument
        assert {len(line) for line in printed} == {len(line) for line in lines}, argument
