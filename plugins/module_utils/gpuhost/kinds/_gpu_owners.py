"""Other owners of GPU settings: the MIG manager, the device plugin's MPS, and lines that run nvidia-smi at boot."""

from __future__ import annotations

import re

from ..host import Host
from ..model import Conflict
from ..resources.unit import FOLDERS
from ..snapshot import HostSnapshot

POD_LOGS = "/var/log/pods"
MIG_MANAGER, MIG_LABEL = "nvidia-mig-manager", "nvidia.com/mig.config"
PLUGIN_MPS, PLUGIN_FOLDER = "mps-control-daemon", "/run/nvidia/mps"
KUBELET_FLAGS = (
    "/etc/default/kubelet",
    "/etc/sysconfig/kubelet",
    "/var/lib/kubelet/kubeadm-flags.env",
    "/etc/rancher/*/config.yaml",
    "/etc/systemd/system/kubelet.service.d/*.conf",
)
OURS = re.compile(r"gpuctl-(gpu|mps)")
_OPTIONS = {
    "persistence": r"(?:-pm|--persistence-mode)[ =]\s*\S+",
    "power_limit": r"(?:-pl|--power-limit)[ =]\s*\S+",
    "graphics_clock": r"(?:-[lr]gc|--(?:lock|reset)-gpu-clocks)\b\S*",
    "memory_clock": r"(?:-[lr]mc|--(?:lock|reset)-memory-clocks)\b\S*",
    "compute_mode": r"(?:-c|--compute-mode)[ =]\s*\S+",
    "ecc": r"(?:-e|--ecc-config)[ =]\s*\S+",
    "mig": r"(?:-mig|--multi-instance-gpu)[ =]\s*\S+|\bmig\s+.*-[cd][gc]i\b|nvidia-mig-parted\s+apply",
}


def mig_ruler(host: Host) -> str:
    """The program that sets MIG on this host, with where that shows; "" for none."""
    wanted_by = [path for folder in FOLDERS for path in host.glob(f"{folder}/*.wants/{MIG_MANAGER}.service")]
    if wanted_by:
        return f"{MIG_MANAGER}.service, enabled by {wanted_by[0]}"
    pods = [name for name in host.listdir(POD_LOGS) if f"_{MIG_MANAGER}" in name]
    if pods:
        return f"the GPU operator's MIG manager, as {POD_LOGS}/{pods[0]} shows"
    for pattern in KUBELET_FLAGS:
        for path in host.glob(pattern):
            if f"{MIG_LABEL}=" in (host.read_or_none(path) or ""):
                return f"the GPU operator's MIG manager, by the node label {MIG_LABEL} in {path}"
    return ""


def plugin_mps(host: Host) -> str:
    """The sign that Kubernetes' device plugin runs MPS on this host; "" for none."""
    pods = [name for name in host.listdir(POD_LOGS) if PLUGIN_MPS in name]
    if pods:
        return f"{POD_LOGS}/{pods[0]}"
    pipes = host.glob(f"{PLUGIN_FOLDER}/*/pipe")
    return pipes[0] if pipes else ""


def mps_runs(host: Host) -> bool:
    """True if any MPS control daemon runs."""
    return any(
        (host.read_or_none(path) or "").strip() == "nvidia-cuda-mps" for path in host.glob("/proc/[0-9]*/comm")
    )  # the kernel cuts names after 15 characters


def rivals(snapshot: HostSnapshot, aspect: str, *desired: str) -> list[Conflict]:
    """Lines at startup that set a GPU setting by nvidia-smi to another value; ours runs again later and wins."""
    option = re.compile(_OPTIONS[aspect])
    conflicts = []
    for line in snapshot.owners.mentions("\0", "nvidia-smi", "nvidia-mig-parted"):
        match = option.search(line.value)
        if match is None or OURS.search(line.where):
            continue
        value = re.split(r"[ =]\s*", match.group(), maxsplit=1)[-1].strip("\"';")
        if value.lower() not in desired:
            conflicts.append(line)
    return conflicts
