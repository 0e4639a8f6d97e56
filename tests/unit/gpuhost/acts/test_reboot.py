"""Reboot of a host: the boot that was seen, and only while nobody uses its GPUs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from ansible_collections.gpuctl.fleet.plugins.module_utils.gpuhost.acts import reboot
from ansible_collections.gpuctl.fleet.plugins.module_utils.gpuhost.acts.answer_types import Reboot
from ansible_collections.gpuctl.fleet.plugins.module_utils.gpuhost.host import Host, Result

from gpuctl.engine import typed_json


class StandinHost(Host):
    """Stand-in for a host: systemd is in this state, and a reboot is only noted."""

    def __init__(self, root: Path, state: str = "running", job: str = "", code: int = 0) -> None:
        super().__init__(root)
        self.state, self.job, self.code, self.mismatch = state, job, code, ""
        self.changes: list[tuple[str, ...]] = []
        self._put(reboot.BOOT_ID, "boot-1\n")
        self._put("/proc/driver/nvidia/gpus/0000:17:00.0/information", "Model: \t\t NVIDIA H200\n")
        self._put("/proc/1/comm", "systemd\n")
        self._put("/proc/1/stat", "1 (systemd) S 0\n")

    def _put(self, path: str, text: str) -> None:
        place = Path(self.real(path))
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(text)

    def run(self, *argv: str, **more: Any) -> Result:
        """See Host."""
        if argv == ("systemctl", "reboot"):
            self.changes.append(argv)
            return Result(self.code, "", "Failed to set wall message: Access denied\n" if self.code else "")
        if argv[0] == "nvidia-smi" and self.mismatch:
            return Result(18, self.mismatch, "")
        return Result(0, f"{self.state}\n" if argv[0] == "systemctl" else self.job, "")

    def open_gpu(self, pid: int, name: str, device: str = "/dev/nvidia0") -> None:
        """Let a process hold a device open."""
        self._put(f"/proc/{pid}/comm", f"{name}\n")
        self._put(f"/proc/{pid}/stat", f"{pid} ({name}) S 0\n")
        folder = Path(self.real(f"/proc/{pid}/fd"))
        folder.mkdir()
        (folder / "3").symlink_to(device)


CASES: dict[str, tuple[dict[str, Any], dict[str, Any], str, bool]] = {
    "this boot": ({}, {"boot_id": "boot-1"}, "done", True),
    "read only": ({"state": "starting"}, {"check": True}, "due", False),
    "an earlier boot": ({}, {"boot_id": "boot-0"}, "changed", False),
    "in use": ({"job": "77, python\n"}, {"boot_id": "boot-1"}, "busy", False),
    "refused": ({"code": 1}, {"boot_id": "boot-1"}, "failed", True),
}


@pytest.mark.parametrize(("options", "request_", "state", "reboots"), CASES.values(), ids=list(CASES))
def test_a_host_reboots_once(
    options: dict[str, Any], request_: dict[str, Any], state: str, reboots: bool, tmp_path: Path
) -> None:
    host = StandinHost(tmp_path, **options)
    answer = typed_json.read(reboot.run(host, request_), Reboot)
    assert (answer["state"], answer["boot_id"]) == (state, "boot-1")
    assert bool(host.changes) is reboots
    assert answer["up"] is (options.get("state") != "starting")
    assert bool(answer["reason"]) is (state in ("busy", "changed", "failed"))


MISMATCH = "Failed to initialize NVML: Driver/library version mismatch\nNVML library version: 580.178\n"
WATCHERS = ("nvidia-persiste", "nv-hostengine", "nv-fabricmanage")


@pytest.mark.parametrize(
    ("programs", "state", "reason"),
    [
        ({}, "done", ""),
        (dict.fromkeys(WATCHERS, "/dev/nvidia0"), "done", ""),
        ({"python": "/dev/null"}, "done", ""),
        ({"nv-hostengine": "/dev/nvidia0", "python": "/dev/nvidia3"}, "busy", "1 processes on GPUs: python (pid 71)"),
        ({"slurmstepd": "/dev/null"}, "busy", "Slurm runs 1 job steps here"),
    ],
)
def test_after_an_upgrade_those_who_hold_gpus_open_count(
    programs: dict[str, str], state: str, reason: str, tmp_path: Path
) -> None:
    host = StandinHost(tmp_path)
    host.mismatch = MISMATCH
    for pid, (name, device) in enumerate(programs.items(), 70):
        host.open_gpu(pid, name, device)
    answer = reboot.run(host, {"boot_id": "boot-1"})
    assert (answer["state"], answer["reason"]) == (state, reason)


def test_any_other_failure_of_nvidia_smi_counts_as_busy(tmp_path: Path) -> None:
    host = StandinHost(tmp_path)
    host.mismatch = "Unable to determine the device handle for GPU0: 0000:17:00.0: Unknown Error\n"
    assert reboot.run(host, {"boot_id": "boot-1"})["state"] == "busy"
