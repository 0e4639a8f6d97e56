"""Nodes and jobs as `scontrol -d --oneliner show` and squeue print them: GPUs by number, and who has them. No I/O."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

MOST_GPUS = 1024  # of one node
# squeue's columns; the job's name is last, as it may contain anything.
COLUMNS = ("number", "uid", "user", "account", "partition", "state", "start", "nodes", "name")
SQUEUE_FORMAT = "%A|%U|%u|%a|%P|%T|%S|%N|%j"
HOLDING = ("RUNNING", "SUSPENDED", "COMPLETING", "CONFIGURING", "STOPPED")
_NONE = ("(null)", "N/A", "")
_GRES = re.compile(r"(?:gres/)?gpu(?::(?P<type>[^:,()=]+))?[:=](?P<count>\d+)(?:\((?P<more>[^)]*)\))?")
_REASON = re.compile(r"\bReason=(?P<text>.*?) \[(?P<by>[^@\[\]\s]+)@(?P<time>[^\]\s]+)\]")
_PLACES = re.compile(r"\bNodes=(\S+) CPU_IDs=\S* Mem=\S* GRES(?:_IDX)?=(\S*)")


@dataclass(frozen=True)
class Gres:
    """GPUs of one type; `type`: "" if Slurm has none. `indices`: None if Slurm prints no numbers."""

    type: str
    count: int
    indices: tuple[int, ...] | None = None


@dataclass(frozen=True)
class NodeRecord:
    """A node. `state`: sinfo's word with its suffix. `gpus`: configured; `used`: given to jobs, None if not printed.

    `reason`, `by`, `since`: why it is drained or down, who set that, and the Unix time; empty and None without.
    """

    name: str
    addresses: tuple[str, ...]
    partitions: tuple[str, ...]
    state: str
    gpus: tuple[Gres, ...]
    used: tuple[Gres, ...] | None
    reason: str = ""
    by: str = ""
    since: int | None = None

    @property
    def total(self) -> int:
        return min(MOST_GPUS, sum(gres.count for gres in self.gpus))


@dataclass(frozen=True)
class JobRecord:
    """A job that has nodes. `gpus`: node -> its GPUs there. `start`: Unix time."""

    number: str
    name: str
    user: str
    account: str
    partition: str
    state: str
    start: int | None
    gpus: Mapping[str, tuple[Gres, ...]]

    def details(self) -> dict[str, str]:
        """Name, account, partition and state, as far as Slurm has them."""
        values = {"job_name": self.name, "account": self.account, "partition": self.partition, "job_state": self.state}
        return {name: value for name, value in values.items() if value not in _NONE}


def gres(text: str) -> tuple[Gres, ...]:
    """GPUs in "gpu:h200:3(IDX:0-1,3),shard:8" or "cpu=8,gres/gpu:h200=2"; other resources are left out."""
    parts = re.split(r",(?![^(]*\))", text.strip())
    matches = (_GRES.fullmatch(part) for part in parts)
    return tuple(Gres(m["type"] or "", int(m["count"]), _indices(m["more"] or "")) for m in matches if m)


def _indices(text: str) -> tuple[int, ...] | None:
    """ "IDX:0-1,3" -> (0, 1, 3); None for "IDX:N/A" and "S:0-1", which are no numbers of GPUs."""
    match = re.fullmatch(r"IDX:(\d+(?:-\d+)?(?:,\d+(?:-\d+)?)*)", text)
    if match is None:
        return None
    numbers: set[int] = set()
    for part in match[1].split(","):
        first, _, last = part.partition("-")
        numbers.update(range(int(first), min(int(last or first), int(first) + MOST_GPUS) + 1))
    return tuple(sorted(numbers))


def nodes(text: str, states: Mapping[str, str]) -> list[NodeRecord]:
    """Nodes of `scontrol -d --oneliner show node`; `states`: node -> sinfo's word, for nodes that it lists."""
    return [_node(line, states) for line in text.splitlines() if line.startswith("NodeName=")]


def _node(line: str, states: Mapping[str, str]) -> NodeRecord:
    name = _field(line, "NodeName")
    configured = gres(_field(line, "Gres")) or _without_sum(gres(_field(line, "CfgTRES")))
    used = gres(_field(line, "GresUsed")) if "GresUsed=" in line else None
    reason = _REASON.search(line)
    addresses = dict.fromkeys((name, _field(line, "NodeHostName"), _field(line, "NodeAddr")))
    return NodeRecord(
        name,
        tuple(address for address in addresses if address not in _NONE),
        tuple(part for part in _field(line, "Partitions").split(",") if part),
        states.get(name) or _field(line, "State").lower(),
        configured,
        used,
        reason["text"] if reason else "",
        reason["by"] if reason else "",
        time_of(reason["time"]) if reason else None,
    )


def _without_sum(rows: tuple[Gres, ...]) -> tuple[Gres, ...]:
    """CfgTRES has GPUs by type and, besides, their sum."""
    typed = tuple(row for row in rows if row.type)
    return typed or rows


def _field(line: str, name: str) -> str:
    match = re.search(rf"(?:^|\s){name}=(\S*)", line)
    return match[1] if match else ""


def time_of(text: str) -> int | None:
    """Unix time of Slurm's local time, "2026-11-27T23:00:18"; None if it is none."""
    try:
        return round(datetime.fromisoformat(text).astimezone().timestamp())
    except (ValueError, OverflowError, OSError):
        return None


def queue(text: str, token: str) -> list[dict[str, str]]:
    """Rows of squeue in `SQUEUE_FORMAT`, each after a token: names of jobs contain what their users like."""
    rows = [row.removesuffix("\n").split("|", len(COLUMNS) - 1) for row in text.split(f"{token}|")[1:]]
    return [dict(zip(COLUMNS, row, strict=True)) for row in rows if len(row) == len(COLUMNS)]


def jobs(rows: Iterable[Mapping[str, str]], details: str, expanded: Mapping[str, Sequence[str]]) -> list[JobRecord]:
    """Jobs that hold nodes; `details`: of `scontrol -d --oneliner show job`, `expanded`: host list -> its nodes.

    A user chooses the job's name, and so writes part of the record: what follows that name counts. GPUs of a job with
    two records, or none, are unknown and missing in `gpus`.
    """
    records = _records(details)
    made = []
    for row in rows:
        own = records.get(row["number"], [])
        places = host_lists(own[0], row["name"]) if len(own) == 1 else []
        gpus: dict[str, tuple[Gres, ...]] = {}
        for hosts, found in places:
            for node in expanded.get(hosts, ()):
                gpus[node] = gpus.get(node, ()) + found
        texts = {key: row[key] for key in ("number", "name", "user", "account", "partition", "state")}
        made.append(JobRecord(**texts, start=time_of(row["start"]), gpus=gpus))
    return made


def _records(details: str) -> dict[str, list[str]]:
    """Number of a job -> its records."""
    records: dict[str, list[str]] = {}
    for record in re.split(r"^(?=JobId=)", details, flags=re.MULTILINE):
        if match := re.match(r"JobId=(\d+) ", record):
            records.setdefault(match[1], []).append(record)
    return records


def host_lists_of(details: str, names: Mapping[str, str]) -> list[str]:
    """Host lists of all jobs; `names`: number -> the job's name."""
    by_number = _records(details)
    lists = [host_lists(record, names[number]) for number in names for record in by_number.get(number, ())]
    return list(dict.fromkeys(hosts for rows in lists for hosts, _ in rows))


def host_lists(record: str, name: str) -> list[tuple[str, tuple[Gres, ...]]]:
    """Host lists and GPUs of a job's record: those printed after the job's name and before what its user wrote."""
    _, _, rest = record.partition(f"JobName={name} UserId=")
    allocated, _, _ = rest.partition(" MinCPUsNode=")
    return [(hosts, gres(text)) for hosts, text in _PLACES.findall(allocated)]
