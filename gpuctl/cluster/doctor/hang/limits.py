"""Limits that end NCCL's start in the middle: locked memory, and shared memory."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from gpuctl.cluster.doctor.hang.job import ranks_of
from gpuctl.cluster.doctor.model import Facts, Inside
from gpuctl.domain import memlock
from gpuctl.domain.findings import Finding, Verdict, fail, or_ok, unknown, warn

GIB = 2**30
SHM = "/dev/shm"  # noqa: S108 - in the pod
LITTLE = 0.05  # of shared memory free
ENOUGH = GIB  # to lock: NCCL's buffers may fit into more, so that a limit alone is no cause; this project's own choice
RUNTIMES_OWN = 64 * 2**20  # what a container gets that asks for none


def memlocked(facts: Facts) -> list[Finding]:
    """RDMA: what ranks may lock, else what a program started in the pod may. A limit is a failure while NCCL hangs."""
    if not facts.env.rdma:
        return []
    findings = []
    for name, inside in facts.asked().items():
        judged = memlock.judge(f"Pod {name}", _limit(inside))
        if judged.verdict is not Verdict.OK:
            few = (_bytes(inside) or "").isdigit() and int(_bytes(inside) or 0) < ENOUGH
            say = unknown if judged.verdict is Verdict.UNKNOWN else fail if few else warn
            findings.append(say("memlock", judged.subject, judged.message, judged.hint))
    return or_ok("memlock", facts.env.name, findings) if facts.asked() else []


def _bytes(inside: Inside) -> str | None:
    """Limit of a rank, else of a program started in the pod: a number, or "unlimited"."""
    locked = [rank["memlock"] for rank in ranks_of(inside) if rank["memlock"]]
    return str(locked[0]) if locked else inside.get("machine", "memlock")


def _limit(inside: Inside) -> str:
    """As `memlock` reads it: KiB or "unlimited", and the capabilities."""
    bytes_ = _bytes(inside) or ""
    text = str(int(bytes_) // 1024) if bytes_.isdigit() else bytes_
    return f"{text}\nCapEff:\t{inside.get('machine', 'capabilities') or ''}"


def folders(facts: Facts) -> list[Finding]:
    """Every folder answers: who reads or writes on a share whose server is gone stands still."""
    findings = []
    for name, inside in facts.telling("room").items():
        for path, folder in inside.said["room"].items():
            if "late" in folder:
                message = f"{path} ({folder['source']}, {folder['type']}) gives no answer within {folder['late']:g} s"
                findings.append(
                    fail("folders", f"Pod {name}", message, "its server is gone, or hangs; so does who uses it")
                )
    return or_ok("folders", facts.env.name, findings) if facts.telling("room") else []


def shm(facts: Facts) -> list[Finding]:
    """There is shared memory, and some of it is free."""
    check, findings = "shared memory", []
    for name, inside in facts.telling("room").items():
        usage: Mapping[str, Any] = (inside.said.get("room") or {}).get(SHM) or {}
        if "size" not in usage:
            why = usage.get("why") or ("it is missing" if usage.get("missing") else "it was not told")
            findings.append(unknown(check, f"Pod {name}", f"{SHM} cannot be looked at: {why}"))
        elif usage["free"] < usage["size"] * LITTLE:
            message = f"{SHM} is full: {usage['free'] / GIB:.1f} of {usage['size'] / GIB:.1f} GiB are free"
            hint = f"jobs of before may have left nccl-* there: `ls -l {SHM}`; else raise resources.shm"
            findings.append(fail(check, f"Pod {name}", message, hint))
        elif usage["size"] <= RUNTIMES_OWN:
            message = f"{SHM} has {usage['size'] / 2**20:.0f} MiB: NCCL and data loaders take more"
            findings.append(warn(check, f"Pod {name}", message, "raise resources.shm"))
    return or_ok(check, facts.env.name, findings) if facts.telling("room") else []
