"""Judge what only `test` examines: GPU details, shared memory, RDMA devices, locked memory."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from gpuctl.cluster.doctor.interface_names import absent
from gpuctl.cluster.environment import Environment
from gpuctl.cluster.probe.judge import read, together
from gpuctl.cluster.probe.model import Facts
from gpuctl.core.sizes import size
from gpuctl.domain.findings import Finding, Verdict
from gpuctl.domain.gpu_health import HealthIssue
from gpuctl.domain.gpu_health import issues as health_issues
from gpuctl.domain.quantity import amount

IPC_LOCK = 1 << 14  # linux/capability.h: no limit applies to its holder
MAX_ISSUES = 4  # reported per pod
NEARLY = 0.99  # a tmpfs is a page or two smaller than requested


def drivers(facts: Sequence[Facts]) -> list[Finding]:
    """All nodes have the same driver."""
    versions = {
        pod.pod: str(details["driver"]) for pod in read(facts) if (details := pod.details) and details["driver"]
    }
    if len(set(versions.values())) < 2:
        return []
    usual = Counter(versions.values()).most_common(1)[0][0]
    problems = {
        pod: f"driver {version}, where most have {usual}" for pod, version in versions.items() if version != usual
    }
    return together("driver", Verdict.WARN, problems, "NVIDIA does not test NCCL between different drivers")


def health(facts: Sequence[Facts]) -> list[Finding]:
    """GPU health issues that nvidia-smi reports."""
    findings: list[Finding] = []
    unknown: dict[str, str] = {}
    for pod in read(facts):
        details = pod.details
        if details is None:
            if pod.gpus:
                unknown[pod.pod] = "nvidia-smi -q gives no details"
            continue
        issues = [
            (f"GPU {at} ({gpu['uuid']})", issue)
            for at, gpu in enumerate(details["gpus"])
            for issue in health_issues(gpu)
        ]
        for verdict in (Verdict.FAIL, Verdict.WARN, Verdict.UNKNOWN):
            findings += _gpu_finding(
                pod.pod, verdict, [(gpu, issue) for gpu, issue in issues if issue.verdict is verdict]
            )
    return [*findings, *together("gpu health", Verdict.UNKNOWN, unknown)]


def _gpu_finding(pod: str, verdict: Verdict, issues: Sequence[tuple[str, HealthIssue]]) -> list[Finding]:
    """Merge a pod's issues of one verdict into one finding with all advice."""
    if not issues:
        return []
    messages = [f"{gpu}: {issue.message}" for gpu, issue in issues]
    more = f"; and {len(messages) - MAX_ISSUES} more" if len(messages) > MAX_ISSUES else ""
    advice = dict.fromkeys(issue.hint for _, issue in issues if issue.hint)
    return [Finding("gpu health", pod, verdict, "; ".join(messages[:MAX_ISSUES]) + more, hint="; ".join(advice))]


def shared_memory(env: Environment, facts: Sequence[Facts]) -> list[Finding]:
    """Shared memory is as large as the cluster file requests."""
    expected = amount(env.cluster.resources.shm)
    problems, unknown = {}, {}
    for pod in read(facts):
        shm = pod.answer["shm"]
        if "why" in shm:
            unknown[pod.pod] = f"its shared memory cannot be read: {shm['why']}"
        elif expected is not None and shm["bytes"] < float(expected) * NEARLY:
            problems[pod.pod] = f"shared memory is {size(shm['bytes'])}, the file says {env.cluster.resources.shm}"
    hint = "NCCL and data loaders need it; `gpuctl cluster deploy` applies the cluster file"
    return [*together("shm", Verdict.FAIL, problems, hint), *together("shm", Verdict.UNKNOWN, unknown)]


def workspace(facts: Sequence[Facts]) -> list[Finding]:
    """The pod's user can write to the workspace: sync and training output need that."""
    problems = {}
    for pod in read(facts):
        folder = pod.answer["workspace"]
        if "why" in folder:
            problems[pod.pod] = f"/workspace: {folder['why']}"
        elif not folder["writable"]:
            problems[pod.pod] = f"/workspace is not writable for the pod's user, {folder['user']}"
    hint = "storage without fsGroup support (NFS): give the volume's folder that user or group, or mode 2777"
    return together("workspace", Verdict.FAIL, problems, hint)


def rdma(env: Environment, facts: Sequence[Facts]) -> list[Finding]:
    """In RDMA mode: adapters, device files, and enough lockable memory."""
    if not env.rdma:
        return []
    missing, limited = {}, {}
    for pod in read(facts):
        devices = pod.answer["devices"]
        if not devices["infiniband"]:
            missing[pod.pod] = "the container sees no RDMA adapter (/sys/class/infiniband)"
        elif not devices["verbs"]:
            missing[pod.pod] = "the container has no /dev/infiniband/uverbs*: its device plugin gave it none"
        if problem := _locks(pod):
            limited[pod.pod] = problem
    plugin = "check that the node's RDMA device plugin runs and that the cluster file names its resource"
    lock = "raise LimitMEMLOCK of the nodes' container runtime, or set security.ipc_lock and rdma_as_root"
    return [
        *together("rdma", Verdict.FAIL, missing, plugin),
        *_named_adapters(env.cluster.network.rdma.devices, facts),
        *together("memlock", Verdict.WARN, limited, lock),
    ]


def _named_adapters(expected: Sequence[str], facts: Sequence[Facts]) -> list[Finding]:
    """The list may name the adapters of all kinds of nodes, and NCCL uses those that exist: a fault only if a pod has
    none of
    them, or lacks one that others have.
    """
    adapters = {pod.pod: names for pod in read(facts) if (names := pod.answer["devices"]["infiniband"])}
    anywhere = {name for names in adapters.values() for name in names}
    lost: dict[str, str] = {}
    other: dict[str, str] = {}
    for pod, names in adapters.items():
        if lacking := absent(expected, names):
            is_fault = len(lacking) == len(expected) or absent(lacking, anywhere) != lacking
            problem = f"no adapter {', '.join(lacking)}; it has {', '.join(names)}"
            (lost if is_fault else other)[pod] = problem
    hint = "network.rdma.devices names them"
    return [*together("rdma", Verdict.FAIL, lost, hint), *together("rdma", Verdict.WARN, other, hint)]


def _locks(pod: Facts) -> str:
    limit = pod.answer["memlock"]
    if limit["bytes"] is None or (limit["capabilities"] and int(limit["capabilities"], 16) & IPC_LOCK):
        return ""
    return f"its user may lock {size(limit['bytes'])}: RDMA fails beyond that"
