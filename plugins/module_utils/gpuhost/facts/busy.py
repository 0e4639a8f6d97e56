"""Whether a job is at work on this host: a process on a GPU, or an allocation a scheduler has made."""

from __future__ import annotations

import json

from ..host import Host


def busy(host: Host) -> list[str]:
    """Why this host must not be disturbed, in words; empty where it is free. What cannot be read counts as busy."""
    return [*_gpu_processes(host), *_slurm(host), *_kubernetes(host)]


def _gpu_processes(host: Host) -> list[str]:
    if not host.exists("/proc/driver/nvidia/gpus"):
        return []
    said = host.run("nvidia-smi", "--query-compute-apps=pid,process_name", "--format=csv,noheader", limit=30)
    if not said.ok:
        return [f"GPU processes unknown: {said.said}"]
    rows = [line.strip() for line in said.out.splitlines() if line.strip()]
    shown = "; ".join(rows[:3]) + (" …" if len(rows) > 3 else "")
    return [f"{len(rows)} processes on GPUs: {shown}"] if rows else []


def _slurm(host: Host) -> list[str]:
    steps = sum(host.value(path) == "slurmstepd" for path in host.glob("/proc/[0-9]*/comm"))
    return [f"Slurm runs {steps} job steps here"] if steps else []


def _kubernetes(host: Host) -> list[str]:
    """The kubelet's own list of which pod holds which device."""
    path = "/var/lib/kubelet/device-plugins/kubelet_internal_checkpoint"
    text = host.read_or_none(path)
    if text is None:
        return []
    try:
        entries = json.loads(text)["Data"]["PodDeviceEntries"] or []
        pods = {e["PodUID"] for e in entries if e["ResourceName"].startswith(("nvidia.com/", "amd.com/gpu"))}
    except (ValueError, KeyError, TypeError):
        return [f"Kubernetes allocations unknown: {path} cannot be understood"]
    return [f"Kubernetes has given GPUs to {len(pods)} pods"] if pods else []
