"""GPUs of a job that hangs: lost, ill, or waiting in NCCL's kernels."""

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

XID = "`dmesg | grep -iE 'xid|nvrm'` on its node says why; a GPU that fell off the bus comes back by a reboot"
# A kernel of NCCL that waits keeps its GPU at 100 % and draws little, one that computes draws most of what it may.
# Both shares are this project's own choice: no source gives numbers.
BUSY, IDLE, WAITING, WORKING = 95, 5, 0.4, 0.6


def gpus(facts: Facts) -> list[Finding]:
    """nvidia-smi answers, and tells of every GPU that the pod was given."""
    check, findings = "gpus", []
    for name, inside in facts.asked().items():
        listed, subject = reading.of(inside), f"Pod {name}"
        expected = facts.env.cluster.gpus.per_node
        if listed.late and ranks_of(inside):  # they hold the driver: it is not only about to be loaded
            findings.append(fail(check, subject, f"{listed.complaint}: the driver hangs", XID))
        elif listed.late:
            message = f"{listed.complaint}: the driver hangs, or is slow to load where persistence mode is off"
            findings.append(unknown(check, subject, message, "--timeout gives it longer"))
        elif listed.why and listed.complaint and not listed.missing:
            findings.append(fail(check, subject, f"nvidia-smi fails: {listed.why}", XID))
        elif listed.why:
            findings.append(unknown(check, subject, f"its GPUs are not known: {listed.why}"))
        elif facts.whole_gpus and len(listed.gpus) < expected:
            more = f": {listed.complaint}" if listed.complaint else ""
            findings.append(fail(check, subject, f"{len(listed.gpus)} of its {expected} GPUs answer{more}", XID))
        elif listed.complaint:
            findings.append(warn(check, subject, f"nvidia-smi complains: {listed.complaint}", XID))
        findings += _issues(check, name, listed, gpu_health.errors)
    return or_ok(check, facts.env.name, findings) if facts.asked() else []


def memory(facts: Facts) -> list[Finding]:
    """No repair of GPU memory waits or has failed."""
    check, findings = "gpu memory", []
    for name, listed in known(facts).items():
        findings += _issues(check, name, listed, gpu_health.memory)
    return or_ok(check, facts.env.name, findings) if known(facts) else []


def _issues(
    check: str, pod: str, gpus: Gpus, judge: Callable[[Mapping[str, Any]], list[gpu_health.HealthIssue]]
) -> list[Finding]:
    """A pod's GPUs by one of the judgements of gpu_health."""
    return [
        Finding(check, f"Pod {pod}", issue.verdict, f"GPU {gpu.index}: {issue.message}", hint=issue.hint)
        for gpu in gpus.gpus
        for issue in judge(gpu.own)
    ]


def known(facts: Facts) -> dict[str, Gpus]:
    """GPUs of the pods that reported any."""
    every = {name: reading.of(inside) for name, inside in facts.asked().items()}
    return {name: listed for name, listed in every.items() if listed.gpus}


def at_work(facts: Facts) -> dict[str, Gpus]:
    """GPUs of the pods with ranks, if there are any: other pods take no part, and their GPUs are rightly idle."""
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
    """Share of the power limit that it draws."""
    return gpu.power_w / gpu.limit_w if gpu.power_w is not None and gpu.limit_w else None


def use(facts: Facts) -> list[Finding]:
    """GPUs that do nothing while those of other pods wait are what is waited for."""
    working_gpus = at_work(facts)
    waiting = [name for name, listed in working_gpus.items() if any(map(waits, listed.gpus))]
    if not working_gpus:
        return []
    idle = [
        name for name, listed in working_gpus.items() if all(g.busy is not None and g.busy <= IDLE for g in listed.gpus)
    ]
    if waiting and idle:
        message = f"its GPUs do nothing while those of {named(waiting)} wait in NCCL's kernels (100 %, little power)"
        return [fail("gpu use", f"Pod {name}", message, "see what its ranks do: `py-spy dump --pid`") for name in idle]
    if waiting and len(waiting) == len(working_gpus):
        message = "GPUs of every pod wait in NCCL's kernels (100 %, little power): for data that does not come"
        return [
            warn("gpu use", facts.env.name, message, "that speaks for the network: look at adapters and NCCL's log")
        ]
    return or_ok("gpu use", facts.env.name, [])


def kernel_log(facts: Facts) -> list[Finding]:
    """No container may read it: what an admin would run."""
    nodes = sorted({str(pod["spec"]["nodeName"]) for pod in facts.pods.values() if pod["spec"].get("nodeName")})
    of_kubernetes = "kubectl debug node/NODE -it --image=IMAGE --profile=sysadmin"
    look = "oc debug node/NODE" if facts.env.openshift else of_kubernetes
    hint = f"an admin runs: `{look} -- chroot /host dmesg -T | grep -iE 'xid|nvrm|mlx5|efa|oom'`"
    message = "the kernel's log cannot be read from a pod: Xid and link errors would stand there"
    return [unknown("kernel log", f"Nodes {named(nodes)}", message, hint)] if nodes else []
