"""MPS daemons as services: made, restarted for other options, refused, undone; its users are named."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.gpuctl.fleet.plugins.module_utils.gpuhost.kinds import gpu

from tests.rig.trees.gpus import H100, gpu_server, smi, uuid
from tests.rig.trees.host import changed, program, put, states, tune, undo

KNOB = "gpu.mps"
UNIT = "gpuctl-mps-train.service"
FILE = f"etc/systemd/system/{UNIT}"
SHARED = [{"name": "train", "gpus": [0], "active_thread_percentage": 50, "memory": "10G"}]
# Lists one server with one client once its file is there.
CONTROL = f"""#!{sys.executable}
import os, pathlib, sys
used = pathlib.Path(os.environ["GPUCTL_ROOT"], "run/standin-mps-clients")
if os.environ["CUDA_MPS_PIPE_DIRECTORY"] == "/run/nvidia-mps/train" and used.exists():
    print("88" if sys.stdin.read() == "get_server_list\\n" else used.read_text().strip())
"""
# In place of systemd: a daemon that runs has the variables of its unit.
SYSTEMCTL = f"""#!{sys.executable}
import os, pathlib, re, sys
root = pathlib.Path(os.environ["GPUCTL_ROOT"])
unit = sys.argv[-1]
environ, folder = root / "proc/99/environ", root / "etc/systemd/system"
file, link = folder / unit, folder / "multi-user.target.wants" / unit
if sys.argv[1] == "restart":
    environ.parent.mkdir(parents=True, exist_ok=True)
    environ.write_text("\\0".join(re.findall("^Environment=(.+)$", file.read_text(), re.M)) + "\\0")
elif sys.argv[1] == "stop":
    environ.unlink(missing_ok=True)
elif sys.argv[1] == "enable":
    link.parent.mkdir(parents=True, exist_ok=True)
    link.symlink_to(file)
elif sys.argv[1] == "disable":
    link.unlink(missing_ok=True)
elif sys.argv[1] == "show":
    runs, known = environ.exists() and "mps" in unit, file.exists()
    print(f"Id={{unit}}\\nLoadState={{'loaded' if known else 'not-found'}}")
    print(f"ActiveState={{'active' if runs else 'inactive'}}")
    print(f"UnitFileState={{'enabled' if link.is_symlink() else 'disabled'}}\\nMainPID={{99 if runs else 0}}")
"""


def server(tmp_path: Path) -> Path:
    root = gpu_server(tmp_path, H100)
    program(root, "nvidia-cuda-mps-control", CONTROL)
    program(root, "systemctl", SYSTEMCTL)
    return root


def mps(root: Path, entries: object, **options: Any) -> dict[str, Any]:
    answer = tune(root, {KNOB: gpu.TYPES["mps"].check(entries)}, **options)
    return next(row for row in answer["knobs"] if row["knob"] == KNOB)


def test_a_daemon_gets_a_unit_of_its_own_and_undo_removes_it(tmp_path: Path) -> None:
    root = server(tmp_path)
    assert mps(root, SHARED, check=True)["state"] == "differs"
    assert not (root / FILE).exists()
    assert mps(root, SHARED)["state"] == "ok"
    unit = (root / FILE).read_text()
    assert f"Environment=CUDA_VISIBLE_DEVICES={uuid(0)}\n" in unit
    assert "Environment=CUDA_MPS_PINNED_DEVICE_MEM_LIMIT=0=10G\n" in unit
    assert f"ExecStartPre=/usr/bin/nvidia-smi -i {uuid(0)} -c EXCLUSIVE_PROCESS\n" in unit
    assert f"ExecStopPost=/usr/bin/nvidia-smi -i {uuid(0)} -c DEFAULT\n" in unit
    assert changed(tune(root, {KNOB: gpu.TYPES["mps"].check(SHARED)})) == set()
    assert set(states(undo(root)).values()) == {"ok"}
    assert not (root / FILE).exists()
    assert not (root / "proc/99/environ").exists()


def test_other_options_restart_the_daemon_unless_a_program_uses_it(tmp_path: Path) -> None:
    root = server(tmp_path)
    mps(root, SHARED)
    put(root, "/run/standin-mps-clients", "4711\n")
    put(root, "/proc/4711/comm", "python3\n")
    other = [{**SHARED[0], "active_thread_percentage": 25}]
    row = mps(root, other)
    assert (row["state"], row["reason"]) == (
        "refused",
        "MPS train must restart, and is used by python3 (pid 4711): end these first",
    )
    (root / "run/standin-mps-clients").unlink()
    assert mps(root, other)["state"] == "ok"
    assert "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE=25" in (root / "proc/99/environ").read_text()


def test_undo_names_who_uses_the_daemon_before_it_stops_it(tmp_path: Path) -> None:
    root = server(tmp_path)
    mps(root, SHARED)
    put(root, "/run/standin-mps-clients", "4711\n")
    put(root, "/proc/4711/comm", "python3\n")
    put(root, "/var/lib/standins/nvidia-smi/processes.csv", "4711, python3, 1024, GPU-x\n")
    row = undo(root)["knobs"][0]
    assert row["state"] == "refused"
    assert row["reason"].startswith("stops MPS train, used by python3 (pid 4711); this host is busy")


def test_a_daemon_that_is_left_out_is_undone_with_the_others_running(tmp_path: Path) -> None:
    root = server(tmp_path)
    mps(root, SHARED, scope="gpu_settings")
    tune(root, {}, scope="gpu_settings")
    assert not (root / FILE).exists()


@pytest.mark.parametrize(
    "path",
    [
        "/var/log/pods/gpu-operator_nvidia-device-plugin-mps-control-daemon-x_1/0.log",
        "/run/nvidia/mps/nvidia.com/gpu/pipe",
    ],
)
def test_refused_where_the_device_plugin_runs_mps(tmp_path: Path, path: str) -> None:
    root = server(tmp_path)
    put(root, path if path.startswith("/var") else "/run/nvidia/mps/gpu/pipe", "")
    row = mps(root, SHARED)
    assert (row["state"], "device plugin runs MPS on this host" in row["reason"]) == ("refused", True)


def test_a_gpu_with_mig_cannot_have_a_daemon(tmp_path: Path) -> None:
    root = server(tmp_path)
    smi(root, "-mig", "1")
    assert "GPU 0 of mps train has MIG on" in mps(root, SHARED)["reason"]


def test_without_the_program_it_is_unsupported(tmp_path: Path) -> None:
    assert mps(gpu_server(tmp_path, H100), SHARED)["state"] == "unsupported"


def test_the_compute_mode_of_its_gpus_is_left_to_the_daemon(tmp_path: Path) -> None:
    root = server(tmp_path)
    knobs = {"gpu.compute_mode": "default", KNOB: gpu.TYPES["mps"].check(SHARED)}
    tune(root, knobs)
    smi(root, "-c", "EXCLUSIVE_PROCESS")  # as its unit does
    answer = tune(root, knobs, check=True)
    assert set(states(answer).values()) == {"ok"}
    assert "gpu.compute_mode default except 0\n" in (root / "etc/gpuctl/gpu.conf").read_text()
