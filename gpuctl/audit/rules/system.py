"""Rules on the machine around the GPUs: disks, memory, clock, processes, services."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from gpuctl.core.text import named, plural
from gpuctl.domain.findings import Finding, Verdict, fail, or_ok, warn
from gpuctl.domain.node_facts import Facts, Fleet, equal, get, unread, why

LITTLE_PERCENT, NOTHING_PERCENT = 5.0, 1.0
ZOMBIES = 100
# A GPU node without one of these takes no jobs, or runs them without NVLink.
ESSENTIAL = ("fabricmanager", "imex", "kubelet", "containerd", "slurmd", "munge", "openibd")


def disks(fleet: Fleet) -> list[Finding]:
    """No local file system is nearly full, or can only be read."""
    findings = [finding for node, facts in fleet.items() for finding in _disks(node, facts)]
    return or_ok("disks", "", findings, f"more than {LITTLE_PERCENT:.0f} % free on every local file system")


def _disks(node: str, facts: Facts) -> Iterator[Finding]:
    found = get(facts, "system", "disks")
    if found is None:
        yield unread("disks", node, "its file systems are", why(facts, "system", "disks"))
    for disk in found or ():
        for name, what in (("free_percent", "space"), ("free_inodes_percent", "inodes")):
            free = disk[name]
            if free is not None and free < LITTLE_PERCENT and not disk["read_only"]:
                verdict = Verdict.FAIL if free < NOTHING_PERCENT else Verdict.WARN
                message = f"{disk['path']}: {free:g} % of its {what} is free"
                yield Finding("disks", node, verdict, message, {name: free}, "remove old logs, images or checkpoints")
        if disk["read_only"] and disk["type"] in ("ext4", "xfs", "btrfs"):
            hint = "fine for images made so; else read dmesg for why the kernel did it, and check the disk"
            yield warn("disks", node, f"{disk['path']} can only be read", hint)


def memory(fleet: Fleet) -> list[Finding]:
    """The host's memory is free enough, without uncorrectable errors, and as large as on the other nodes."""
    findings = [finding for node, facts in fleet.items() for finding in _memory(node, facts)]
    sizes = {node: _gib(get(facts, "system", "memory")) for node, facts in fleet.items()}
    hint = "a memory module may have failed: dmidecode -t memory"
    findings += equal("memory", "{} GiB of memory", sizes, hint, Verdict.WARN)
    return or_ok("memory", "", findings, "no memory errors, and enough of it is free")


def _gib(sizes: Any) -> int | None:
    """Whole GiB, rounded to 2 %: the kernel's own share differs a little between nodes."""
    if sizes is None:
        return None
    gib: float = sizes["total_mib"] / 1024
    step = max(1, round(gib / 50))
    return round(gib / step) * step


def _memory(node: str, facts: Facts) -> Iterator[Finding]:
    sizes, edac = get(facts, "system", "memory"), get(facts, "system", "edac")
    for name, value in (("memory", sizes), ("edac", edac)):
        if value is None:
            what = "its memory is" if name == "memory" else "errors of its memory are"
            yield unread("memory", node, what, why(facts, "system", name))
    if sizes is not None:
        percent = round(100 * sizes["available_mib"] / sizes["total_mib"], 1)
        if percent < LITTLE_PERCENT:
            verdict = Verdict.FAIL if percent < NOTHING_PERCENT else Verdict.WARN
            message = f"{percent:g} % of its memory is available"
            numbers = {"available_percent": percent, "available_mib": sizes["available_mib"]}
            yield Finding("memory", node, verdict, message, numbers, "see which process holds it: ps aux --sort=-rss")
        if sizes["corrupted_mib"]:
            message = f"the kernel took {sizes['corrupted_mib']} MiB of damaged memory out of use"
            yield fail("memory", node, message, "have the module replaced", corrupted_mib=sizes["corrupted_mib"])
    if edac is not None and edac["uncorrected"]:
        message = f"{plural(edac['uncorrected'], 'uncorrectable error')} of its memory since boot"
        yield fail("memory", node, message, "drain it; have the module replaced", uncorrected=edac["uncorrected"])
    elif edac is not None and edac["corrected"]:
        message = f"{plural(edac['corrected'], 'corrected error')} of its memory since boot"
        yield warn("memory", node, message, "watch whether they rise: edac-util -v", corrected=edac["corrected"])


def clock(fleet: Fleet) -> list[Finding]:
    """The clock is kept: logs of several nodes can be compared, and certificates and tokens are valid."""
    findings = []
    for node, facts in fleet.items():
        state = get(facts, "system", "clock")
        if state is None:
            findings.append(unread("clock", node, "whether its clock is kept is", why(facts, "system", "clock")))
        elif not state["synchronised"]:
            findings.append(warn("clock", node, "nothing synchronises its clock", "chronyc tracking, or timedatectl"))
    return or_ok("clock", "", findings, "every node's clock is synchronised")


def processes(fleet: Fleet) -> list[Finding]:
    """No process waits for I/O that does not end, and ended ones are collected."""
    findings = [finding for node, facts in fleet.items() for finding in _processes(node, facts)]
    return or_ok("processes", "", findings, "no process is stuck")


def _processes(node: str, facts: Facts) -> Iterator[Finding]:
    stuck, zombies = get(facts, "system", "stuck"), get(facts, "system", "zombies")
    for name, value in (("stuck", stuck), ("zombies", zombies)):
        if value is None:
            yield unread("processes", node, f"its {name} processes are", why(facts, "system", name))
    if stuck is not None and stuck["count"]:
        shown = named(f"{each['name']} ({each['pid']})" for each in stuck["processes"])
        message = f"{stuck['count']} in uninterruptible sleep (state D): {shown}"
        hint = "signals do not end it: see what it waits for in /proc/PID/stack; only a reset or reboot may help"
        yield warn("processes", node, message, hint, stuck=stuck["count"])
    if zombies is not None and zombies >= ZOMBIES:
        message, hint = f"{zombies} zombie processes", "end or restart their parent: ps -eo stat,ppid,comm | grep ^Z"
        yield warn("processes", node, message, hint, zombies=zombies)


def services(fleet: Fleet) -> list[Finding]:
    """No service that GPU jobs depend on has failed, and the kubelet is healthy where one runs."""
    findings = [finding for node, facts in fleet.items() for finding in _services(node, facts)]
    return or_ok("services", "", findings, "no service that GPU jobs depend on has failed")


def _services(node: str, facts: Facts) -> Iterator[Finding]:
    failed, kubelet = get(facts, "system", "failed_units"), get(facts, "system", "kubelet")
    if failed is None:
        yield unread("services", node, "its failed services are", why(facts, "system", "failed_units"))
    for unit in failed or ():
        hint = f"check journalctl -u {unit} -b"
        judge = fail if any(name in unit for name in ESSENTIAL) else warn
        yield judge("services", node, f"{unit} has failed", hint)
    if kubelet is None:
        yield unread("services", node, "the state of its kubelet is", why(facts, "system", "kubelet"))
        return
    if kubelet["healthy"] is False:
        yield fail("services", node, "its kubelet reports that it is not healthy", "check journalctl -u kubelet -b")
    if kubelet["gpu_plugin"] is False and get(facts, "gpu", "gpus"):
        hint = "check kubectl get pods -A -o wide | grep nvidia-device-plugin; restart the one of this node"
        yield warn("services", node, "no device plugin of NVIDIA is registered with its kubelet", hint)
