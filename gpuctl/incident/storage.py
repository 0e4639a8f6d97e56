"""Cause of slow data loading or checkpoints: findings of all nodes, nodes compared with each other, and a verdict."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from statistics import median
from typing import Any

from gpuctl.core.text import named
from gpuctl.domain import storage_load
from gpuctl.domain.findings import Finding, Verdict, fail, unknown, warn, worst_first
from gpuctl.domain.storage_load import MB, mbs, rate
from gpuctl.incident.model import Cause, Certainty

Fleet = Mapping[str, Mapping[str, Any]]  # node -> facts of gpuhost/facts/storage_load.py
FEWEST_NODES, STRAGGLER_SHARE = 3, 0.5  # nodes to compare; share of the median below which one differs
MANY_WRITERS = 4
LATENCY_SHARE, SLOW_STREAM_MBS = 3.0, 300.0
# Measurement -> (phase of the trial, its unit, divisor, unit for people).
SPEEDS = {
    "sequential": ("sequential", "bytes", MB, "MB/s, 1 stream"),
    "parallel": ("sequential, streams", "bytes", MB, "MB/s, 8 streams"),
    "random": ("random", "reads", 1, "random reads a second, 1 stream"),
    "random_parallel": ("random, streams", "reads", 1, "random reads a second, 16 streams"),
}


# Check of a FAIL -> (cause, certainty), in the order in which one explains the next ones.
CAUSES: Mapping[str, tuple[str, Certainty]] = {
    "path": ("the file system does not answer", Certainty.PROVEN),
    "io-limit": ("a throughput or IOPS limit is reached", Certainty.PROVEN),
    "slow-node": (
        "some nodes read far slower than the others: the nodes or their network, not the storage",
        Certainty.LIKELY,
    ),
    "storage-network": ("the network to the storage", Certainty.LIKELY),
    "nfs": ("the NFS server, or the connection to it", Certainty.LIKELY),
    "lustre": ("one target of the Lustre file system", Certainty.LIKELY),
    "small-reads": ("many small random reads, more than the storage serves", Certainty.LIKELY),
    "disk": ("a disk is exhausted", Certainty.LIKELY),
    "not-mounted": ("the file system is not mounted on some nodes", Certainty.LIKELY),
}
WRITERS = "; many processes write at the same time, as checkpoints of all ranks do"
NOT_FOUND = "nothing that was measured explains slow storage; measure while it is slow, with --path of the data"


def judge(fleet: Fleet) -> list[Finding]:
    """Findings on all nodes, the worst first."""
    findings = [finding for node, facts in fleet.items() for finding in storage_load.findings(node, facts)]
    known = {node: facts for node, facts in fleet.items() if "*" not in facts["unread"]}
    findings += [*_missing(known), *_stragglers(known), *_writers(known)]
    for node, facts in known.items():
        findings += _streams(node, facts)
        findings.append(Finding("measured", node, Verdict.OK, _measured(facts), speeds(facts)))
    return worst_first(findings)


def cause(findings: Iterable[Finding]) -> Cause:
    """The first row of CAUSES that a FAIL supports."""
    listed = list(findings)
    failed = {finding.check for finding in listed if finding.verdict is Verdict.FAIL}
    for check, (text, certainty) in CAUSES.items():
        if check in failed:
            writers = any(finding.check == "writers" and finding.verdict is Verdict.WARN for finding in listed)
            subjects = [one.subject for one in listed if one.check == check and one.verdict is Verdict.FAIL]
            evidence = dict.fromkeys(
                one.message for one in listed if one.check == check and one.verdict is Verdict.FAIL
            )
            return Cause(
                text + (WRITERS if writers else ""), certainty, tuple(dict.fromkeys(subjects)), tuple(evidence)
            )
    return Cause(NOT_FOUND, Certainty.UNKNOWN)


def speeds(facts: Mapping[str, Any]) -> dict[str, float | None]:
    """Measurement of SPEEDS -> value; None if it was not measured."""
    values = {name: rate(facts, phase, unit) for name, (phase, unit, _, _) in SPEEDS.items()}
    return {name: None if value is None else round(value / SPEEDS[name][2], 1) for name, value in values.items()}


def _missing(fleet: Fleet) -> list[Finding]:
    """Nodes without the path that most of the others have."""
    absent = [node for node, facts in fleet.items() if facts["unread"].get("path") == storage_load.MISSING]
    others = sum(facts["mount"] is not None for facts in fleet.values())
    if others <= len(absent):
        return []
    message = f"the path does not exist on this node, and does on {others} others: not mounted on this node"
    hint = "mount it (findmnt --verify), or leave a node that needs no data out"
    return [fail("not-mounted", node, message, hint) for node in absent]


def _stragglers(fleet: Fleet) -> list[Finding]:
    """Nodes whose reads of one source are far slower than the median; FAIL if two measurements agree."""
    by_source: dict[str, dict[str, dict[str, float | None]]] = {}
    for node, facts in fleet.items():
        mount = facts["mount"]
        # Local disks may be of different models and sizes: a slower one is no fault of its node.
        is_shared = mount and mount["type"] in storage_load.NETWORK_TYPES
        if is_shared and facts["trial"] and facts["trial"]["is_direct"]:
            by_source.setdefault(mount["source"], {})[node] = speeds(facts)
    slow: dict[tuple[str, str], list[str]] = {}
    for source, rows in by_source.items():
        for name in SPEEDS:
            for node, text in _slow_in(name, rows).items():
                slow.setdefault((node, source), []).append(text)
    hint = "compare its interface, MTU and mount options with the others: gpuctl audit"
    return [
        (fail if len(texts) > 1 else warn)("slow-node", node, f"from {source}: {'; '.join(texts)}", hint)
        for (node, source), texts in slow.items()
    ]


def _slow_in(name: str, rows: Mapping[str, Mapping[str, float | None]]) -> dict[str, str]:
    """Slow node -> its value of a measurement; {} for few nodes, or if half of them differ."""
    known = {node: value for node, row in rows.items() if (value := row[name]) is not None}
    usual = median(known.values()) if len(known) >= FEWEST_NODES else 0.0
    slow = [node for node, value in known.items() if value < STRAGGLER_SHARE * usual]
    unit = SPEEDS[name][3]
    texts = {node: f"{known[node]:g} {unit} (median of {len(known)} nodes: {usual:g})" for node in slow}
    return texts if len(slow) * 2 < len(known) else {}


def _writers(fleet: Fleet) -> list[Finding]:
    """Processes that write to the path at the same time, on all nodes together."""
    rows = [
        (node, user["written_bytes"] or 0, facts["window_s"])
        for node, facts in fleet.items()
        for user in facts["users"]
        if user["is_writer"] and user["written_bytes"]
    ]
    hidden = sum(facts["hidden"] for facts in fleet.values())
    findings = []
    if len(rows) >= MANY_WRITERS:
        total = sum(count / seconds for _, count, seconds in rows if seconds) / MB
        nodes = named(dict.fromkeys(node for node, _, _ in rows), 4)
        message = f"{len(rows)} processes write at the same time, {total:.1f} MB/s together"
        hint = "write checkpoints from one rank of each node, sharded or asynchronously; spread them over stripes"
        findings.append(warn("writers", nodes, message, hint, writers=len(rows), mb_s=round(total, 1)))
    elif hidden:
        message = f"the files of other users' processes ({hidden}) are hidden: how many write is unknown"
        findings.append(Finding("writers", "", Verdict.OK, message, {}, "log in as root to count them"))
    return findings


def _streams(node: str, facts: Mapping[str, Any]) -> list[Finding]:
    """One stream is not far slower than several."""
    alone, together = speeds(facts)["sequential"], speeds(facts)["parallel"]
    if alone is None or together is None or alone >= SLOW_STREAM_MBS or together < LATENCY_SHARE * alone:
        return []
    message = f"one stream reads {alone:g} MB/s, eight read {together:g}: each read waits for an answer"
    hint = "use more loader workers and prefetching; on NFS raise read_ahead_kb of the mount"
    return [warn("streams", node, message, hint, alone_mbs=alone, together_mbs=together)]


def _measured(facts: Mapping[str, Any]) -> str:
    """Numbers of a node in one line."""
    parts = []
    if facts["mount"]:
        parts.append(f"{facts['path']} is on {facts['mount']['type']} from {facts['mount']['source']}")
    shown = [f"{value:g} {SPEEDS[name][3]}" for name, value in speeds(facts).items() if value is not None]
    if shown:
        parts.append(f"a trial read {', '.join(shown)}")
    elif facts["trial"] and facts["trial"]["phases"]:
        parts.append("its files are too small for a measurement")
    cached = (facts["trial"] or {}).get("cached_percent")
    if cached is not None:
        parts.append(f"{cached} % of the largest file is in the page cache")
    return "; ".join([*parts, f"load: {_load(facts)}"])


def _load(facts: Mapping[str, Any]) -> str:
    """Load in the window, by what carries it."""
    seconds, parts = facts["window_s"], []
    for name, rise in facts["disks"].items():
        if rise.get("reads") or rise.get("writes"):
            read, written = mbs(rise.get("read_bytes", 0), seconds), mbs(rise.get("written_bytes", 0), seconds)
            parts.append(f"{name} reads {read} and writes {written} MB/s")
    for mount, rise in facts["nfs"].items():
        read = mbs(rise.get("reads.received_bytes", 0), seconds)
        parts.append(f"{mount} reads {read} and writes {mbs(rise.get('writes.sent_bytes', 0), seconds)} MB/s")
    for name, events in facts["lustre"]["clients"].items():
        read, written = (mbs(events.get(f"{kind}_bytes", {}).get("sum", 0), seconds) for kind in ("read", "write"))
        parts.append(f"{name} reads {read} and writes {written} MB/s")
    return ", ".join(parts) or "none"


def unreached(missing: Mapping[str, str]) -> Sequence[Finding]:
    """A finding for each node that gave no facts."""
    return [unknown("path", node, f"not measured: {reason}") for node, reason in missing.items()]
