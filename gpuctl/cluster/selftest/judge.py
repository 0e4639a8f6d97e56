"""Judges what only `test` looks at: GPUs in detail, shared memory, RDMA devices, locked memory."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from gpuctl.cluster.deploy.quantity import amount
from gpuctl.cluster.doctor.interface_names import absent
from gpuctl.cluster.environment import Environment
from gpuctl.cluster.probe.judge import read, together
from gpuctl.cluster.probe.model import Facts
from gpuctl.core.sizes import size
from gpuctl.domain.findings import Finding, Verdict
from gpuctl.domain.gpu_health import HealthIssue
from gpuctl.domain.gpu_health import issues as health_issues

IPC_LOCK = 1 << 14  # linux/capability.h: who has it is held by no limit
MOST_ILLS = 4  # that are told of a pod
NEARLY = 0.99  # a tmpfs is a page or two smaller than was asked for


def drivers(facts: Sequence[Facts]) -> list[Finding]:
    """The same driver on all nodes."""
    found = {each.pod: str(told["driver"]) for each in read(facts) if (told := each.details) and told["driver"]}
    if len(set(found.values())) < 2:
        return []
    usual = Counter(found.values()).most_common(1)[0][0]
    words = {pod: f"driver {version}, where most have {usual}" for pod, version in found.items() if version != usual}
    return together("driver", Verdict.WARN, words, "NCCL between different drivers is not what NVIDIA tests")


def health(facts: Sequence[Facts]) -> list[Finding]:
    """What nvidia-smi tells of GPUs that are not well."""
    found: list[Finding] = []
    unknown: dict[str, str] = {}
    for each in read(facts):
        told = each.details
        if told is None:
            if each.gpus:
                unknown[each.pod] = "nvidia-smi -q gives no details"
            continue
        issues = [
            (f"GPU {at} ({gpu['uuid']})", issue) for at, gpu in enumerate(told["gpus"]) for issue in health_issues(gpu)
        ]
        for verdict in (Verdict.FAIL, Verdict.WARN, Verdict.UNKNOWN):
            found += _ill(each.pod, verdict, [(gpu, issue) for gpu, issue in issues if issue.verdict is verdict])
    return [*found, *together("gpu health", Verdict.UNKNOWN, unknown)]


def _ill(pod: str, verdict: Verdict, found: Sequence[tuple[str, HealthIssue]]) -> list[Finding]:
    """A pod's ills of one kind as one finding, with all that is to be done."""
    if not found:
        return []
    words = [f"{gpu}: {issue.message}" for gpu, issue in found]
    more = f"; and {len(words) - MOST_ILLS} more" if len(words) > MOST_ILLS else ""
    advice = dict.fromkeys(issue.hint for _, issue in found if issue.hint)
    return [Finding("gpu health", pod, verdict, "; ".join(words[:MOST_ILLS]) + more, hint="; ".join(advice))]


def shared_memory(env: Environment, facts: Sequence[Facts]) -> list[Finding]:
    """As much of /dev/shm as the file says."""
    wanted = amount(env.cluster.resources.shm)
    words, unknown = {}, {}
    for each in read(facts):
        told = each.told["shm"]
        if "why" in told:
            unknown[each.pod] = f"its shared memory cannot be read: {told['why']}"
        elif wanted is not None and told["bytes"] < float(wanted) * NEARLY:
            words[each.pod] = f"shared memory is {size(told['bytes'])}, the file says {env.cluster.resources.shm}"
    hint = "NCCL and data loaders fail without; `gpuctl cluster deploy` brings what the file says"
    return [*together("shm", Verdict.FAIL, words, hint), *together("shm", Verdict.UNKNOWN, unknown)]


def workspace(facts: Sequence[Facts]) -> list[Finding]:
    """A sync, and whatever a training keeps, needs to write there."""
    words = {}
    for each in read(facts):
        told = each.told["workspace"]
        if "why" in told:
            words[each.pod] = f"/workspace: {told['why']}"
        elif not told["writable"]:
            words[each.pod] = f"/workspace cannot be written to by the pod's user, {told['user']}"
    hint = "storage that knows no fsGroup, as NFS: give the volume's folder that user or group, or mode 2777"
    return together("workspace", Verdict.FAIL, words, hint)


def rdma(env: Environment, facts: Sequence[Facts]) -> list[Finding]:
    """In RDMA mode: adapters, their files, and memory that may be locked."""
    if not env.rdma:
        return []
    missing, limited = {}, {}
    for each in read(facts):
        told = each.told["devices"]
        if not told["infiniband"]:
            missing[each.pod] = "the container sees no RDMA adapter (/sys/class/infiniband)"
        elif not told["verbs"]:
            missing[each.pod] = "the container has no /dev/infiniband/uverbs*: its device plugin gave it none"
        if said := _locks(each):
            limited[each.pod] = said
    plugin = "does the node's RDMA device plugin run, and does the file name its resource?"
    lock = "raise LimitMEMLOCK of the nodes' container runtime, or set security.ipc_lock and rdma_as_root"
    return [
        *together("rdma", Verdict.FAIL, missing, plugin),
        *_named_adapters(env.cluster.network.rdma.devices, facts),
        *together("memlock", Verdict.WARN, limited, lock),
    ]


def _named_adapters(wanted: Sequence[str], facts: Sequence[Facts]) -> list[Finding]:
    """A list may name the adapters of all kinds of nodes, and NCCL takes those it finds: no fault but where it finds
    none, or where others have what one lacks."""
    there = {each.pod: found for each in read(facts) if (found := each.told["devices"]["infiniband"])}
    anywhere = {name for found in there.values() for name in found}
    lost: dict[str, str] = {}
    other: dict[str, str] = {}
    for pod, found in there.items():
        if lacking := absent(wanted, found):
            is_fault = len(lacking) == len(wanted) or absent(lacking, anywhere) != lacking
            words = f"no adapter {', '.join(lacking)}; there are {', '.join(found)}"
            (lost if is_fault else other)[pod] = words
    hint = "network.rdma.devices names them"
    return [*together("rdma", Verdict.FAIL, lost, hint), *together("rdma", Verdict.WARN, other, hint)]


def _locks(each: Facts) -> str:
    told = each.told["memlock"]
    if told["bytes"] is None or (told["capabilities"] and int(told["capabilities"], 16) & IPC_LOCK):
        return ""
    return f"its user may lock {size(told['bytes'])}: RDMA fails beyond that"
