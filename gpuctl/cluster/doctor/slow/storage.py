"""Folders that are full, slow, or on a network share."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from gpuctl.cluster.doctor import gpus
from gpuctl.cluster.doctor.hang.job import ranks_of
from gpuctl.cluster.doctor.hang.limits import SHM
from gpuctl.cluster.doctor.model import Facts, PodFacts
from gpuctl.cluster.doctor.slow.processors import RESTING, pressure
from gpuctl.domain import storage_load
from gpuctl.domain.findings import Finding, fail, or_ok, unknown, warn

GIB = 2**30
FULL = GIB // 4  # bytes
LITTLE, SLOW = 0.03, 20.0  # free share of a folder; percent of the time in which tasks wait for I/O
SHARES = ("nfs", "nfs4", "cifs", "smb3", "ceph", "fuse.ceph-fuse", "lustre", "efs", "9p", "glusterfs", "fuse.glusterfs")
CODE = "/workspace"
CLOSER = "copy data that is read repeatedly to a local disk or into memory; use larger files and more workers"


def storage(facts: Facts) -> list[Finding]:
    """Check that no folder is full, and that tasks wait little for I/O."""
    check, findings = "storage", []
    for name, inside in facts.answering("disk").items():
        findings += [finding for path, folder in _folders(inside) for finding in _folder(f"Pod {name}", path, folder)]
        share = pressure(inside, "io")
        if share is not None and share > SLOW:
            message = f"tasks wait for I/O {share:.0f} % of the time{_network_shares(inside)}"
            # Loaders that read ahead also wait for I/O; while GPUs are busy that costs nothing.
            findings.append((warn if _is_busy(inside) else fail)(check, f"Pod {name}", message, CLOSER))
        blocked = [rank for rank in ranks_of(inside) if rank["state"] == "D"]
        if blocked:
            at = f" in {blocked[0]['wait']}" if blocked[0]["wait"] else ""
            message = f"{len(blocked)} of its ranks wait for a disk or a driver{at}{_network_shares(inside)}"
            findings.append(warn(check, f"Pod {name}", message, CLOSER))
    return or_ok(check, facts.env.name, findings) if facts.answering("disk") else []


def load(facts: Facts) -> list[Finding]:
    """Check the counters of NFS, Lustre, disks, limits and the network, as `gpuctl incident storage` without a path."""
    check, pods = "storage load", facts.answering("storage_load")
    findings = [
        replace(finding, check=check)
        for name, inside in pods.items()
        for finding in storage_load.findings(f"Pod {name}", inside.values["storage_load"])
        if finding.check != "io-pressure"  # the check `storage` has it, of the pod itself
    ]
    return or_ok(check, facts.env.name, findings) if pods else []


def _folder(subject: str, path: str, folder: Mapping[str, Any]) -> list[Finding]:
    if "why" in folder:
        return [unknown("storage", subject, f"{path} cannot be read: {folder['why']}")]
    little = _little(folder)
    if not little:
        return []
    report, word = (fail, "is full") if _is_full(folder) else (warn, "is almost full")
    return [report("storage", subject, f"{path} {word}: {little}", "free some space")]


def _is_busy(inside: PodFacts) -> bool:
    shares_busy = [gpu.busy for gpu in gpus.gpus_of(inside).gpus]
    return bool(shares_busy) and all(busy is not None and busy >= RESTING for busy in shares_busy)


def shares(facts: Facts) -> list[Finding]:
    """Warn about code on a network share if tasks wait for I/O: each start reads it file by file."""
    check, findings = "shares", []
    for name, inside in facts.answering("disk").items():
        folder = (inside.values.get("disk") or {}).get(CODE) or {}
        share, ranks = pressure(inside, "io"), ranks_of(inside)
        if folder.get("type") in SHARES and (
            share is None or share > SLOW / 2 or any(r["state"] == "D" for r in ranks)
        ):
            message = f"{CODE} is on a network share ({folder['type']}): imports and small files are slow"
            hint = "copy code and small files to /tmp at the start; install Python packages in the image"
            findings.append(warn(check, f"Pod {name}", message, hint))
    return or_ok(check, facts.env.name, findings) if facts.answering("disk") else []


def _folders(inside: PodFacts) -> Iterator[tuple[str, Mapping[str, Any]]]:
    for path, folder in (inside.values.get("disk") or {}).items():
        if path not in (SHM, "unread") and not {"missing", "late"} & folder.keys():
            yield path, folder


def _is_full(folder: Mapping[str, Any]) -> bool:
    """Return whether almost nothing can be written: a read-only data set may fill most of its disk."""
    return bool(folder["free"] < FULL or (folder["inodes"] and folder["inodes_free"] < folder["inodes"] * LITTLE))


def _little(folder: Mapping[str, Any]) -> str:
    if folder["size"] and folder["free"] < folder["size"] * LITTLE:
        return f"{folder['free'] / GIB:.1f} of {folder['size'] / GIB:.1f} GiB are free"
    if folder["inodes"] and folder["inodes_free"] < folder["inodes"] * LITTLE:
        return f"{folder['inodes_free']} of {folder['inodes']} inodes are free"
    return ""


def _network_shares(inside: PodFacts) -> str:
    """Name the folders on network shares."""
    far = [f"{path} ({folder['type']})" for path, folder in _folders(inside) if folder.get("type") in SHARES]
    return f"; on network shares: {', '.join(far)}" if far else ""
