"""Counters of file systems, disks and the network: parsers of what the kernel shows, and changes between readings."""

from __future__ import annotations

import re
from collections.abc import Mapping

SECTOR = 512  # bytes, whatever the disk's own sectors are (Documentation/admin-guide/iostats.rst)
METADATA = ("GETATTR", "LOOKUP", "ACCESS", "OPEN", "OPEN_NOATTR", "CLOSE", "READDIR", "READDIRPLUS", "SETATTR")
OPERATION = ("ops", "transmissions", "timeouts", "sent_bytes", "received_bytes", "queue_ms", "rtt_ms", "execute_ms")
_MOUNTED = re.compile(r"^device (.*) mounted on (/.*) with fstype (nfs4?) statvers=")
_STATS = re.compile(r"^(\w+)\s+(\d+) samples \[\w+\](?:\s+\d+\s+\d+\s+(\d+))?", re.MULTILINE)


def nfs_mounts(text: str) -> dict[str, dict[str, int]]:
    """Mount point -> {reads.ops, reads.rtt_ms, writes.…, metadata.…, connections, connects} of /proc/self/mountstats.

    The columns of an operation are those of nfs-utils' mountstats(8). Counters of metadata are sums over METADATA.
    """
    mounts: dict[str, dict[str, int]] = {}
    values: dict[str, int] | None = None
    for line in text.splitlines():
        if line.startswith("device "):
            mounted = _MOUNTED.match(line)
            values = mounts.setdefault(unescaped(mounted[2]), {"connections": 0, "connects": 0}) if mounted else None
        elif values is not None:
            name, colon, rest = line.strip().partition(":")
            cells = rest.split()
            if name == "xprt" and cells[:1] == ["tcp"] and len(cells) > 3:
                values["connections"] += 1
                values["connects"] += int(cells[3])
            elif colon and len(cells) >= len(OPERATION) and all(cell.isdigit() for cell in cells[: len(OPERATION)]):
                group = {"READ": "reads", "WRITE": "writes"}.get(name, "metadata" if name in METADATA else "")
                for column, cell in zip(OPERATION, cells):
                    if group:
                        values[f"{group}.{column}"] = values.get(f"{group}.{column}", 0) + int(cell)
    return mounts


def unescaped(path: str) -> str:
    r"""A path of /proc/mounts, which writes a space as \040."""
    return re.sub(r"\\([0-7]{3})", lambda code: chr(int(code[1], 8)), path)


def disks(text: str) -> dict[str, dict[str, int]]:
    """ "254:0" -> {reads, read_bytes, read_ms, writes, written_bytes, write_ms, busy_ms, queue_ms} of /proc/diskstats.

    `queue_ms`: milliseconds of all requests together, so that queue_ms / time is the mean number of requests.
    """
    rows = (line.split() for line in text.splitlines())
    return {
        f"{row[0]}:{row[1]}": {
            "reads": int(row[3]),
            "read_bytes": int(row[5]) * SECTOR,
            "read_ms": int(row[6]),
            "writes": int(row[7]),
            "written_bytes": int(row[9]) * SECTOR,
            "write_ms": int(row[10]),
            "busy_ms": int(row[12]),
            "queue_ms": int(row[13]),
        }
        for row in rows
        if len(row) >= 14
    }


def lustre_stats(text: str) -> dict[str, dict[str, int]]:
    """Name of an event -> {count, sum} of a Lustre stats file; sum in the unit of the file, 0 if it has none."""
    return {name: {"count": int(count), "sum": int(total or 0)} for name, count, total in _STATS.findall(text)}


def tcp(text: str) -> dict[str, int] | None:
    """{sent, retransmitted} segments of /proc/net/snmp; None if it has no such row."""
    rows = [line.split()[1:] for line in text.splitlines() if line.startswith("Tcp:")]
    if len(rows) != 2:
        return None
    row = dict(zip(*rows))
    try:
        return {"sent": int(row["OutSegs"]), "retransmitted": int(row["RetransSegs"])}
    except (KeyError, ValueError):
        return None


def pressure(text: str | None) -> float | None:
    """Percent of the last ten seconds in which some task waited, of a file of /proc/pressure; None if unknown."""
    match = re.search(r"^some avg10=([\d.]+)", text or "", re.MULTILINE)
    return float(match[1]) if match else None


def numbers(text: str | None) -> dict[str, int]:
    """Values of lines such as "name 12" and "Name: 12 kB", in the unit of the file."""
    return {name: int(value) for name, value in re.findall(r"^(\w+):?\s+(\d+)", text or "", re.MULTILINE)}


def change(before: Mapping[str, int], after: Mapping[str, int]) -> dict[str, int]:
    """Rise of each counter that both readings have; a counter that fell has begun again, and is left out."""
    return {name: value - before[name] for name, value in after.items() if name in before and value >= before[name]}
