"""GPUs that Slurm and the kubelet have given away on this host, also where no process uses them."""

from __future__ import annotations

import json
import re
from typing import Any

from ..host import Host
from . import process_details
from .busy import KUBELET, pods_with_gpus

# Control groups of jobs: version 2, then version 1 below the controllers that Slurm may use.
JOBS = (
    "/sys/fs/cgroup/system.slice/*slurmstepd.scope/[js]*",
    *(f"/sys/fs/cgroup/{name}*/slurm*/uid_*/job_*" for name in ("freezer", "devices", "cpuset", "memory")),
)
PROCESSES = ("step_*/user/task_*", "step_*/task_*", "step_*/user", "step_*/slurm", "step_*")
MOST_TASKS = 8  # environments that are read for one job
LISTPIDS_S = 5.0
_JOB = re.compile(r"job_(\d+)|(s[0-9A-HJKMNP-TV-Z]{13})")


def kubernetes(host: Host, unread: dict[str, str]) -> list[dict[str, Any]] | None:
    """[{pod, container, resource, devices}] of living pods, from the kubelet's list; empty without a kubelet."""
    try:
        text = host.read_or_none(KUBELET)
        if text is None:
            return []
        entries = json.loads(text)["Data"]["PodDeviceEntries"] or []
        pods = pods_with_gpus(host)
        if pods.unknown:
            unread["pod_devices"] = pods.why_unknown
            return None
        return [
            {
                "pod": entry["PodUID"],
                "container": entry.get("ContainerName"),
                "resource": entry["ResourceName"],
                "devices": _devices(entry.get("DeviceIDs")),
            }
            for entry in entries
            if entry["PodUID"] in pods.living and entry["ResourceName"].startswith("nvidia.com/")
        ]
    except OSError as error:
        unread["pod_devices"] = f"{KUBELET}: {error.strerror}"
    except (ValueError, KeyError, TypeError, AttributeError):
        unread["pod_devices"] = f"{KUBELET} cannot be parsed"
    return None


def _devices(plain: Any) -> list[str]:
    """Ids, which newer kubelets list by NUMA node."""
    lists = plain.values() if isinstance(plain, dict) else [plain or []]
    return [str(device) for ids in lists for device in ids]


def slurm(host: Host, unread: dict[str, str]) -> list[dict[str, Any]] | None:
    """[{job, sluid, number, gpus}] of the jobs with a control group here; None if they cannot be read.

    `job` or `sluid` is the name of the control group, `number` the job's as its tasks have it. `gpus`: Slurm's numbers
    of the job's GPUs, from the environment of its tasks; [] if its batch script has none, None if no task names them.
    """
    jobs: dict[str, dict[str, Any]] = {}
    try:
        for folder in (path for pattern in JOBS for path in host.glob(pattern)):
            match = _JOB.fullmatch(folder.rpartition("/")[2])
            if match and match.group() not in jobs:
                jobs[match.group()] = {"job": match.group(1), "sluid": match.group(2), **_tasks(host, folder)}
    except OSError as error:
        unread["slurm_jobs"] = f"{error.filename}: {error.strerror}"
        return None
    return list(jobs.values())


def _tasks(host: Host, folder: str) -> dict[str, Any]:
    files = dict.fromkeys(p for pattern in PROCESSES for p in host.glob(f"{folder}/{pattern}/cgroup.procs"))
    pids = [(path, int(pid)) for path in files for pid in host.read(path).split() if pid.isdigit()]
    gpus: set[int] | None = None
    number = None
    for path, pid in pids[:MOST_TASKS]:
        found = process_details.variables(host, pid)
        number = number or found.get("SLURM_JOB_ID")
        texts = [found[name] for name in ("SLURM_JOB_GPUS", "SLURM_STEP_GPUS") if name in found]
        if texts or (found and "/step_batch/" in path):
            gpus = (gpus or set()).union(*map(numbers, texts))
    return {"gpus": None if gpus is None else sorted(gpus), "number": number}


def numbers(text: str) -> set[int]:
    """Numbers of a list such as "0,2-3"."""
    ranges = re.findall(r"(\d+)(?:-(\d+))?", text)
    return {n for first, last in ranges for n in range(int(first), min(int(last or first), int(first) + 63) + 1)}


def pids_of_sluids(host: Host, unread: dict[str, str]) -> dict[str, list[str]]:
    """Pid -> [job, step], from this host's slurmd: from 26.05 on, paths have no job number."""
    result = host.run("scontrol", "listpids", limit=LISTPIDS_S)
    if not result.ok:
        unread["slurm_pids"] = result.last_line
        return {}
    rows = [line.split() for line in result.out.splitlines()[1:]]
    return {row[0]: [row[1], row[2]] for row in rows if len(row) > 2 and row[0].isdigit()}
