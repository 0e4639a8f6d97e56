"""GPUs that pods and Slurm jobs have been allocated, as far as a host itself can tell."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from gpuctl.core.text import named
from gpuctl.nodes.model import Facts

_OLD_MIG = re.compile(r"MIG-(GPU-[0-9a-f-]+)/(\d+)/(\d+)")
Place = tuple[int, int | None]  # GPU, and its instance (GI); None for the whole GPU


@dataclass
class Allocations:
    """`places`: holder's key -> what it was given; keys are ("pod", uid) and ("job", number or SLUID).

    `labels`: key -> name for people. `shared`: GPUs that are given in slices. `unknown`: reason why it is not known
    which GPUs were given away; "" if it is.
    """

    places: dict[tuple[str, str], set[Place]] = field(default_factory=dict)
    labels: dict[tuple[str, str], str] = field(default_factory=dict)
    shared: set[int] = field(default_factory=set)
    unknown: str = ""

    def of(self, gpu: int, instance: int | None = None) -> set[tuple[str, str]]:
        """Keys of the holders of a GPU, or of one of its instances."""
        return {
            key
            for key, places in self.places.items()
            if any(one == gpu and (instance is None or gi is None or gi == instance) for one, gi in places)
        }


def allocations(facts: Facts) -> Allocations:
    """Read the kubelet's and Slurm's allocations."""
    result = Allocations()
    reasons = [*_pods(facts, result), *_jobs(facts, result)]
    result.unknown = "; ".join(dict.fromkeys(reasons))
    return result


def pod_label(facts: Facts, uid: str) -> str:
    """ "namespace/name", or the uid if this host does not know the pod's name."""
    pod = facts["pods"].get(uid)
    return f"{pod['namespace']}/{pod['name']}" if pod else f"pod {uid}"


def _pods(facts: Facts, result: Allocations) -> list[str]:
    rows = facts["pod_devices"]
    if rows is None:
        return [f"which GPUs pods have is not known ({facts['unread'].get('pod_devices', 'no reason was recorded')})"]
    unresolved = []
    for row in rows:
        key = ("pod", str(row["pod"]))
        result.labels[key] = pod_label(facts, row["pod"])
        for device in row["devices"]:
            plain, slice_, _ = device.partition("::")
            place = _place(facts, plain)
            if place is None:
                unresolved.append(f"{result.labels[key]} has {device}")
                continue
            result.places.setdefault(key, set()).add(place)
            if slice_:
                result.shared.add(place[0])
    return [f"which GPU it is in nvidia-smi is not known: {named(unresolved, 2)}"] if unresolved else []


def _place(facts: Facts, device: str) -> Place | None:
    """GPU and instance of a device id: an UUID, an index, or "MIG-GPU-…/GI/CI" of old drivers."""
    gpus: list[Mapping[str, Any]] = facts["gpus"] or []
    if device.isdigit():
        return (int(device), None) if int(device) < len(gpus) else None
    old = _OLD_MIG.fullmatch(device)
    for index, gpu in enumerate(gpus):
        if gpu["uuid"] == (old[1] if old else device):
            return index, int(old[2]) if old else None
        for instance in gpu["instances"]:
            if instance["uuid"] == device:
                return index, instance["gi"]
    return None


def _jobs(facts: Facts, result: Allocations) -> list[str]:
    rows = facts["slurm_jobs"]
    if rows is None:
        return [f"which GPUs jobs have is not known ({facts['unread'].get('slurm_jobs', 'no reason was recorded')})"]
    minors = {gpu["minor"]: index for index, gpu in enumerate(facts["gpus"] or ())}
    reasons = []
    for row in rows:
        number = row["job"] or row["number"] or row["sluid"]
        key = ("job", str(number))
        result.labels[key] = f"job {number}" + (f" of {row['user']}" if row.get("user") else "")
        if row["gpus"] is None:
            reasons.append(f"which GPUs Slurm gave to job {number} is not known: none of its tasks names them")
            continue
        places = {(minors[minor], None) for minor in row["gpus"] if minor in minors}
        if len(places) < len(row["gpus"]):
            reasons.append(f"job {number} has a GPU that nvidia-smi does not list")
        result.places.setdefault(key, set()).update(places)
    return reasons
