"""Limits that end NCCL's start in the middle: locked memory, and shared memory."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from gpuctl.cluster.deploy import memlock
from gpuctl.cluster.doctor.hang.job import ranks_of
from gpuctl.cluster.doctor.model import Facts, Inside
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
    found = []
    for name, inside in facts.asked().items():
        told = memlock.judge(f"Pod {name}", _limit(inside))
        if told.verdict is not Verdict.OK:
            few = (_bytes(inside) or "").isdigit() and int(_bytes(inside) or 0) < ENOUGH
            say = unknown if told.verdict is Verdict.UNKNOWN else fail if few else warn
            found.append(say("memlock", told.subject, told.message, told.hint))
    return or_ok("memlock", facts.env.name, found) if facts.asked() else []


def _bytes(inside: Inside) -> str | None:
    """Of a rank, else of a program started in the pod: a number, or "unlimited"."""
    own = [each["memlock"] for each in ranks_of(inside) if each["memlock"]]
    return str(own[0]) if own else inside.get("machine", "memlock")


def _limit(inside: Inside) -> str:
    """As `memlock` reads it: KiB or "unlimited", and the capabilities."""
    bytes_ = _bytes(inside) or ""
    text = str(int(bytes_) // 1024) if bytes_.isdigit() else bytes_
    return f"{text}\nCapEff:\t{inside.get('machine', 'capabilities') or ''}"


def folders(facts: Facts) -> list[Finding]:
    """Every folder answers: who reads or writes on a share whose server is gone stands still."""
    found = []
    for name, inside in facts.telling("room").items():
        for path, told in inside.said["room"].items():
            if "late" in told:
                words = f"{path} ({told['source']}, {told['type']}) gives no answer within {told['late']:g} s"
                found.append(fail("folders", f"Pod {name}", words, "its server is gone, or hangs; so does who uses it"))
    return or_ok("folders", facts.env.name, found) if facts.telling("room") else []


def shm(facts: Facts) -> list[Finding]:
    """There is shared memory, and some of it is free."""
    check, found = "shared memory", []
    for name, inside in facts.telling("room").items():
        told: Mapping[str, Any] = (inside.said.get("room") or {}).get(SHM) or {}
        if "size" not in told:
            why = told.get("why") or ("it is missing" if told.get("missing") else "it was not told")
            found.append(unknown(check, f"Pod {name}", f"{SHM} cannot be looked at: {why}"))
        elif told["free"] < told["size"] * LITTLE:
            words = f"{SHM} is full: {told['free'] / GIB:.1f} of {told['size'] / GIB:.1f} GiB are free"
            hint = f"jobs of before may have left nccl-* there: `ls -l {SHM}`; else raise resources.shm"
            found.append(fail(check, f"Pod {name}", words, hint))
        elif told["size"] <= RUNTIMES_OWN:
            words = f"{SHM} has {told['size'] / 2**20:.0f} MiB: NCCL and data loaders take more"
            found.append(warn(check, f"Pod {name}", words, "raise resources.shm"))
    return or_ok(check, facts.env.name, found) if facts.telling("room") else []
