"""Facts of healthy nodes for tests of the audit."""

from __future__ import annotations

import copy
from typing import Any

from gpuctl.engine import fact_types
from tests.rig.nccl import fleets

Facts = dict[str, Any]
LINE = "2026-11-27T03:00:01.000001+0000 n1 kernel: {}"


def rise(before: int, after: int) -> dict[str, int]:
    """A counter at both ends of the window."""
    return {"before": before, "after": after}


_LINK = {
    "address": "0000:18:00.0", "kind": "gpu", "width": 16.0, "speed": 2.5, "most_width": 16.0, "most_speed": 32.0,
    "port_width": 16.0, "port_speed": 32.0, "errors": {"fatal": 0, "nonfatal": 0, "correctable": 3},
}  # fmt: skip
_NVLINK = {
    "links": {str(number): 26.562 for number in range(18)},
    "errors": {"Replay Errors": 0, "Recovery Errors": 0, "CRC Errors": 0},
}
_SYSTEM = {
    "disks": [
        {"path": "/", "type": "ext4", "read_only": False, "free_percent": 40.0, "free_inodes_percent": 90.0},
    ],
    "memory": {"total_mib": 2064111, "available_mib": 1953125, "swap_used_mib": 0, "corrupted_mib": 0},
    "edac": {"controllers": 8, "corrected": 0, "uncorrected": 0},
    "clock": {"synchronised": True, "most_wrong_ms": 1.5},
    "uptime_s": 86400.0,
    "stuck": {"count": 0, "processes": []},
    "zombies": 0,
    "failed_units": [],
    "kubelet": {"runs": False, "healthy": None, "gpu_plugin": None},
    "unread": {},
}
_HEALTH = {
    "kernel_log": {
        "boots": [{"boot": number, "lines": [], "kernel_lines": 2000, "dropped": 0} for number in (0, -1)],
        "unread": {},
    },
    "nvlink": {"gpus": [{"gpu": number, **copy.deepcopy(_NVLINK)} for number in range(8)], "unread": {}},
    "pcie": {
        "links": [_LINK, {**copy.deepcopy(_LINK), "address": "0000:1a:00.0", "kind": "nic", "speed": 32.0}],
        "unread": {},
    },
    "counters": {
        "window_s": 2.0,
        "ports": {
            "mlx5_0:1": {
                "symbol_error": rise(3, 3),
                "link_downed": rise(1, 1),
                "port_rcv_data": rise(5, 900),
            }
        },
        "links": {"ens5": {"rx_errors": rise(0, 0), "bw_in_allowance_exceeded": rise(7, 7)}},
        "unread": {},
    },
    "system": _SYSTEM,
    "storage": {
        "mounts": [
            {"path": "/fsx", "type": "lustre", "source": "10.0.0.9@tcp:/fs", "options": ["rw"], "error": None},
            {"path": "/home", "type": "nfs4", "source": "nas:/home", "options": ["rw", "hard"], "error": None},
        ],
        "targets": [
            {
                "target": f"fs-OST000{number}",
                "inodes": inodes,
                "used_percent": 40 + number,
                "available": "2.0T",
                "mount": "/fsx",
                "error": None,
            }
            for inodes in (False, True)
            for number in range(2)
        ],
        "imports": [{"target": f"fs-OST000{number}", "state": "FULL", "evicted": False} for number in range(2)],
        "reads": [{"filesystem": "fs", "rpcs_by_pages": {"1": 10, "256": 90_000}}],
        "unread": {},
    },
}


def node(number: int = 1) -> Facts:
    """An H100 node that does nothing, and of which everything could be read."""
    answered = {"address", *fact_types.HealthFacts.__annotations__}
    facts = {name: subject for name, subject in fleets.node(number).items() if name in answered}
    facts.update(copy.deepcopy(_HEALTH))
    for gpu in facts["gpu"]["gpus"]:
        gpu["persistence"] = "Enabled"
    return facts


def fleet(count: int = 4) -> dict[str, Facts]:
    return {f"n{number}": node(number) for number in range(1, count + 1)}
