"""Facts of a node's storage, healthy unless a test changes them; in the form of gpuhost/facts/storage_load.py."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

DATA = "/data"


def phase(name: str, streams: int, block: int, reads: int, seconds: float = 2.0) -> dict[str, Any]:
    times = {"median_ms": 1.0, "slowest_ms": 9.0, "limits": [], "counted_s": seconds}
    return {"name": name, "streams": streams, "block_bytes": block, "reads": reads, "bytes": reads * block,
            "seconds": seconds, **times}  # fmt: skip


def trial(speed: float = 1.0, **changed: Any) -> dict[str, Any]:
    """A trial; `speed` is a share of 1 GB/s and 40,000 random reads a second."""
    phases = [
        phase("sequential", 1, 1 << 20, round(1000 * speed)),
        phase("sequential, streams", 8, 1 << 20, round(2000 * speed)),
        phase("random", 1, 4096, round(10_000 * speed)),
        phase("random, streams", 16, 4096, round(80_000 * speed)),
    ]
    usual = {"entries": 20, "list_s": 0.01, "is_direct": True, "file_bytes": 10**11, "cached_percent": 0}
    rest: dict[str, Any] = {"small": None, "seconds": 8.0, "nfs": {}, "tcp": None}
    return {**usual, "phases": phases, **rest, **changed}


def facts(kind: str = "ext4", **changed: Any) -> dict[str, Any]:
    """A node with its data on a local disk or on a network file system."""
    is_local = kind in ("ext4", "xfs")
    source = "/dev/nvme1n1" if is_local else "fs-0f00.efs.us-east-1.amazonaws.com:/"
    mount = {"mount_point": DATA, "type": kind, "device": "259:1" if is_local else "0:52", "source": source}
    usual: dict[str, Any] = {
        "path": DATA,
        "mount": mount,
        "window_s": 5.0,
        "nfs": {DATA: nfs()} if kind == "nfs4" else {},
        "disks": {"nvme1n1": {}} if is_local else {},
        "lustre": {"clients": {}, "osts": {}, "targets": [], "stripes": None},
        "limits": [],
        "network": {},
        "tcp": {"sent": 1000, "retransmitted": 0},
        "refaulted_bytes": 0,
        "pressure": 1.0,
        "users": [],
        "hidden": 0,
        "trial": trial(),
        "unread": {},
    }
    return {**usual, **changed}


def nfs(**changed: Any) -> dict[str, int]:
    """Rises of a mount: 1,000 reads of 1 MiB, answered in 2 ms."""
    reads = {"ops": 1000, "transmissions": 1000, "timeouts": 0, "sent_bytes": 200_000, "received_bytes": 1000 << 20,
             "queue_ms": 100, "rtt_ms": 2000, "execute_ms": 2200}  # fmt: skip
    usual = {f"reads.{name}": value for name, value in reads.items()}
    return {
        **usual,
        "connections": 1,
        "connects": 0,
        **{name.replace("__", "."): value for name, value in changed.items()},
    }


def limit(used_bytes: int, most: int = 50_000_000) -> Mapping[str, Any]:
    """A limit of reads in bytes a second."""
    used = {"read_bytes": used_bytes, "written_bytes": 0, "reads": 10, "writes": 0}
    return {"group": "/kubepods/pod1", "device": "259:1", "limits": {"read_bytes": most}, "used": used}
