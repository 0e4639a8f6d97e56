"""Limits that break or block NCCL: locked memory, shared memory, and shares that do not answer."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from gpuctl.cluster.doctor.hang.job import ranks_of
from gpuctl.cluster.doctor.model import Facts, PodFacts
from gpuctl.domain import memlock
from gpuctl.domain.findings import Finding, Verdict, fail, or_ok, unknown, warn

GIB = 2**30
SHM = "/dev/shm"  # noqa: S108 - in the pod
LITTLE = 0.05  # free share of shared memory
ENOUGH = GIB  # locked memory: NCCL's buffers may fit into a larger limit; this project's own choice
RUNTIME_DEFAULT = 64 * 2**20  # shared memory of a container that requests none


def memlocked(facts: Facts) -> list[Finding]:
    """RDMA: judge the locked-memory limit of ranks, else of a program started in the pod."""
    if not facts.env.rdma:
        return []
    findings = []
    for name, inside in facts.answered().items():
        judged = memlock.judge(f"Pod {name}", _limit(inside))
        if judged.verdict is not Verdict.OK:
            few = (_bytes(inside) or "").isdigit() and int(_bytes(inside) or 0) < ENOUGH
            report = unknown if judged.verdict is Verdict.UNKNOWN else fail if few else warn
            findings.append(report("memlock", judged.subject, judged.message, judged.hint))
    return or_ok("memlock", facts.env.name, findings) if facts.answered() else []


def _bytes(inside: PodFacts) -> str | None:
    """Return the limit of a rank, else of a program started in the pod: bytes, or "unlimited"."""
    locked = [rank["memlock"] for rank in ranks_of(inside) if rank["memlock"]]
    return str(locked[0]) if locked else inside.get("machine", "memlock")


def _limit(inside: PodFacts) -> str:
    """Format limit and capabilities as `memlock` reads them: KiB or "unlimited"."""
    bytes_ = _bytes(inside) or ""
    text = str(int(bytes_) // 1024) if bytes_.isdigit() else bytes_
    return f"{text}\nCapEff:\t{inside.get('machine', 'capabilities') or ''}"


def folders(facts: Facts) -> list[Finding]:
    """Check that every folder answers: access to a share whose server is gone blocks."""
    findings = []
    for name, inside in facts.answering("disk").items():
        for path, folder in inside.values["disk"].items():
            if "late" in folder:
                message = f"{path} ({folder['source']}, {folder['type']}) does not answer within {folder['late']:g} s"
                findings.append(
                    fail(
                        "folders",
                        f"Pod {name}",
                        message,
                        "its server is gone or hangs, which blocks every process that uses it",
                    )
                )
    return or_ok("folders", facts.env.name, findings) if facts.answering("disk") else []


def shm(facts: Facts) -> list[Finding]:
    """Check that shared memory exists, and that some of it is free."""
    check, findings = "shared memory", []
    for name, inside in facts.answering("disk").items():
        usage: Mapping[str, Any] = (inside.values.get("disk") or {}).get(SHM) or {}
        if "size" not in usage:
            why = usage.get("why") or ("it is missing" if usage.get("missing") else "the probe did not report it")
            findings.append(unknown(check, f"Pod {name}", f"{SHM} cannot be read: {why}"))
        elif usage["free"] < usage["size"] * LITTLE:
            message = f"{SHM} is full: {usage['free'] / GIB:.1f} of {usage['size'] / GIB:.1f} GiB are free"
            hint = f"remove nccl-* files of earlier jobs (`ls -l {SHM}`), or raise resources.shm"
            findings.append(fail(check, f"Pod {name}", message, hint))
        elif usage["size"] <= RUNTIME_DEFAULT:
            message = f"{SHM} has {usage['size'] / 2**20:.0f} MiB: NCCL and data loaders need more"
            findings.append(warn(check, f"Pod {name}", message, "raise resources.shm"))
    return or_ok(check, facts.env.name, findings) if facts.answering("disk") else []
