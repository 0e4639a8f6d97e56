"""Rules on network file systems: servers that do not answer, full targets, stripes, options of mounts, read sizes."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from gpuctl.core.text import named
from gpuctl.domain.findings import Finding, Verdict, fail, or_ok, warn
from gpuctl.domain.node_facts import Facts, Fleet, equal, get, unread

CHECK = "storage"
FULL_PERCENT, NEARLY_PERCENT, SPREAD_PERCENT = 95, 85, 30
FSX = "AWS re:Post, FSx for Lustre performance"
STRIPING = "Lustre wiki, Configuring Lustre File Striping"
RPC_STREAM = "Lustre Operations Manual, Monitoring the Client RPC Stream"
# States of a client's connection to a target in which requests are served or the client idles on purpose.
SERVING = frozenset({"FULL", "IDLE"})
SOFT = frozenset({"soft", "softerr"})
SMALL_PAGES, MANY_RPCS, SMALL_SHARE = 4, 10_000, 0.5


def storage(fleet: Fleet) -> list[Finding]:
    """Network file systems answer, no target is full, and nodes mount the same ones."""
    findings = [finding for node, facts in fleet.items() for finding in _node(node, facts)]
    mounted = {node: _mounted(facts) for node, facts in fleet.items()}
    findings += equal(
        CHECK, "network file systems on {}", mounted, "mount what is missing: findmnt --verify", Verdict.WARN
    )
    return or_ok(CHECK, "", findings, _fine(fleet))


def _fine(fleet: Fleet) -> str:
    """What of the file systems was looked at, and is well."""
    live = any("imports" in facts[CHECK] for facts in fleet.values())  # a list of mounts does not show who answers
    parts = {
        "targets": f"every OST and MDT is served and below {NEARLY_PERCENT} %",
        "mounts": "every network file system answers" if live else "no network file system has harmful options",
        "stripes": "stripes are set",
    }
    known = [text for name, text in parts.items() if any(get(facts, CHECK, name) for facts in fleet.values())]
    return "; ".join(known) or "no network file system is mounted"


def _mounted(facts: Facts) -> str | None:
    mounts = get(facts, CHECK, "mounts")
    return None if mounts is None else ", ".join(sorted({mount["path"] for mount in mounts})) or "no path"


def _node(node: str, facts: Facts) -> Iterator[Finding]:
    for name, reason in facts.get(CHECK, {}).get("unread", {}).items():
        yield unread(CHECK, node, f"{'its network file systems are' if name == '*' else name + ' is'}", reason)
    yield from _mounts(node, get(facts, CHECK, "mounts") or ())
    yield from _targets(node, get(facts, CHECK, "targets") or ())
    yield from _stripes(node, get(facts, CHECK, "stripes") or ())
    yield from _imports(node, get(facts, CHECK, "imports") or ())
    yield from _reads(node, get(facts, CHECK, "reads") or ())


def _mounts(node: str, mounts: Sequence[Mapping[str, Any]]) -> Iterator[Finding]:
    for mount in mounts:
        options = set(mount["options"])
        if mount["error"]:
            hint = "look at its server and the network to it; processes that wait for it end only after it answers"
            message = f"{mount['path']} ({mount['type']} from {mount['source']}) does not answer: {mount['error']}"
            yield fail(CHECK, node, message, hint)
        if mount["type"].startswith("nfs") and not options & {"hard", *SOFT}:  # the kernel lists one of them
            yield unread(CHECK, node, f"{mount['path']}: its options are", "neither hard nor soft is among them")
        if mount["type"].startswith("nfs") and (soft := sorted(options & SOFT)):
            message = (
                f"{mount['path']} is mounted with {soft[0]}: a write that is late is lost, and the file is damaged"
            )
            yield warn(CHECK, node, message, "mount it with hard")
        if mount["type"].startswith("nfs") and ".efs." in mount["source"] and "noresvport" not in options:
            message = f"{mount['path']} (EFS) lacks noresvport: it may hang after the network was interrupted"
            yield warn(CHECK, node, message, "mount it with amazon-efs-utils, or add noresvport")


def _targets(node: str, targets: Sequence[Mapping[str, Any]]) -> Iterator[Finding]:
    by_system: dict[tuple[str, bool], list[Mapping[str, Any]]] = defaultdict(list)
    for target in targets:
        if target["error"]:
            hint = "look at its server: lfs check servers; writers to it hang until it answers"
            yield fail(CHECK, node, f"{target['target']} is not served: {target['error']}", hint)
        elif target["used_percent"] is not None:
            by_system[target["target"].rpartition("-")[0], target["inodes"]].append(target)
    for (_, inodes), group in by_system.items():
        what = "inodes" if inodes else "space"
        full = [target for target in group if target["used_percent"] >= NEARLY_PERCENT]
        for target in full:
            used = target["used_percent"]
            verdict = Verdict.FAIL if used >= FULL_PERCENT else Verdict.WARN
            message = (
                f"{target['target']}: {used} % of its {what} is used; writers to it fail although others have room"
            )
            hint = "move files off it: lfs find --ost, lfs_migrate; stripe large files wider"
            yield Finding(CHECK, node, verdict, message, {"used_percent": used}, hint, FSX)
        used = [target["used_percent"] for target in group if "OST" in target["target"]]
        if used and not full and max(used) - min(used) >= SPREAD_PERCENT:
            message = f"its OSTs are used unevenly: {min(used)} to {max(used)} % of their {what}"
            yield Finding(
                CHECK, node, Verdict.WARN, message, {}, "stripe large files wider, or rebalance: lfs_migrate", FSX
            )


def _stripes(node: str, stripes: Sequence[Mapping[str, Any]]) -> Iterator[Finding]:
    single = [stripe["path"] for stripe in stripes if stripe["counts"] and stripe["counts"][-1] in (0, 1)]
    if single:
        message = (
            f"one stripe: {named(single, 4)}; fine below 1 GiB, a bottleneck for larger files that many nodes read"
        )
        yield Finding(CHECK, node, Verdict.OK, message, {}, "", STRIPING)


def _imports(node: str, imports: Sequence[Mapping[str, Any]]) -> Iterator[Finding]:
    lost = [one for one in imports if one["state"] not in SERVING]
    if lost:
        shown = named((f"{one['target']} ({one['state']})" for one in lost), 4)
        hint = "look at its server and the network to it: lfs check servers, lctl ping"
        yield fail(CHECK, node, f"not connected to {shown}", hint, targets=len(lost))
    evicted = [one["target"] for one in imports if one["evicted"]]
    if evicted:
        hint = "jobs of that time lost data; look for a node that hangs, and for network errors"
        yield warn(CHECK, node, f"evicted since it was mounted by {named(evicted, 4)}", hint, targets=len(evicted))


def _reads(node: str, reads: Sequence[Mapping[str, Any]]) -> Iterator[Finding]:
    for one in reads:
        sizes = {int(pages): count for pages, count in one["rpcs_by_pages"].items()}
        total, small = sum(sizes.values()), sum(count for pages, count in sizes.items() if pages <= SMALL_PAGES)
        if total >= MANY_RPCS and small > SMALL_SHARE * total:
            share = round(100 * small / total)
            message = f"{one['filesystem']}: {share} % of {total} reads are of {4 * SMALL_PAGES} KiB or less"
            hint = "pack samples into larger files (WebDataset, tar, Parquet), or read them in order"
            yield Finding(CHECK, node, Verdict.WARN, message, {"small_percent": share}, hint, RPC_STREAM)
