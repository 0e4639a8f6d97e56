"""Jobs on this host: processes on GPUs, and allocations of schedulers."""

from __future__ import annotations

import json
from typing import NamedTuple

from ..host import Host
from . import device_holders, processes

KUBELET = "/var/lib/kubelet/device-plugins/kubelet_internal_checkpoint"
PODS = "/var/lib/kubelet/pods"
# Control groups version 2, version 1 (below each controller), and below a root of the kubelet's.
CGROUPS = ("/sys/fs/cgroup/*kubepods*", "/sys/fs/cgroup/*/*kubepods*", "/sys/fs/cgroup/*/*/*kubepods*")


def busy(host: Host) -> list[str]:
    """Reasons not to disturb this host; empty if it is free. A source that cannot be read counts as busy."""
    return [*_gpu_processes(host), *_slurm(host), *_kubernetes(host)]


def _gpu_processes(host: Host) -> list[str]:
    if not host.exists("/proc/driver/nvidia/gpus"):
        return []
    result = host.run("nvidia-smi", "--query-compute-apps=pid,process_name", "--format=csv,noheader", limit=30)
    if not result.ok:
        from . import gpu_xml

        why = gpu_xml.mismatch(f"{result.out}\n{result.err}")
        return _gpu_users(host, why) if why else [f"GPU processes unknown: {result.last_line}"]
    rows = [line.strip() for line in result.out.splitlines() if line.strip()]
    return _shown(rows)


def _gpu_users(host: Host, why: str) -> list[str]:
    """Between an upgrade and its reboot nvidia-smi lists nothing, and programs of the old version still run."""
    users, unknown = device_holders.users(host)
    return [f"GPU processes unknown: {why}; {unknown}"] if unknown else _shown(users)


def _shown(rows: list[str]) -> list[str]:
    shown = "; ".join(rows[:3]) + (" …" if len(rows) > 3 else "")
    return [f"{len(rows)} processes on GPUs: {shown}"] if rows else []


def _slurm(host: Host) -> list[str]:
    steps = slurm_steps(host)
    if steps is None:
        return [f"Slurm's job steps unknown: {processes.HIDDEN}"]
    return [f"Slurm runs {steps} job steps here"] if steps else []


def slurm_steps(host: Host) -> int | None:
    """Number of Slurm job steps on this host; None if unknown."""
    # With control groups of version 2, slurmd leaves a "slurmstepd infinity" of no job in its systemd scope.
    return processes.count(host, "slurmstepd", but=("infinity",))


def _kubernetes(host: Host) -> list[str]:
    try:
        pods = pods_with_gpus(host)
    except OSError as error:
        return [f"Kubernetes allocations unknown: {KUBELET}: {error.strerror}"]
    except (ValueError, KeyError, TypeError):
        return [f"Kubernetes allocations unknown: {KUBELET} cannot be parsed"]
    if pods.unknown:
        return [f"Kubernetes allocations unknown: {pods.why_unknown}"]
    return [f"Kubernetes has given GPUs to {len(pods.living)} pods"] if pods.living else []


class Pods(NamedTuple):
    """Uids of pods with GPUs: those that live, and those whose state is unknown."""

    living: set[str]
    unknown: set[str]

    @property
    def why_unknown(self) -> str:
        return f"whether {len(self.unknown)} pods that got GPUs still run: there are no kubepods cgroups"


def pods_with_gpus(host: Host) -> Pods:
    """Pods with GPUs in the kubelet's device list; ValueError, KeyError or TypeError if it cannot be parsed.

    The list keeps pods that are gone until their devices are allocated again (kubernetes#137010). A pod lives as
    long as its cgroup, which ends with its last container; its folder stays until the pod is deleted.
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
    # No kubelet has started since the boot, or it has no cgroups for pods; pods without a folder are gone.
    known = set(host.listdir(PODS)) if host.exists(PODS) else listed
    return Pods(set(), listed & known)
