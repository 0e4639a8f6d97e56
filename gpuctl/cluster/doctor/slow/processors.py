"""Processors and memory of the pods: held back, too few, far from the GPUs, or swapped away."""

from __future__ import annotations

import re
from collections.abc import Mapping

from gpuctl.cluster.doctor.hang.gpu import known
from gpuctl.cluster.doctor.hang.job import ranks_of
from gpuctl.cluster.doctor.model import Facts, Inside
from gpuctl.domain.findings import Finding, fail, or_ok, unknown, warn
from gpuctl.engine import cpus_of

GIB = 2**30
# This project's own choices: shares from which on a person would look, of a moment's sample.
# The kernel adds up the time of all processors that a pod is kept from: it is held against what it uses.
HELD_BACK, PRESSED, FULL, RESTING = 0.05, 10.0, 0.95, 50
SWAPPED = 256  # pages in a second, 1 MiB


def throttled(facts: Facts) -> list[Finding]:
    """The kernel holds no pod's processors back for its limit."""
    check, findings = "processors", []
    for name, inside in facts.telling("machine").items():
        share, subject = inside.get("machine", "throttled"), f"Pod {name}"
        if share is None:
            findings.append(unknown(check, subject, "whether the kernel holds it back is not known: no cgroup tells"))
        elif share > HELD_BACK:
            used = inside.get("machine", "cpu_used")
            say = fail if share > HELD_BACK * max(1.0, used or 0.0) else warn
            message = f"its limit of processors holds it back: threads stand still for {share:.2f} s of each second"
            message += f", while it uses {used:.1f} processors" if used is not None else ""
            findings.append(say(check, subject, message, "raise resources.cpu, or take fewer data loader workers"))
    return or_ok(check, facts.env.name, findings) if facts.telling("machine") else []


MORE = "raise resources.memory; fewer data loader workers, a smaller prefetch"


def memory(facts: Facts) -> list[Finding]:
    """Enough of it: none was killed for it, none is swapped, nobody waits for it."""
    check, findings = "memory", []
    for name, inside in facts.telling("machine").items():
        findings += [fail(check, f"Pod {name}", message, hint) for message, hint in _short(inside)]
        if killed := number((inside.get("machine", "files") or {}).get("memory_events"), "oom_kill"):
            message = f"since its container began the kernel killed {killed} of its processes for memory"
            findings.append(warn(check, f"Pod {name}", message, MORE))
    return or_ok(check, facts.env.name, findings) if facts.telling("machine") else []


def _short(inside: Inside) -> list[tuple[str, str]]:
    files: Mapping[str, str | None] = inside.get("machine", "files") or {}
    problems = []
    limit, used = plain(files.get("memory_limit")), plain(files.get("memory_used"))
    stat = files.get("memory_stat")
    # Of version 1 the totals are those of the whole pod. Files are kept only as long as nobody needs the room.
    cache = sum(number(stat, f"total_{each}", each) or 0 for each in ("inactive_file", "active_file"))
    if limit and used and used - cache > limit * FULL:
        problems.append((f"it uses {(used - cache) / GIB:.1f} of the {limit / GIB:.1f} GiB that it may", MORE))
    pages = inside.get("machine", "swapped")
    if pages and pages > SWAPPED:
        problems.append(
            (f"its node swaps: {pages} pages in a second", "`swapoff -a` on the node; who takes its memory?")
        )
    share = pressure(inside, "memory")
    if share is not None and share > PRESSED:
        problems.append((f"{share:.0f} % of the time somebody there waits for memory", MORE))
    return problems


def pressure(inside: Inside, what: str) -> float | None:
    """Percentage of the last ten seconds in which a task waited: in the pod, else on its node."""
    for where in ("pod_pressure", "pressure"):
        text = (inside.get("machine", where) or {}).get(what)
        if match := re.search(r"^some avg10=([\d.]+)", text or ""):
            return float(match[1])
    return None


def number(text: str | None, *names: str) -> int | None:
    """The value of the first of these names in lines of "name value"."""
    rows = dict(line.split() for line in (text or "").splitlines() if len(line.split()) == 2)
    return next((int(rows[name]) for name in names if str(rows.get(name, "")).isdigit()), None)


def plain(text: str | None) -> int | None:
    """One number; None for "max", which is no limit."""
    return int(text) if text and text.strip().isdigit() else None


def loaders(facts: Facts) -> list[Finding]:
    """Ranks whose GPUs rest have data loaders beside them."""
    check, told, findings = "loaders", known(facts), []
    for name, inside in facts.asked().items():
        resting = (
            [gpu.index for gpu in told[name].gpus if gpu.busy is not None and gpu.busy < RESTING]
            if name in told
            else []
        )
        alone = [rank["rank"] for rank in ranks_of(inside) if not rank["helpers"]]
        if resting and alone:
            message = f"its GPUs rest, and {len(alone)} of its ranks have no data loader worker beside them"
            findings.append(
                warn(check, f"Pod {name}", message, "num_workers of the DataLoader, pin_memory, prefetch_factor")
            )
    return or_ok(check, facts.env.name, findings) if told else []


def guaranteed(facts: Facts) -> list[Finding]:
    """Requests are limits: the pod keeps its processors and is evicted last."""
    wrong = {
        name: str((pod.get("status") or {}).get("qosClass"))
        for name, pod in facts.pods.items()
        if (pod.get("status") or {}).get("qosClass") not in (None, "Guaranteed")
    }
    hint = "somebody changed its requests or limits, or a LimitRange did: `gpuctl cluster diff` shows it"
    findings = [
        warn("guaranteed", f"Pod {n}", f"it is {qos}: others may take its cores", hint) for n, qos in wrong.items()
    ]
    return or_ok("guaranteed", facts.env.name, findings) if facts.pods else []


def near(facts: Facts) -> list[Finding]:
    """Processors of every NUMA node that has a GPU of the pod's machine."""
    check, findings, any_known = "near", [], False
    for name, inside in facts.asked().items():
        nodes, allowed = inside.get("machine", "nodes") or {}, inside.get("machine", "allowed")
        of_gpus = inside.get("machine", "gpu_nodes") or []
        if not allowed or len(nodes) < 2 or not of_gpus:
            continue
        any_known = True
        own_nodes = {int(node) for node, cpus in nodes.items() if set(cpus_of(cpus)) & set(cpus_of(allowed))}
        if far := set(of_gpus) - own_nodes:
            message = (
                f"its processors ({allowed}) are all far from the GPUs of NUMA node {', '.join(map(str, sorted(far)))}"
            )
            hint = "kubelet: topologyManagerPolicy best-effort, cpuManagerPolicy static; or more resources.cpu"
            findings.append(warn(check, f"Pod {name}", message, hint))
    return or_ok(check, facts.env.name, findings) if any_known else []
