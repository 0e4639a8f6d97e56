"""Whether a job is at work on this host: a process on a GPU, or an allocation a scheduler has made."""

from __future__ import annotations

import json
from typing import NamedTuple

from ..host import Host
from . import processes

KUBELET = "/var/lib/kubelet/device-plugins/kubelet_internal_checkpoint"
PODS = "/var/lib/kubelet/pods"
# Version 2, version 1 (below each controller), and below a root of the kubelet's own.
CGROUPS = ("/sys/fs/cgroup/*kubepods*", "/sys/fs/cgroup/*/*kubepods*", "/sys/fs/cgroup/*/*/*kubepods*")


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
    steps = slurm_steps(host)
    if steps is None:
        return [f"Slurm's job steps unknown: {processes.HIDDEN}"]
    return [f"Slurm runs {steps} job steps here"] if steps else []


def slurm_steps(host: Host) -> int | None:
    """How many job steps Slurm runs here; None where nobody can know."""
    return processes.called(host, "slurmstepd")


def _kubernetes(host: Host) -> list[str]:
    try:
        pods = pods_with_gpus(host)
    except OSError as error:
        return [f"Kubernetes allocations unknown: {KUBELET}: {error.strerror}"]
    except (ValueError, KeyError, TypeError):
        return [f"Kubernetes allocations unknown: {KUBELET} cannot be understood"]
    if pods.untold:
        return [f"Kubernetes allocations unknown: {pods.why_untold}"]
    return [f"Kubernetes has given GPUs to {len(pods.living)} pods"] if pods.living else []


class Pods(NamedTuple):
    """Pods that were given a GPU: those that live, and those of which nobody here can tell."""

    living: set[str]
    untold: set[str]

    @property
    def why_untold(self) -> str:
        return f"whether {len(self.untold)} pods that got GPUs still run: there are no kubepods cgroups"


def pods_with_gpus(host: Host) -> Pods:
    """The pods that hold a GPU, by the kubelet's own list; ValueError, KeyError, TypeError where it makes no sense.

    The list keeps pods that are gone until a device is given away again (kubernetes#137010). A pod lives as long as
    its cgroup: that goes with its last container, while the folder of one that has ended stays until it is deleted.
    """
    text = host.read_or_none(KUBELET)
    entries = (json.loads(text)["Data"]["PodDeviceEntries"] or []) if text is not None else []
    listed = {e["PodUID"] for e in entries if e["ResourceName"].startswith(("nvidia.com/", "amd.com/gpu"))}
    if not listed:
        return Pods(set(), set())
    roots = [root for pattern in CGROUPS for root in host.glob(pattern)]
    if roots:
        names = " ".join(path for root in roots for depth in ("*", "*/*") for path in host.glob(f"{root}/{depth}"))
        return Pods({uid for uid in listed if f"pod{uid}" in names or f"pod{uid.replace('-', '_')}" in names}, set())
    # No kubelet has begun since this host did, or it keeps no cgroups for pods: those it has forgotten are gone.
    known = set(host.listdir(PODS)) if host.exists(PODS) else listed
    return Pods(set(), listed & known)
