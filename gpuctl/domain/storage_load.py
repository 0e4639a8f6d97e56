"""Judge the load of a node's storage: limits, network file systems, disks, network, cache and small reads.

Facts are those of gpuhost/facts/storage_load.py. Limits without a source are this project's own choices.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from statistics import median
from typing import Any

from gpuctl.core.text import plural
from gpuctl.domain.findings import Finding, Verdict, fail, unknown, warn

Facts = Mapping[str, Any]
Rule = Callable[[str, Facts], Iterator[Finding]]
MB, MIB = 10**6, 2**20
AT_LIMIT = 0.9  # share of a limit from which on it is reached
FEW_OPS = 20  # requests below which a mean proves nothing
SLOW_MS, VERY_SLOW_MS, QUEUE_MS = 10.0, 50.0, 5.0
RESENT_SHARE, TCP_SHARE = 0.005, 0.01
BUSY_SHARE, DEEP_QUEUE, DISK_MS = 0.95, 8.0, 20.0
SMALL_READ, MANY_READS = 64 * 1024, 500
OPEN_MS = 5.0
SLOW_TARGET, SLOW_TARGET_MS = 3.0, 20.0
REFAULT_SHARE, REFAULT_MBS = 0.3, 10.0
WAITS_PERCENT = 20.0
FULL_PERCENT = 95
EFS_MIB_S = 500  # of one client; amazon-efs-utils from 2.0 on allows 1,500
EFS = "Amazon EFS user guide, quotas: throughput per client"
MOUNTSTATS = "nfs-utils, mountstats(8)"
LUSTRE = "Lustre Operations Manual, Monitoring the Client"
CGROUP = "Linux, Control Group v2: io.max"
ALLOWANCE = "Amazon EC2 user guide, ENA network performance metrics"
MISSING = "No such file or directory"
# A path that does not answer, and the errors of a file system that is lost; others are about the path.
NO_ANSWER, LOST = "no answer within", ("Stale file handle", "Input/output error", "Transport endpoint is not connected")
SHORTEST_S = 0.5  # seconds of a phase below which its rate proves no limit
SHARED_ALLOWANCES = ("bw_in_allowance_exceeded", "bw_out_allowance_exceeded", "pps_allowance_exceeded")
NETWORK_TYPES = ("nfs", "nfs4", "lustre", "beegfs", "gpfs", "ceph", "cifs", "smb3", "wekafs", "9p")
SOURCES = ("/proc/diskstats", "/proc/self/mountstats", "nfs", "lustre", "disks")
PACK = "pack samples into larger files (WebDataset, tar, Parquet)"
UNITS = {"read_bytes": "read", "written_bytes": "write", "reads": "read", "writes": "write"}


def mbs(count: float, seconds: float) -> float:
    """Megabytes (10^6) a second."""
    return round(count / seconds / MB, 1) if seconds else 0.0


def findings(node: str, facts: Facts) -> list[Finding]:
    """All findings on one node; empty if nothing is conspicuous."""
    reason = (facts.get("unread") or {}).get("*")
    if reason:
        return [unknown("path", node, f"its storage is unknown: {reason}")]
    return [finding for rule in RULES for finding in rule(node, facts)]


# ---- the path --------------------------------------------------------------------------------------------------------


def path(node: str, facts: Facts) -> Iterator[Finding]:
    """The path answers, and a trial could read it."""
    unread = facts["unread"]
    if "path" in unread and (unread["path"].startswith(NO_ANSWER) or unread["path"] in LOST):
        hint = "look at its server and the network to it"
        yield fail("path", node, f"{facts['path']}: {unread['path']}", hint)
    elif "path" in unread:
        yield unknown("path", node, f"{facts['path']}: {unread['path']}", "check the path")
    if unread.get("trial", "").startswith("not tried"):
        yield unknown("path", node, f"{facts['path']}: reading was {unread['trial']}", "look at the server first")
    elif "trial" in unread:
        late = "longer than" in unread["trial"]
        hint = "look at its server: a read hangs" if late else "name a folder or file that the login user may read"
        report = fail if late else unknown
        yield report("path", node, f"{facts['path']} cannot be read: {unread['trial']}", hint)
    trial = facts["trial"]
    if trial and not trial["phases"] and not trial["small"]:
        listed = f"its first {trial['entries']} entries (those changed in the last 10 minutes are not read)"
        message = f"{facts['path']} has no file to read among {listed}"
        yield unknown("path", node, message, "name a folder with data")
    if trial and trial["is_direct"] is False:
        message = "its file system refuses O_DIRECT: the page cache may have answered, so the numbers may be too good"
        yield warn("path", node, message, "name files that were not read lately")


def counters(node: str, facts: Facts) -> Iterator[Finding]:
    """The counters that show the load of the mount were read; without a path, those of all mounts."""
    unread, mount = facts["unread"], facts["mount"]
    blind = {source: unread[source] for source in SOURCES if source in unread} if mount is None else _blind(facts)
    for source, reason in blind.items():
        message = f"{source}: {reason}: its load is unknown"
        yield unknown("counters", node, message, "log in as root, or measure on the node instead of in a pod")


def _blind(facts: Facts) -> dict[str, str]:
    """Source that the type of the mount needs and that was not read -> reason."""
    unread, mount, load = facts["unread"], facts["mount"], facts["lustre"]
    kind = mount["type"]
    if kind in ("nfs", "nfs4"):
        reason = unread.get("/proc/self/mountstats", "no counters of this mount")
        return {} if mount["mount_point"] in facts["nfs"] else {"/proc/self/mountstats": reason}
    if kind == "lustre":
        blind = {} if load["clients"] else {"llite stats": "not readable, or missing"}
        blind |= {} if load["osts"] else {"osc stats": "not readable, or missing"}
        reason = unread.get("lfs getstripe", "no answer")
        return blind | ({} if load["stripes"] is not None else {"lfs getstripe": reason})
    if kind in NETWORK_TYPES:
        return {kind: "no counters of this type of file system are known"}
    reason = unread.get("/proc/diskstats", f"no disk below {mount['source']} ({kind}) is known")
    return {} if facts["disks"] else {"disks": reason}


# ---- limits ----------------------------------------------------------------------------------------------------------


def limits(node: str, facts: Facts) -> Iterator[Finding]:
    """No control group is at its limit of bytes or requests a second, in the window or in the trial."""
    rows: dict[tuple[str, str, str], tuple[float, int]] = {}
    trial = facts["trial"] or {}
    parts = [*trial.get("phases", ()), *([trial["small"]] if trial.get("small") else [])]
    timed = [(facts["limits"], facts["window_s"])]
    timed += [(part["limits"], part["counted_s"]) for part in parts if part["counted_s"] >= SHORTEST_S]
    for listed, seconds in timed:
        for row in listed:
            for name, most in row["limits"].items():
                used = row["used"].get(name)
                if used is not None and seconds:
                    key = row["group"], row["device"], name
                    rows[key] = max(rows.get(key, (0.0, most)), (used / seconds, most))
    for (group, device, name), (rate, most) in rows.items():
        if most and rate >= AT_LIMIT * most:
            is_bytes = name.endswith("bytes")
            shown = f"{rate / MB:.1f} of {most / MB:.1f} MB/s" if is_bytes else f"{rate:.0f} of {most} {name} a second"
            measure = "throughput" if is_bytes else "IOPS"
            message = f"{measure} of disk {device} is at the limit of the control group {group}: {shown}"
            hint = "raise the limit (io.max, blkio.throttle, or the pod's class), or move the data to a faster volume"
            numbers = {f"{UNITS[name]}_rate": round(rate, 1), f"{UNITS[name]}_limit": most}
            yield Finding("io-limit", node, Verdict.FAIL, message, numbers, hint, CGROUP)


# ---- network file systems --------------------------------------------------------------------------------------------


def nfs(node: str, facts: Facts) -> Iterator[Finding]:
    """NFS: requests are answered fast, are not sent again, and do not wait on the client."""
    for mount, rise in facts["nfs"].items():
        rows = [(rise, facts["window_s"])]
        if facts["trial"] and mount in facts["trial"]["nfs"]:
            rows.append((facts["trial"]["nfs"][mount], facts["trial"]["seconds"]))
        total = {name: sum(row.get(name, 0) for row, _ in rows) for name in {n for row, _ in rows for n in row}}
        yield from _resent(node, mount, total)
        yield from _reconnected(node, mount, rise)
        # The trial's reads wait for each other: its times are not those of the server.
        yield from _late(node, mount, rise, rise["connections"])
        yield from _metadata(node, mount, rise, facts["window_s"])
        if facts["mount"] and ".efs." in facts["mount"]["source"]:
            yield from _efs(node, mount, rows)


def _resent(node: str, mount: str, rise: Facts) -> Iterator[Finding]:
    ops = sum(rise.get(f"{kind}.ops", 0) for kind in ("reads", "writes", "metadata"))
    sent = sum(rise.get(f"{kind}.transmissions", 0) for kind in ("reads", "writes", "metadata"))
    timeouts = sum(rise.get(f"{kind}.timeouts", 0) for kind in ("reads", "writes", "metadata"))
    if timeouts:
        hint = "look at the server, and at the network to it: packet loss, security groups, MTU"
        message = f"{mount}: {plural(timeouts, 'major timeout')}: the server did not answer"
        yield Finding("nfs", node, Verdict.FAIL, message, {"timeouts": timeouts}, hint, MOUNTSTATS)
    elif ops >= FEW_OPS and sent - ops > RESENT_SHARE * ops:
        message = f"{mount}: {sent - ops} of {ops} requests were sent again: packets are lost or dropped"
        hint = "look at errors of the interface and its switch: gpuctl audit; at MTU and security groups"
        yield Finding("nfs", node, Verdict.FAIL, message, {"sent_again": sent - ops, "requests": ops}, hint, MOUNTSTATS)


def _reconnected(node: str, mount: str, rise: Facts) -> Iterator[Finding]:
    """New connections in the window; the trial's do not count, as an idle client of NFS 3 connects when it is used."""
    if rise.get("connects"):
        message = f"{mount}: {plural(rise['connects'], 'new connection')} to the server within the window"
        hint = "normal after minutes without use; else look at the server and the network to it"
        yield warn("nfs", node, message, hint, connects=rise["connects"])


def _late(node: str, mount: str, rise: Facts, connections: int) -> Iterator[Finding]:
    for kind, verb in (("reads", "read"), ("writes", "write")):
        ops = rise.get(f"{kind}.ops", 0)
        if ops < FEW_OPS:
            continue
        queue, rtt, whole = (rise.get(f"{kind}.{name}_ms", 0) / ops for name in ("queue", "rtt", "execute"))
        numbers = {"queue_ms": round(queue, 1), "rtt_ms": round(rtt, 1), "execute_ms": round(whole, 1), "requests": ops}
        if queue >= QUEUE_MS and queue > rtt:
            lines = plural(connections, "connection")
            message = f"{mount}: a {verb} waits {queue:.1f} ms on the client ({lines}), and {rtt:.1f} ms for the server"
            hint = "mount it with nconnect=16 (not on EFS), read with fewer processes, or spread over nodes"
            yield Finding("nfs", node, Verdict.FAIL, message, numbers, hint, MOUNTSTATS)
        elif rtt >= SLOW_MS:
            verdict = Verdict.FAIL if rtt >= VERY_SLOW_MS else Verdict.WARN
            message = f"{mount}: the server takes {rtt:.1f} ms for a {verb}, {whole:.1f} ms in all"
            hint = "compare with other nodes; look at the server's load, its throughput limit and burst credits"
            yield Finding("nfs", node, verdict, message, numbers, hint, MOUNTSTATS)


def _metadata(node: str, mount: str, rise: Facts, window_s: float) -> Iterator[Finding]:
    few, ops = (sum(rise.get(f"{kind}.ops", 0) for kind in kinds) for kinds in (("reads", "writes"), ("metadata",)))
    if window_s and ops / window_s >= MANY_READS and ops > 4 * few:
        message = (
            f"{mount}: {ops / window_s:.0f} requests a second for names and attributes, {few / window_s:.0f} for data"
        )
        hint = f"{PACK}; mount with a longer actimeo; copy code and packages to a local disk"
        yield Finding("nfs", node, Verdict.FAIL, message, {"metadata_rate": round(ops / window_s)}, hint, MOUNTSTATS)


def _efs(node: str, mount: str, rows: Sequence[tuple[Facts, float]]) -> Iterator[Finding]:
    rates = [(row.get("reads.received_bytes", 0) + row.get("writes.sent_bytes", 0)) / s for row, s in rows if s]
    most = max(rates, default=0.0) / MIB
    if AT_LIMIT * EFS_MIB_S <= most <= EFS_MIB_S * 1.1:
        message = f"{mount}: {most:.0f} MiB/s, the throughput limit of one client of EFS is {EFS_MIB_S}"
        hint = "mount it with amazon-efs-utils 2.0 or later (1,500 MiB/s), or use FSx for Lustre"
        yield Finding(
            "io-limit", node, Verdict.FAIL, message, {"mib_s": round(most), "limit_mib_s": EFS_MIB_S}, hint, EFS
        )


def lustre(node: str, facts: Facts) -> Iterator[Finding]:
    """Lustre: no OST is full or answers much later than the others, and stripes fit the files."""
    load = facts["lustre"]
    waits = {name: wait for name, events in load["osts"].items() if (wait := _wait_ms(events)) is not None}
    for name, wait in waits.items():
        usual = median([other for target, other in waits.items() if target != name] or [wait])
        if wait >= SLOW_TARGET_MS and wait > SLOW_TARGET * usual:
            message = f"{name} answers in {wait:.1f} ms, the other {len(waits) - 1} OSTs in {usual:.1f} ms"
            hint = "look at its server; files on it: lfs find --ost; stripe large files wider"
            yield Finding("lustre", node, Verdict.FAIL, message, {"wait_ms": wait, "usual_ms": usual}, hint, LUSTRE)
    for target in load["targets"]:
        if target["used_percent"] is not None and target["used_percent"] >= FULL_PERCENT:
            what = "inodes" if target["inodes"] else "space"
            message = (
                f"{target['target']}: {target['used_percent']} % of its {what} is used; writers to it hang or fail"
            )
            yield fail("lustre", node, message, "move files off it: lfs find --ost, lfs_migrate; stripe wider")
    osts = {target["target"] for target in load["targets"] if "OST" in target["target"]}
    if load["stripes"] in (0, 1) and len(osts) > 1:
        message = f"{facts['path']} has 1 stripe on {len(osts)} OSTs: a large file has the throughput of one"
        hint = "for files above 1 GiB: lfs setstripe -c 4 or -c -1 on the folder, before they are written"
        yield warn("stripes", node, message, hint)


def _wait_ms(events: Facts) -> float | None:
    wait = events.get("req_waittime") or {}
    count = wait.get("count", 0)
    return round(wait.get("sum", 0) / count / 1000, 2) if count >= FEW_OPS else None


# ---- disks, network, cache -------------------------------------------------------------------------------------------


def disks(node: str, facts: Facts) -> Iterator[Finding]:
    """No disk is busy all the time with a queue and late answers."""
    window_s = facts["window_s"]
    for name, rise in facts["disks"].items():
        ops = rise.get("reads", 0) + rise.get("writes", 0)
        if not window_s or ops < FEW_OPS:
            continue
        wait_ms = (rise.get("read_ms", 0) + rise.get("write_ms", 0)) / ops
        busy, queue = rise.get("busy_ms", 0) / window_s / 1000, rise.get("queue_ms", 0) / window_s / 1000
        if busy >= BUSY_SHARE and queue >= DEEP_QUEUE and wait_ms >= DISK_MS:
            rate = mbs(rise.get("read_bytes", 0) + rise.get("written_bytes", 0), window_s)
            message = (
                f"disk {name} is exhausted: busy {busy:.0%} of the time at {ops / window_s:.0f} requests a second and "
                f"{rate} MB/s, {queue:.0f} waiting, {wait_ms:.0f} ms each"
            )
            hint = "compare with the IOPS and throughput of the volume; use a faster one or local NVMe"
            yield fail("disk", node, message, hint, iops=round(ops / window_s), mb_s=rate, wait_ms=round(wait_ms, 1))


def network(node: str, facts: Facts) -> Iterator[Finding]:
    """The network to a network file system has room, and loses nothing.

    FAIL only for the one interface of a node: which of several leads to the server is unknown.
    """
    mount, window_s = facts["mount"], facts["window_s"]
    is_used = mount["type"] in NETWORK_TYPES if mount else facts["nfs"] or facts["lustre"]["clients"]
    if not is_used:
        return
    report = fail if mount and len(facts["network"]) == 1 else warn
    for name, load in facts["network"].items():
        rise, speed = load["rise"], load["speed_mbps"]
        most = max(rise.get("rx_bytes", 0), rise.get("tx_bytes", 0))
        if speed and window_s and most * 8 / window_s / MB >= AT_LIMIT * speed:
            message = f"{name} is full: {most * 8 / window_s / MB:.0f} of {speed} Mbit/s"
            yield report("storage-network", node, message, "read with fewer nodes, or mount over a faster interface")
        for counter in SHARED_ALLOWANCES:
            if count := rise.get(counter, 0):
                message = f"{name}: {counter} rises by {count}: AWS drops or delays packets of this instance"
                hint = "if it rises all the time, use a larger instance type, or spread the load over nodes"
                yield Finding("storage-network", node, Verdict.WARN, message, {"packets": count}, hint, ALLOWANCE)
    tcp = facts["tcp"] or {}
    sent, again = tcp.get("sent", 0), tcp.get("retransmitted", 0)
    if again >= FEW_OPS and again > TCP_SHARE * sent:
        message = f"{again} of {sent} TCP segments were sent again"
        yield warn("storage-network", node, message, "look at errors of its interfaces: gpuctl audit")


def cache(node: str, facts: Facts) -> Iterator[Finding]:
    """The page cache holds the data that is read again."""
    window_s, refaulted = facts["window_s"], facts["refaulted_bytes"]
    read_bytes = _load_bytes(facts)
    if window_s and refaulted and refaulted / window_s >= REFAULT_MBS * MB and refaulted >= REFAULT_SHARE * read_bytes:
        message = (
            f"{mbs(refaulted, window_s)} MB/s of file pages were evicted and read again: the page cache is too small"
        )
        hint = "give the job more memory, use fewer loader workers, or copy the data to a local disk"
        yield warn("page-cache", node, message, hint)


def _load_bytes(facts: Facts) -> int:
    """Bytes read in the window from disks and by NFS and Lustre."""
    disks = sum(rise.get("read_bytes", 0) for rise in facts["disks"].values())
    nfs = sum(rise.get("reads.received_bytes", 0) for rise in facts["nfs"].values())
    clients = facts["lustre"]["clients"].values()
    return int(disks + nfs + sum(events.get("read_bytes", {}).get("sum", 0) for events in clients))


def pressure(node: str, facts: Facts) -> Iterator[Finding]:
    """Tasks wait little for I/O."""
    if (facts["pressure"] or 0) > WAITS_PERCENT:
        yield warn("io-pressure", node, f"tasks waited for I/O {facts['pressure']:.0f} % of the last 10 s")


# ---- kinds of reads --------------------------------------------------------------------------------------------------


def small_reads(node: str, facts: Facts) -> Iterator[Finding]:
    """The job's reads are large, or far from the random reads that the storage can serve."""
    rows = {f"disk {name}": (rise.get("reads", 0), rise.get("read_bytes", 0)) for name, rise in facts["disks"].items()}
    rows |= {
        mount: (rise.get("reads.ops", 0), rise.get("reads.received_bytes", 0)) for mount, rise in facts["nfs"].items()
    }
    for name, events in facts["lustre"]["clients"].items():
        rows[name] = (events.get("read_bytes", {}).get("count", 0), events.get("read_bytes", {}).get("sum", 0))
    random = rate(facts, "random, streams", "reads")
    for name, (ops, size) in rows.items():
        per_s = ops / facts["window_s"] if facts["window_s"] else 0.0
        if per_s < MANY_READS or size / ops > SMALL_READ:
            continue
        message = (
            f"{name}: {per_s:.0f} reads a second of {size / ops / 1024:.0f} KiB, {mbs(size, facts['window_s'])} MB/s"
        )
        hint = f"{PACK} and read them in order, or copy the data to local NVMe"
        is_exhausted = random is not None and per_s >= random / 2
        if random is not None:
            message += f"; a trial beside it got {random:.0f} random reads a second"
        yield (fail if is_exhausted else warn)("small-reads", node, message, hint, reads_per_s=round(per_s))


def small_files(node: str, facts: Facts) -> Iterator[Finding]:
    """Opening and reading a small file is fast."""
    small = (facts["trial"] or {}).get("small")
    if small and small["files"] >= FEW_OPS and (per_file := small["seconds"] * 1000 / small["files"]) >= OPEN_MS:
        speed = f"{1000 / per_file:.0f} files a second and process"
        message = f"opening and reading a small file takes {per_file:.1f} ms: {speed}"
        hint = f"{PACK}, or use more loader workers"
        yield warn("small-files", node, message, hint, ms=round(per_file, 1), files=small["files"])


def rate(facts: Facts, phase: str, unit: str) -> float | None:
    """Reads or bytes a second of a phase of the trial; None if it read too little."""
    for row in (facts.get("trial") or {}).get("phases") or ():
        if row["name"] == phase and row["seconds"] and (row["reads"] >= FEW_OPS or row["seconds"] >= 1.0):
            return float(row[unit] / row["seconds"]) if row["reads"] else None
    return None


RULES: Sequence[Rule] = (
    path,
    counters,
    limits,
    nfs,
    lustre,
    disks,
    network,
    cache,
    pressure,
    small_reads,
    small_files,
)
