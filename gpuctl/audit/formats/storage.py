"""Read the state of network file systems: `lfs df`, `lfs df -i`, `lfs getstripe`, and lists of mounts."""

from __future__ import annotations

import re
from typing import Any

from gpuctl.audit.formats.model import Record, doubt
from gpuctl.core.text import named, plural

_TARGET = re.compile(r"^(\S+-(?:MDT|OST)[0-9a-f]{4})(?:_UUID)?\s+(\S.*)$")
_INACTIVE = re.compile(r"^(?:(\S+-)?(?:MDT|OST)[0-9a-f]{4}(?:_UUID)?)\s*:\s*(.+)$")
_MOUNT = re.compile(r"^(\S+) on (/.*?) type (\S+) \(([^)]*)\)\s*$")
_PROC_MOUNT = re.compile(r"^(\S+) (/\S*) (\S+) (\S+) \d+ \d+\s*$")
NETWORK = ("lustre", "nfs", "nfs4", "efs", "beegfs", "gpfs", "ceph", "cifs", "smb3", "wekafs", "glusterfs")


def is_lfs_df(start: str) -> bool:
    return bool(re.search(r"^UUID\s+.*Mounted on", start, re.MULTILINE))


def read_lfs_df(text: str) -> Record:
    """Subject "storage": {targets}: {target, inodes, used_percent, available, mount, error} for each OST and MDT."""
    targets: list[dict[str, Any]] = []
    odd, ends, inodes = [], 0, False
    for line in map(str.strip, text.splitlines()):
        if line.startswith("UUID"):
            inodes = line.split()[1:2] == ["Inodes"]
        elif line.startswith("filesystem"):
            ends += 1
        elif target := _target_of(line, inodes):
            targets.append(target)
        elif _TARGET.match(line):
            odd.append(line)
    findings = [doubt(f"{plural(len(odd), 'line')} not understood, the first: {odd[0][:100]}")] if odd else []
    if not ends:
        findings.append(doubt("its last line, the summary of the file system, is missing"))
    if not targets:
        return Record(findings=tuple(findings) or (doubt("it has no OST or MDT"),))
    return Record({"storage": {"targets": targets, "unread": {}}}, tuple(findings))


def _target_of(line: str, inodes: bool) -> dict[str, Any] | None:
    """A target by its line; None if it is none, or cut."""
    if inactive := _INACTIVE.match(line):
        return _target(line.partition(":")[0].strip(), inodes, error=inactive[2])
    row = _TARGET.match(line)
    cells = row[2].split() if row else []
    percent = re.fullmatch(r"(\d{1,3})%", cells[3]) if len(cells) >= 5 else None
    if not row or not percent:
        return None
    mount = re.sub(r"\[(?:OST|MDT):\d+\]$", "", cells[4])
    return {**_target(row[1], inodes), "used_percent": int(percent[1]), "available": cells[2], "mount": mount}


def _target(name: str, inodes: bool, error: str | None = None) -> dict[str, Any]:
    return {
        "target": name.removesuffix("_UUID"),
        "inodes": inodes,
        "used_percent": None,
        "available": None,
        "mount": None,
        "error": error,
    }


def is_getstripe(start: str) -> bool:
    return "lmm_stripe_count:" in start or bool(re.search(r"^stripe_count:\s+", start, re.MULTILINE))


def read_getstripe(text: str) -> Record:
    """Subject "storage": {stripes}: {path, counts} for each file or folder; counts of its components, -1 is all."""
    stripes: list[dict[str, Any]] = []
    odd = []
    path = None
    for line in text.splitlines():
        count = re.match(r"\s*(?:lmm_)?stripe_count:\s+(\S+)", line)
        pattern = re.match(r"\s*lmm_pattern:\s+(\S+)", line)
        if line and not line[0].isspace() and ":" not in line and not line.startswith(("$", "#", ">")):
            path = line.strip()
            stripes.append({"path": path, "counts": []})
        elif count:
            if not stripes:
                stripes.append({"path": "?", "counts": []})
            if re.fullmatch(r"-?\d+", count[1]):
                stripes[-1]["counts"].append(int(count[1]))
            else:
                odd.append(line.strip())
        elif pattern and pattern[1] == "mdt" and stripes and stripes[-1]["counts"]:
            stripes[-1]["counts"].pop()  # this part of the file is on the metadata server
    empty = [one["path"] for one in stripes if not one["counts"]]
    findings = [doubt(f"no stripe count: {named([*empty, *odd], 4)}")] if empty or odd else []
    return Record({"storage": {"stripes": [one for one in stripes if one["counts"]], "unread": {}}}, tuple(findings))


def is_mounts(start: str) -> bool:
    lines = [line for line in start.splitlines() if line.strip()][:40]
    rows = [line for line in lines if _MOUNT.match(line) or _PROC_MOUNT.match(line)]
    return len(rows) >= 1 and len(rows) * 2 > len(lines)


def read_mounts(text: str) -> Record:
    """Subject "storage": {mounts}: {path, type, source, options, error} of network file systems."""
    mounts, odd, rows = [], 0, 0
    for line in filter(str.strip, text.splitlines()):
        row = _MOUNT.match(line) or _PROC_MOUNT.match(line)
        odd, rows = odd + (row is None), rows + (row is not None)
        if row:
            source, path, kind, options = row.groups()
            if kind in NETWORK:
                mounts.append(
                    {"path": path, "type": kind, "source": source, "options": options.split(","), "error": None}
                )
    findings = (doubt(f"{plural(odd, 'line')} of it not understood"),) if odd else ()
    return Record({"storage": {"mounts": mounts, "unread": {}}}, findings, f"lists {plural(rows, 'mount')}")
