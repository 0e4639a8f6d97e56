"""Host trees with NVIDIA GPUs, whose settings a stand-in for nvidia-smi keeps as GPUs keep them."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from ansible_collections.gpuctl.fleet.plugins.module_utils.gpuhost import gpu_boot

from tests.rig.trees.host import TreeHost, link, program, put, small_server

STANDIN = Path(__file__).parents[1] / "standins/standin-nvidia-smi"
REPLAY = "/var/lib/standins/nvidia-smi"
H100, H200, A100 = "NVIDIA H100 80GB HBM3", "NVIDIA H200", "NVIDIA A100-SXM4-40GB"
T4, TITAN = "Tesla T4", "NVIDIA TITAN V"
UNIT_OF_UBUNTU = """[Unit]
Description=NVIDIA Persistence Daemon
Wants=syslog.target

[Service]
Type=forking
ExecStart=/usr/bin/nvidia-persistenced --user nvidia-persistenced --no-persistence-mode --verbose
ExecStopPost=/bin/rm -rf /var/run/nvidia-persistenced
"""


def gpu_server(root: Path, *models: str) -> Path:
    """A server with these GPUs, in nvidia-smi's order."""
    small_server(root)
    for index, model in enumerate(models or (H100, H100)):
        information = f"Model: \t\t {model}\nIRQ:   \t\t 100\nGPU UUID: \t {uuid(index)}\nDevice Minor: \t {index}\n"
        put(root, f"/proc/driver/nvidia/gpus/0000:{16 + index:02x}:00.0/information", information)
    (root / "sys/module/nvidia").mkdir(parents=True)
    put(root, "/proc/1/comm", "systemd\n")
    text = STANDIN.read_text()
    program(root, "nvidia-smi", text.replace(text.splitlines()[0], f"#!{sys.executable}", 1))
    return root


def uuid(index: int) -> str:
    return f"GPU-{index:08x}-0000-4000-8000-000000000000"


def smi(root: Path, *argv: str) -> str:
    """Output of the stand-in, run as somebody else would."""
    return TreeHost(root).run("nvidia-smi", *argv).out


def gpu_state(root: Path, index: int = 0) -> dict[str, Any]:
    """One GPU's settings as the stand-in keeps them."""
    smi(root, "-i", str(index), "-e", "1" if _state(root, index)["ecc"][1] == "Enabled" else "0")  # after a boot, too
    return _state(root, index)


def _state(root: Path, index: int) -> dict[str, Any]:
    path = root / f"{REPLAY[1:]}/state.json"
    if not path.exists():
        smi(root, "-e", "1")
    state: dict[str, Any] = json.loads(path.read_text())["gpus"][uuid(index)]
    return state


def lost(root: Path, boot: str = "second") -> None:
    """Reboot the host up to where gpuctl-gpu runs."""
    put(root, "/proc/sys/kernel/random/boot_id", f"{boot}\n")
    for mark in (root / "run/gpuctl/clocks").glob("*"):
        mark.unlink()


def reboot(root: Path, boot: str = "second") -> int:
    """Reboot the host with gpuctl-gpu; return that program's exit code."""
    lost(root, boot)
    return gpu_boot.main([], TreeHost(root))


def reload_driver(root: Path, number: int = 1) -> None:
    """Unload the driver and load it again; gpuctl-gpu has not run yet."""
    put(root, f"{REPLAY}/loads", str(number))
    (root / "sys/module/nvidia").rename(root / f"sys/module/unloaded{number}")
    (root / "sys/module/nvidia").mkdir()


def hold(root: Path, index: int, pid: int, name: str) -> None:
    """Let a program have a GPU open."""
    put(root, f"/proc/{pid}/comm", f"{name}\n")
    link(root, f"/proc/{pid}/fd/7", f"/dev/nvidia{index}")
    put(root, f"{REPLAY}/in_use", str(index))
