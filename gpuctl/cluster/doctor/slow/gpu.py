"""GPUs that are slower than they could be, or than the others."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from statistics import median

from gpuctl.cluster.doctor.gpus import Gpu
from gpuctl.cluster.doctor.hang.gpu import at_work, known, waits, works
from gpuctl.cluster.doctor.hang.gpu import memory as ill
from gpuctl.cluster.doctor.model import Facts
from gpuctl.core.text import named
from gpuctl.domain.findings import Finding, Verdict, fail, or_ok, unknown, warn
from gpuctl.domain.gpu_health import CAPPED, SLOWED

AT_WORK = 10  # percent: at rest a GPU lowers its clocks and its link by itself
SLOWER = 0.9  # of what GPUs at work usually have; this project's own choice
HEAT = "cooling, dust, air flow, the room; `nvidia-smi -q -d TEMPERATURE,POWER`"
POWER = "the machine's power supply holds it down: its sensors, and the rack's power"

GpuProblem = Callable[[Gpu], tuple[str, str] | None]  # what is wrong with a GPU, and what to try


def clocks(facts: Facts) -> list[Finding]:
    """Nothing holds clocks down."""
    findings = _each(facts, "clocks", _slowed)
    for name, listed in known(facts).items():
        for gpu in listed.gpus:
            subject = f"Pod {name}"
            if gpu.own["slowed_by"] is None:
                reason = gpu.own["unread"].get("slowed_by", "nvidia-smi does not report it")
                findings.append(unknown("clocks", subject, f"what slows GPU {gpu.index} is unknown: {reason}"))
            elif gpu.limit_w and gpu.default_w and gpu.limit_w < gpu.default_w:
                message = f"GPU {gpu.index} may draw {gpu.limit_w:g} W; by default it is {gpu.default_w:g} W"
                message += ", and it is at that limit" if CAPPED in gpu.own["slowed_by"] else ""
                findings.append(warn("clocks", subject, message, "somebody set it: `nvidia-smi -pl` on the node"))
            if gpu.persistence == "Disabled":
                message = "persistence mode is off: the start of a job takes seconds longer"
                findings.append(warn("clocks", subject, message, "nvidia-persistenced on the node"))
    return or_ok("clocks", facts.env.name, findings) if known(facts) else []


def _slowed(gpu: Gpu) -> tuple[str, str] | None:
    slowed = [reason for reason in gpu.own["slowed_by"] or () if reason in SLOWED]
    if not slowed:
        return None
    heat = f" at {gpu.temperature_c:g} C" if gpu.temperature_c is not None else ""
    clock = f", {gpu.sm_mhz:g} of {gpu.own['max_sm_mhz']} MHz" if gpu.sm_mhz and gpu.own["max_sm_mhz"] else ""
    hint = POWER if all("power" in reason for reason in slowed) else HEAT
    return f"GPU {gpu.index} is slowed down by {named(slowed)}{heat}{clock}", hint


def pcie(facts: Facts) -> list[Finding]:
    """The link to the host is as wide and fast as it can be."""
    findings = _each(facts, "pcie", _linked)
    # Where none has all its lanes, the machines are made so.
    if not any(_narrow(gpu) is False for listed in known(facts).values() for gpu in listed.gpus):
        findings = [replace(finding, verdict=Verdict.WARN) for finding in findings]
    return or_ok("pcie", facts.env.name, findings) if known(facts) else []


def _narrow(gpu: Gpu) -> bool | None:
    return gpu.link_width < gpu.most_width if gpu.link_width and gpu.most_width else None


def _linked(gpu: Gpu) -> tuple[str, str] | None:
    hint = "reseat it, or its riser; the slot may be narrower: `lspci -vv` on the node, LnkSta beside LnkCap"
    if _narrow(gpu):
        return f"GPU {gpu.index} has {gpu.link_width:g} PCIe lanes of {gpu.most_width:g}", hint
    at_work = gpu.busy is not None and gpu.busy >= AT_WORK
    if at_work and gpu.link_gen and gpu.most_gen and gpu.link_gen < gpu.most_gen:
        return f"GPU {gpu.index} is at PCIe generation {gpu.link_gen:g} of {gpu.most_gen:g}, at work", hint
    return None


def pace(facts: Facts) -> list[Finding]:
    """GPUs at work have about the same clock."""
    known_gpus = known(facts)
    at_work = {
        (name, gpu.index): gpu.sm_mhz
        for name, listed in known_gpus.items()
        for gpu in listed.gpus
        # One that works hard is held at its power, and runs slower than those that wait for it.
        if gpu.sm_mhz and gpu.busy is not None and gpu.busy >= AT_WORK and CAPPED not in (gpu.own["slowed_by"] or ())
    }
    if not known_gpus:
        return []
    usual = median(at_work.values()) if at_work else 0.0
    findings = [
        fail("pace", f"Pod {name}", f"GPU {index} runs at {clock:g} MHz, usual are {usual:g}", HEAT)
        for (name, index), clock in at_work.items()
        if clock < usual * SLOWER
    ]
    return or_ok("pace", facts.env.name, findings, "" if at_work else "no GPU is at work")


def stragglers(facts: Facts) -> list[Finding]:
    """Pods that compute while the GPUs of others wait; at another moment it may be others, and then it is none."""
    working_gpus = at_work(facts)
    waiting = [name for name, listed in working_gpus.items() if any(map(waits, listed.gpus))]
    working = [name for name, listed in working_gpus.items() if all(map(works, listed.gpus))]
    if not working_gpus:
        return []
    findings = []
    if waiting and working and len(working) < len(waiting) + 1:
        message = f"it computes while GPUs of {named(waiting)} wait in NCCL's kernels (100 %, little power)"
        hint = "look again: where it is always this one, its share of the work is larger, or its machine slower"
        findings = [warn("stragglers", f"Pod {n}", message, hint) for n in working]
    return or_ok("stragglers", facts.env.name, findings)


def memory(facts: Facts) -> list[Finding]:
    """A repair of GPU memory that waits makes nothing slow: it is to be known of."""
    return [
        replace(finding, verdict=Verdict.WARN) if finding.verdict is Verdict.FAIL else finding for finding in ill(facts)
    ]


def _each(facts: Facts, check: str, judge: GpuProblem) -> list[Finding]:
    """Problems of each GPU of each pod."""
    every = [(name, judge(gpu)) for name, listed in known(facts).items() for gpu in listed.gpus]
    return [fail(check, f"Pod {name}", *wrong) for name, wrong in every if wrong]
