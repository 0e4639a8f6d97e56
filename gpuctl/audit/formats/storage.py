"""Read the state of network file systems: `lfs df`, `lfs df -i`, `lfs getstripe`, and lists of mounts."""

from __future__ import annotations

import re
from typing import Any

from gpuctl.audit.formats.model import Record, doubt
from gpuctl.core.text import named, plural
from gpuctl.engine import lustre

_MOUNT = re.compile(r"^(\S+) on (/.*?) type (\S+) \(([^)]*)\)\s*$")
_PROC_MOUNT = re.compile(r"^(\S+) (/\S*) (\S+) (\S+) \d+ \d+\s*$")
NETWORK = ("lustre", "nfs", "nfs4", "efs", "beegfs", "gpfs", "ceph", "cifs", "smb3", "wekafs", "glusterfs")


def is_lfs_df(start: str) -> bool:
    return bool(re.search(r"^UUID\s+.*Mounted on", start, re.MULTILINE))


def read_lfs_df(text: str) -> Record:
    """Subject "storage": {targets}, in the form of gpuhost/facts/lustre.py."""
    targets, odd, ends = lustre.parse_df(text)
    findings = [doubt(f"{plural(len(odd), 'line')} not understood, the first: {odd[0][:100]}")] if odd else []
    if not ends:
        findings.append(doubt("its last line, the summary of the file system, is missing"))
    if not targets:
        return Record(findings=tuple(findings) or (doubt("it has no OST or MDT"),))
    return Record({"storage": {"targets": targets, "unread": {}}}, tuple(findings))


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
