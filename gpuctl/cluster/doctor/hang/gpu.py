"""GPUs of a hanging job: lost, faulty, or waiting in NCCL kernels."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from gpuctl.cluster.doctor import gpus as reading
from gpuctl.cluster.doctor.gpus import Gpu, Gpus
from gpuctl.cluster.doctor.hang.job import ranks_of
from gpuctl.cluster.doctor.model import Facts
from gpuctl.core.text import named
from gpuctl.domain import gpu_health
from gpuctl.domain.findings import Finding, fail, or_ok, unknown, warn

XID = "`dmesg | grep -iE 'xid|nvrm'` on its node says why; a GPU that fell off the bus needs a reboot"
# A waiting NCCL kernel keeps its GPU at 100 % and draws little power; computing draws most of the limit.
# The shares of the power limit are this project's own choice: no source gives numbers.
BUSY, IDLE, WAITING, WORKING = 95, 5, 0.4, 0.6


def gpus(facts: Facts) -> list[Finding]:
    """Check that nvidia-smi answers, and lists every GPU of the pod."""
    check, findings = "gpus", []
    for name, inside in facts.answered().items():
        listed, subject = reading.gpus_of(inside), f"Pod {name}"
        expected = facts.env.cluster.gpus.per_node
        if listed.late and ranks_of(inside):  # ranks use the driver, so it is already loaded
            findings.append(fail(check, subject, f"{listed.complaint}: the driver hangs", XID))
        elif listed.late:
            message = f"{listed.complaint}: the driver hangs, or loads slowly because persistence mode is off"
            findings.append(unknown(check, subject, message, "raise --timeout"))
        elif listed.why and listed.complaint and not listed.missing:
            findings.append(fail(check, subject, f"nvidia-smi fails: {listed.why}", XID))
        elif listed.why:
            findings.append(unknown(check, subject, f"its GPUs are unknown: {listed.why}"))
        elif facts.whole_gpus and len(listed.gpus) < expected:
            more = f": {listed.complaint}" if listed.complaint else ""
            findings.append(fail(check, subject, f"{len(listed.gpus)} of its {expected} GPUs answer{more}", XID))
        elif listed.complaint:
            findings.append(warn(check, subject, f"nvidia-smi reports: {listed.complaint}", XID))
        findings += _issues(check, name, listed, gpu_health.errors)
    return or_ok(check, facts.env.name, findings) if facts.answered() else []


def memory(facts: Facts) -> list[Finding]:
    """Check that no repair of GPU memory is pending or has failed."""
    check, findings = "gpu memory", []
    for name, listed in known(facts).items():
        findings += _issues(check, name, listed, gpu_health.memory)
    return or_ok(check, facts.env.name, findings) if known(facts) else []


def _issues(
    check: str, pod: str, gpus: Gpus, judge: Callable[[Mapping[str, Any]], list[gpu_health.HealthIssue]]
) -> list[Finding]:
    """Judge each of a pod's GPUs by a function of gpu_health."""
    return [
        Finding(check, f"Pod {pod}", issue.verdict, f"GPU {gpu.index}: {issue.message}", hint=issue.hint)
        for gpu in gpus.gpus
        for issue in judge(gpu.values)
    ]


def known(facts: Facts) -> dict[str, Gpus]:
    """Return the GPUs of the pods that reported any."""
    every = {name: reading.gpus_of(inside) for name, inside in facts.answered().items()}
    return {name: listed for name, listed in every.items() if listed.gpus}


def at_work(facts: Facts) -> dict[str, Gpus]:
    """Return the GPUs of pods with ranks, if any: the idle GPUs of other pods are normal."""
    known_gpus = known(facts)
    working = {name: listed for name, listed in known_gpus.items() if ranks_of(facts.inside[name])}
    return working or known_gpus


def waits(gpu: Gpu) -> bool:
    """Return whether a GPU looks like it runs a waiting NCCL kernel."""
    share = _share(gpu)
    return gpu.busy is not None and gpu.busy >= BUSY and share is not None and share < WAITING


def works(gpu: Gpu) -> bool:
    share = _share(gpu)
    return share is not None and share >= WORKING


def _share(gpu: Gpu) -> float | None:
    """Return the power draw as a share of the limit."""
    return gpu.power_w / gpu.limit_w if gpu.power_w is not None and gpu.limit_w else None


def use(facts: Facts) -> list[Finding]:
    """Find pods with idle GPUs while those of other pods wait in NCCL kernels."""
    working_gpus = at_work(facts)
    waiting = [name for name, listed in working_gpus.items() if any(map(waits, listed.gpus))]
    if not working_gpus:
        return []
    idle = [
        name for name, listed in working_gpus.items() if all(g.busy is not None and g.busy <= IDLE for g in listed.gpus)
    ]
    if waiting and idle:
        message = f"its GPUs are idle while those of {named(waiting)} wait in NCCL kernels (100 %, little power)"
        return [fail("gpu use", f"Pod {name}", message, "`py-spy dump --pid` shows what its ranks do") for name in idle]
    if waiting and len(waiting) == len(working_gpus):
        message = "GPUs of every pod wait in NCCL kernels (100 %, little power) for data that does not arrive"
        return [warn("gpu use", facts.env.name, message, "a network fault is likely: check adapters and NCCL's log")]
    return or_ok("gpu use", facts.env.name, [])


def kernel_log(facts: Facts) -> list[Finding]:
    """Report the command for an admin: no container may read the kernel log."""
    nodes = sorted({str(pod["spec"]["nodeName"]) for pod in facts.pods.values() if pod["spec"].get("nodeName")})
    of_kubernetes = "kubectl debug node/NODE -it --image=IMAGE --profile=sysadmin"
    look = "oc debug node/NODE" if facts.env.openshift else of_kubernetes
    hint = f"an admin can run: `{look} -- chroot /host dmesg -T | grep -iE 'xid|nvrm|mlx5|efa|oom'`"
    message = "the kernel log, with Xid and link errors, cannot be read from a pod"
    return [unknown("kernel log", f"Nodes {named(nodes)}", message, hint)] if nodes else []
