"""Folders that are full, slow, or on a network share."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from gpuctl.cluster.doctor import gpus
from gpuctl.cluster.doctor.hang.job import ranks_of
from gpuctl.cluster.doctor.hang.limits import SHM
from gpuctl.cluster.doctor.model import Facts, Inside
from gpuctl.cluster.doctor.slow.processors import RESTING, pressure
from gpuctl.domain.findings import Finding, fail, or_ok, unknown, warn

GIB = 2**30
FULL = GIB // 4  # bytes
LITTLE, SLOW = 0.03, 20.0  # of a folder free; percent of the time that somebody waits for disks
SHARES = ("nfs", "nfs4", "cifs", "smb3", "ceph", "fuse.ceph-fuse", "lustre", "efs", "9p", "glusterfs", "fuse.glusterfs")
CODE = "/workspace"
CLOSER = "bring data that is read again and again to a local disk, or into memory; larger files, more workers"


def storage(facts: Facts) -> list[Finding]:
    """No folder is full, and nobody waits long for disks."""
    check, findings = "storage", []
    for name, inside in facts.telling("room").items():
        findings += [rank for path, folder in _folders(inside) for rank in _folder(f"Pod {name}", path, folder)]
        share = pressure(inside, "io")
        if share is not None and share > SLOW:
            message = f"{share:.0f} % of the time somebody there waits for disks{_on_what(inside)}"
            # Loaders that read ahead wait for disks, too; while GPUs are busy nobody waits for them.
            findings.append((warn if _is_busy(inside) else fail)(check, f"Pod {name}", message, CLOSER))
        blocked = [rank for rank in ranks_of(inside) if rank["state"] == "D"]
        if blocked:
            at = f" in {blocked[0]['wait']}" if blocked[0]["wait"] else ""
            message = f"{len(blocked)} of its ranks wait for a disk or a driver{at}{_on_what(inside)}"
            findings.append(warn(check, f"Pod {name}", message, CLOSER))
    return or_ok(check, facts.env.name, findings) if facts.telling("room") else []


def _folder(subject: str, path: str, folder: Mapping[str, Any]) -> list[Finding]:
    if "why" in folder:
        return [unknown("storage", subject, f"{path} cannot be looked at: {folder['why']}")]
    little = _little(folder)
    if not little:
        return []
    say, word = (fail, "is full") if _is_full(folder) else (warn, "is almost full")
    return [say("storage", subject, f"{path} {word}: {little}", "make room there")]


def _is_busy(inside: Inside) -> bool:
    shares_busy = [gpu.busy for gpu in gpus.of(inside).gpus]
    return bool(shares_busy) and all(busy is not None and busy >= RESTING for busy in shares_busy)


def shares(facts: Facts) -> list[Finding]:
    """Code is read file by file at each start, which a network share makes slow; that it is one is no fault."""
    check, findings = "shares", []
    for name, inside in facts.telling("room").items():
        folder = (inside.said.get("room") or {}).get(CODE) or {}
        share, ranks = pressure(inside, "io"), ranks_of(inside)
        if folder.get("type") in SHARES and (
            share is None or share > SLOW / 2 or any(r["state"] == "D" for r in ranks)
        ):
            message = f"{CODE} is on a network share ({folder['type']}): imports and small files take long"
            hint = "copy code and small files to /tmp at the start; keep Python's packages in the image"
            findings.append(warn(check, f"Pod {name}", message, hint))
    return or_ok(check, facts.env.name, findings) if facts.telling("room") else []


def _folders(inside: Inside) -> Iterator[tuple[str, Mapping[str, Any]]]:
    for path, folder in (inside.said.get("room") or {}).items():
        if path not in (SHM, "unread") and not {"missing", "late"} & folder.keys():
            yield path, folder


def _is_full(folder: Mapping[str, Any]) -> bool:
    """Data that are only read may fill their disk: it is full where hardly anything more can be written."""
    return bool(folder["free"] < FULL or (folder["inodes"] and folder["inodes_free"] < folder["inodes"] * LITTLE))


def _little(folder: Mapping[str, Any]) -> str:
    if folder["size"] and folder["free"] < folder["size"] * LITTLE:
        return f"{folder['free'] / GIB:.1f} of {folder['size'] / GIB:.1f} GiB are free"
    if folder["inodes"] and folder["inodes_free"] < folder["inodes"] * LITTLE:
        return f"{folder['inodes_free']} of {folder['inodes']} files can still be made"
    return ""


def _on_what(inside: Inside) -> str:
    """The folders that are on network shares."""
    far = [f"{path} ({folder['type']})" for path, folder in _folders(inside) if folder.get("type") in SHARES]
    return f"; on a network share {'is' if len(far) == 1 else 'are'} {', '.join(far)}" if far else ""
