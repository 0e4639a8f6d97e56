"""Facts of a node's audit, beside those that it shares with an NCCL run."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..host import Host
from . import counters, gather, kernel_log, nvlink, outputs, pcie, storage, system

SUBJECTS: dict[str, gather.Subject] = {
    **{name: gather.SUBJECTS[name] for name in ("gpu", "rdma", "names", "jobs")},
    "kernel_log": kernel_log.read,
    "nvlink": nvlink.read,
    "pcie": pcie.read,
    "counters": counters.read,
    "system": system.read,
    "storage": storage.read,
}


def read(host: Host, request: Mapping[str, Any]) -> dict[str, Any]:
    """All of them, as `gather` does; see the keys of the request there and in kernel_log.py and counters.py.

    For "audit and outputs", also what programs print (outputs.py).
    """
    with_outputs = request.get("subjects") == "audit and outputs"
    return gather.gather(host, request, {**SUBJECTS, "outputs": outputs.read} if with_outputs else SUBJECTS)
