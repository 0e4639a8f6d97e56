"""Faults that kernel messages show, beside those of GPUs and NVSwitches: adapters, memory, disks, the kernel itself."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

from gpuctl.core.text import plural
from gpuctl.domain.findings import Finding, Verdict

NVSENTINEL = "NVIDIA NVSentinel, health monitors"
KERNEL = "Linux kernel documentation"
SHOWN = 160  # characters of a line in a message
DIAGNOSE = "run the vendor's hardware diagnosis; have the part replaced"


@dataclass(frozen=True)
class Fault:
    """A kind of message. `check`: its family; a message that matches several belongs to the first of `FAULTS`.

    `covered_by`: messages of others that report the same fault, beside which this kind is none.
    """

    check: str
    name: str
    pattern: str
    verdict: Verdict
    meaning: str
    hint: str
    source: str = KERNEL
    covered_by: str = ""


# ENA and mlx5 print the same words as EFA: only lines with EFA's own names count as its.
_EFA = r"(?:\befa [0-9a-f:.]+|\befa_\d+|\brdmap\w+)\b.*"
FAULTS = (
    Fault(
        "efa", "efa-dead",
        _EFA + r"(?:\(polling\) timeout|polling timeout|didn't send any completion for admin cmd|Admin queue is closed"
        r"|Reset indication didn't turn|Device isn't ready)",
        Verdict.FAIL, "an EFA adapter does not answer its driver", "drain the node, then stop and start the instance",
        NVSENTINEL,
    ),
    Fault(
        "network", "link-down", r"mlx[45]_\w+.*\b(?:Link down|link down)|\bib\d+: (?:lost carrier|link (?:is )?down)",
        Verdict.WARN, "an adapter's link went down", "look at cable, transceiver and switch port",
    ),
    Fault(
        "network", "adapter-fault", r"mlx[45]_core.*(?:health (?:compromised|poll failed)|fatal error|device's health)",
        Verdict.FAIL, "an adapter's firmware reports a fault", "drain the node and reboot it; update the firmware",
    ),
    Fault(
        "crash", "nccl-segfault", r"segfault at .* in lib(?:nccl|fabric|efa|mlx5|cuda)[\w.-]*\.so",
        Verdict.WARN, "a program crashed inside NCCL, CUDA or an RDMA library",
        "compare the versions of NCCL, its plugin and the driver with other nodes",
        "Lepton gpud, NCCL component",
    ),
    Fault(
        "memory", "uncorrected", r"EDAC \S+: \d+ UE\b|Hardware Error\]?:.*(?:[Uu]ncorrected|fatal)|Memory failure: 0x",
        Verdict.FAIL, "the host's memory has an uncorrectable error", DIAGNOSE,
    ),
    Fault(
        "memory", "corrected", r"EDAC \S+: \d+ CE\b|Hardware Error\]?:.*[Cc]orrected",
        Verdict.WARN, "the host's memory was corrected", "watch whether it returns on the same module",
    ),
    Fault(
        "machine-check", "machine-check", r"mce: .*(?:Machine check events|Hardware Error)|Machine check exception",
        Verdict.WARN, "the processor reports a machine check", "decode it with rasdaemon or mcelog",
    ),
    Fault(
        "pcie", "pcie-fatal", r"(?:PCIe Bus Error|AER:).*(?:severity=Uncorrect\w*|Uncorrected|\bFatal\b|[Nn]on-?Fatal)",
        Verdict.FAIL, "a PCIe link has uncorrected errors", "reseat the card or riser; " + DIAGNOSE,
    ),
    Fault(
        "pcie", "pcie-corrected", r"(?:PCIe Bus Error|AER:).*[Cc]orrected",
        Verdict.WARN, "a PCIe link has corrected errors", "reseat the card or riser if they return",
    ),
    Fault(
        "kernel", "lockup", r"soft lockup|hard LOCKUP|rcu: .*(?:stall|detected)|kernel BUG|Kernel panic"
        r"|BUG: (?:unable to handle|KASAN|Bad|scheduling while|workqueue)|Unable to handle kernel|Oops: "
        r"|Internal error: |general protection fault(?:, probably|: [0-9a-f]{4} \[#)",
        Verdict.FAIL, "the kernel hung or crashed", "drain the node and reboot it; keep the log for support",
    ),
    Fault(
        "kernel", "gpu-driver", r"NVRM:.*(?:RmInitAdapter failed|rm_init_adapter failed|probe routine failed"
        r"|failed to (?:initialize|load).*\b(?:GSP|adapter)\b)|nvidia [0-9a-f:.]+: probe .*failed",
        Verdict.FAIL, "the driver could not start a GPU",
        "drain the node and reboot it; if it returns, contact NVIDIA support with the output of nvidia-bug-report.sh",
        "NVIDIA, driver",
    ),
    Fault(
        "kernel", "gsp-timeout", r"NVRM:.*\bGSP (?:RPC )?[Tt]imeout",
        Verdict.FAIL, "the firmware of a GPU did not answer", "drain the node and reset the GPU, or reboot",
        "NVIDIA, driver", covered_by=r"NVRM: Xid \(.*\): (?:119|120)\b",
    ),
    Fault(
        "kernel", "hung-task", r"task .{1,40} blocked for more than \d+ seconds",
        Verdict.WARN, "a process did not run for minutes", "see what it waits for: cat /proc/PID/stack",
    ),
    Fault(
        "out-of-memory", "oom-kill", r"Out of memory: Killed process|Memory cgroup out of memory|oom-kill:",
        Verdict.WARN, "the kernel killed a process for want of memory", "raise the job's memory limit, or use less",
    ),
    Fault(
        "disk", "read-only", r"Remounting filesystem read-only|XFS .*(?:shut ?down|[Cc]orruption)",
        Verdict.FAIL, "a file system was taken out of use", "drain the node; check the disk, then the file system",
    ),
    Fault(
        "disk", "nvme", r"nvme\S*: .*(?:controller is down|I/O \d+.*timeout|Device not ready)",
        Verdict.FAIL, "an NVMe disk does not answer", "drain the node and have the disk replaced",
    ),
    Fault(
        "disk", "io-error", r"I/O error, dev|EXT4-fs error|XFS .*[Ee]rror|Buffer I/O error",
        Verdict.WARN, "a disk or file system reports errors", "check it with smartctl",
    ),
    Fault(
        "file-system", "lustre", r"LustreError:|LNetError:",
        Verdict.WARN, "the Lustre client reports errors", "look at the servers, and at lfs check servers",
    ),
    Fault(
        "file-system", "nfs", r"nfs: server \S+ not responding",
        Verdict.WARN, "an NFS server did not answer", "look at the server and the network to it",
    ),
    Fault(
        "temperature", "throttled", r"(?:temperature above threshold|thermal.*throttl)",
        Verdict.WARN, "a processor was too hot and slowed down", "check fans and airflow",
    ),
)  # fmt: skip


ANY = re.compile("|".join(pattern for fault in FAULTS for pattern in (fault.pattern, fault.covered_by) if pattern))


def find(lines: Iterable[str], subject: str, earlier: bool = False) -> list[Finding]:
    """One finding for each kind of fault, with the number of lines and the last one.

    `earlier`: the lines are of a boot before this one; then no fault is worse than WARN.
    """
    found: dict[str, list[str]] = {}
    lines = list(lines)
    covered = {f.name for f in FAULTS if f.covered_by and any(re.search(f.covered_by, line) for line in lines)}
    for line in lines:
        fault = next((fault for fault in FAULTS if re.search(fault.pattern, line)), None)
        if fault and fault.name not in covered:
            found.setdefault(fault.name, []).append(line)
    return [_finding(fault, found[fault.name], subject, earlier) for fault in FAULTS if fault.name in found]


def _finding(fault: Fault, lines: list[str], subject: str, earlier: bool) -> Finding:
    verdict = Verdict.WARN if earlier and fault.verdict is Verdict.FAIL else fault.verdict
    when = " before the last reboot" if earlier else ""
    message = f"{fault.meaning}{when} ({plural(len(lines), 'line')}, the last: {lines[-1].strip()[:SHOWN]})"
    return Finding(
        fault.check, subject, verdict, message, {f"{fault.name}_lines": len(lines)}, fault.hint, fault.source
    )
