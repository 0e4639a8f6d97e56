"""CPU and memory of the pods: throttled, too small, far from the GPUs, or swapped."""

from __future__ import annotations

import re
from collections.abc import Mapping

from gpuctl.cluster.doctor.hang.gpu import known
from gpuctl.cluster.doctor.hang.job import ranks_of
from gpuctl.cluster.doctor.model import Facts, PodFacts
from gpuctl.domain.findings import Finding, fail, or_ok, unknown, warn
from gpuctl.engine import cpus_of

GIB = 2**30
# This project's own choices, for a sample of about a second.
# Throttled time is summed over all processors, so it is compared with the CPU time used.
THROTTLED, PRESSED, FULL, RESTING = 0.05, 10.0, 0.95, 50
SWAPPED = 256  # pages a second, 1 MiB


def throttled(facts: Facts) -> list[Finding]:
    """Check that the kernel does not throttle pods at their CPU limit."""
    check, findings = "processors", []
    for name, inside in facts.answering("machine").items():
        share, subject = inside.get("machine", "throttled"), f"Pod {name}"
        if share is None:
            findings.append(unknown(check, subject, "CPU throttling is unknown: the cgroup does not report it"))
        elif share > THROTTLED:
            used = inside.get("machine", "cpu_used")
            report = fail if share > THROTTLED * max(1.0, used or 0.0) else warn
            message = f"it is throttled at its CPU limit: threads are stopped for {share:.2f} s of each second"
            message += f" while it uses {used:.1f} processors" if used is not None else ""
            findings.append(report(check, subject, message, "raise resources.cpu, or use fewer data loader workers"))
    return or_ok(check, facts.env.name, findings) if facts.answering("machine") else []


MORE = "raise resources.memory, or use fewer data loader workers and less prefetching"


def memory(facts: Facts) -> list[Finding]:
    """Check that memory suffices: no OOM kill, no swapping, no waiting for memory."""
    check, findings = "memory", []
    for name, inside in facts.answering("machine").items():
        findings += [fail(check, f"Pod {name}", message, hint) for message, hint in _short(inside)]
        if killed := number((inside.get("machine", "files") or {}).get("memory_events"), "oom_kill"):
            message = f"the kernel killed {killed} of its processes for lack of memory since its container started"
            findings.append(warn(check, f"Pod {name}", message, MORE))
    return or_ok(check, facts.env.name, findings) if facts.answering("machine") else []


def _short(inside: PodFacts) -> list[tuple[str, str]]:
    files: Mapping[str, str | None] = inside.get("machine", "files") or {}
    problems = []
    limit, used = plain(files.get("memory_limit")), plain(files.get("memory_used"))
    stat = files.get("memory_stat")
    # In cgroup version 1 the total_ rows cover the whole pod. Cached files do not count: they are evicted on demand.
    cache = sum(number(stat, f"total_{row}", row) or 0 for row in ("inactive_file", "active_file"))
    if limit and used and used - cache > limit * FULL:
        problems.append((f"it uses {(used - cache) / GIB:.1f} of its {limit / GIB:.1f} GiB", MORE))
    pages = inside.get("machine", "swapped")
    if pages and pages > SWAPPED:
        problems.append(
            (f"its node swaps: {pages} pages a second", "`swapoff -a` on the node, and find what uses its memory")
        )
    share = pressure(inside, "memory")
    if share is not None and share > PRESSED:
        problems.append((f"tasks wait for memory {share:.0f} % of the time", MORE))
    return problems


def pressure(inside: PodFacts, what: str) -> float | None:
    """Return the percentage of the last ten seconds in which a task waited, in the pod, else on its node."""
    for where in ("pod_pressure", "pressure"):
        text = (inside.get("machine", where) or {}).get(what)
        if match := re.search(r"^some avg10=([\d.]+)", text or ""):
            return float(match[1])
    return None


def number(text: str | None, *names: str) -> int | None:
    """Return the value of the first of these names in lines of "name value"; None if none is present."""
    rows = dict(line.split() for line in (text or "").splitlines() if len(line.split()) == 2)
    return next((int(rows[name]) for name in names if str(rows.get(name, "")).isdigit()), None)


def plain(text: str | None) -> int | None:
    """Parse a number; None for "max" (no limit)."""
    return int(text) if text and text.strip().isdigit() else None


def loaders(facts: Facts) -> list[Finding]:
    """Check that ranks with idle GPUs have data loader workers."""
    check, gpus_by_pod, findings = "loaders", known(facts), []
    for name, inside in facts.answered().items():
        resting = (
            [gpu.index for gpu in gpus_by_pod[name].gpus if gpu.busy is not None and gpu.busy < RESTING]
            if name in gpus_by_pod
            else []
        )
        alone = [rank["rank"] for rank in ranks_of(inside) if not rank["helpers"]]
        if resting and alone:
            message = f"its GPUs are often idle, and {len(alone)} of its ranks have no data loader worker"
            findings.append(
                warn(check, f"Pod {name}", message, "set num_workers, pin_memory and prefetch_factor of the DataLoader")
            )
    return or_ok(check, facts.env.name, findings) if gpus_by_pod else []


def guaranteed(facts: Facts) -> list[Finding]:
    """Check the QoS class: a Guaranteed pod keeps its processors and is evicted last."""
    wrong = {
        name: str((pod.get("status") or {}).get("qosClass"))
        for name, pod in facts.pods.items()
        if (pod.get("status") or {}).get("qosClass") not in (None, "Guaranteed")
    }
    hint = "a user or a LimitRange changed its requests or limits: `gpuctl cluster diff` shows it"
    findings = [
        warn("guaranteed", f"Pod {n}", f"its QoS class is {qos}: other pods may take its cores", hint)
        for n, qos in wrong.items()
    ]
    return or_ok("guaranteed", facts.env.name, findings) if facts.pods else []


def numa(facts: Facts) -> list[Finding]:
    """Check that the pod may use processors on every NUMA node with a GPU."""
    check, findings, any_known = "numa", [], False
    for name, inside in facts.answered().items():
        nodes, allowed = inside.get("machine", "nodes") or {}, inside.get("machine", "allowed")
        of_gpus = inside.get("machine", "gpu_nodes") or []
        if not allowed or len(nodes) < 2 or not of_gpus:
            continue
        any_known = True
        own_nodes = {int(node) for node, cpus in nodes.items() if set(cpus_of(cpus)) & set(cpus_of(allowed))}
        if far := set(of_gpus) - own_nodes:
            nodes_of_gpus = ", ".join(map(str, sorted(far)))
            message = f"none of its processors ({allowed}) is close to the GPUs of NUMA node {nodes_of_gpus}"
            hint = (
                "set the kubelet's topologyManagerPolicy: best-effort, cpuManagerPolicy: static; or raise resources.cpu"
            )
            findings.append(warn(check, f"Pod {name}", message, hint))
    return or_ok(check, facts.env.name, findings) if any_known else []
