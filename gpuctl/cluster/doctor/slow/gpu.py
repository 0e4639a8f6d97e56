"""GPUs that are slower than they could be, or slower than the others."""

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

AT_WORK = 10  # percent: an idle GPU lowers its clocks and its link itself
SLOWER = 0.9  # of the usual clock of busy GPUs; this project's own choice
HEAT = "check cooling, dust and air flow; `nvidia-smi -q -d TEMPERATURE,POWER`"
POWER = "the machine's power supply limits it: check its sensors, and the rack's power"

GpuProblem = Callable[[Gpu], tuple[str, str] | None]  # what is wrong with a GPU, and what to try


def clocks(facts: Facts) -> list[Finding]:
    """Check that nothing lowers the clocks."""
    findings = _each(facts, "clocks", _slowed)
    for name, listed in known(facts).items():
        for gpu in listed.gpus:
            subject = f"Pod {name}"
            if gpu.values["slowed_by"] is None:
                reason = gpu.values["unread"].get("slowed_by", "nvidia-smi does not report it")
                findings.append(unknown("clocks", subject, f"what slows GPU {gpu.index} is unknown: {reason}"))
            elif gpu.limit_w and gpu.default_w and gpu.limit_w < gpu.default_w:
                message = f"the power limit of GPU {gpu.index} is {gpu.limit_w:g} W, the default {gpu.default_w:g} W"
                message += ", and it is at that limit" if CAPPED in gpu.values["slowed_by"] else ""
                findings.append(warn("clocks", subject, message, "it was set on the node: `nvidia-smi -pl`"))
            if gpu.persistence == "Disabled":
                message = "persistence mode is off: jobs take seconds longer to start"
                findings.append(warn("clocks", subject, message, "run nvidia-persistenced on the node"))
    return or_ok("clocks", facts.env.name, findings) if known(facts) else []


def _slowed(gpu: Gpu) -> tuple[str, str] | None:
    slowed = [reason for reason in gpu.values["slowed_by"] or () if reason in SLOWED]
    if not slowed:
        return None
    heat = f" at {gpu.temperature_c:g} C" if gpu.temperature_c is not None else ""
    clock = f", {gpu.sm_mhz:g} of {gpu.values['max_sm_mhz']} MHz" if gpu.sm_mhz and gpu.values["max_sm_mhz"] else ""
    hint = POWER if all("power" in reason for reason in slowed) else HEAT
    return f"GPU {gpu.index} is slowed down by {named(slowed)}{heat}{clock}", hint


def pcie(facts: Facts) -> list[Finding]:
    """Check that the PCIe link is as wide and fast as it can be."""
    findings = _each(facts, "pcie", _linked)
    # If no GPU has all its lanes, the machines are built that way.
    if not any(_narrow(gpu) is False for listed in known(facts).values() for gpu in listed.gpus):
        findings = [replace(finding, verdict=Verdict.WARN) for finding in findings]
    return or_ok("pcie", facts.env.name, findings) if known(facts) else []


def _narrow(gpu: Gpu) -> bool | None:
    return gpu.link_width < gpu.most_width if gpu.link_width and gpu.most_width else None


def _linked(gpu: Gpu) -> tuple[str, str] | None:
    hint = "reseat it or its riser; the slot may be narrower: compare LnkSta with LnkCap in `lspci -vv` on the node"
    if _narrow(gpu):
        return f"GPU {gpu.index} has {gpu.link_width:g} of {gpu.most_width:g} PCIe lanes", hint
    at_work = gpu.busy is not None and gpu.busy >= AT_WORK
    if at_work and gpu.link_gen and gpu.most_gen and gpu.link_gen < gpu.most_gen:
        return f"GPU {gpu.index} runs at PCIe generation {gpu.link_gen:g} of {gpu.most_gen:g} while busy", hint
    return None


def pace(facts: Facts) -> list[Finding]:
    """Compare the clocks of busy GPUs."""
    known_gpus = known(facts)
    at_work = {
        (name, gpu.index): gpu.sm_mhz
        for name, listed in known_gpus.items()
        for gpu in listed.gpus
        # A GPU at its power limit works hard, and runs slower than those that wait for it.
        if gpu.sm_mhz and gpu.busy is not None and gpu.busy >= AT_WORK and CAPPED not in (gpu.values["slowed_by"] or ())
    }
    if not known_gpus:
        return []
    usual = median(at_work.values()) if at_work else 0.0
    findings = [
        fail("pace", f"Pod {name}", f"GPU {index} runs at {clock:g} MHz, the median is {usual:g}", HEAT)
        for (name, index), clock in at_work.items()
        if clock < usual * SLOWER
    ]
    return or_ok("pace", facts.env.name, findings, "" if at_work else "no GPU is busy")


def stragglers(facts: Facts) -> list[Finding]:
    """Find pods that compute while the GPUs of others wait: a straggler if a second run names the same pod."""
    working_gpus = at_work(facts)
    waiting = [name for name, listed in working_gpus.items() if any(map(waits, listed.gpus))]
    working = [name for name, listed in working_gpus.items() if all(map(works, listed.gpus))]
    if not working_gpus:
        return []
    findings = []
    if waiting and working and len(working) < len(waiting) + 1:
        message = f"it computes while GPUs of {named(waiting)} wait in NCCL kernels (100 %, little power)"
        hint = "run it again: if it is always this pod, its share of the work is larger, or its machine slower"
        findings = [warn("stragglers", f"Pod {n}", message, hint) for n in working]
    return or_ok("stragglers", facts.env.name, findings)


def memory(facts: Facts) -> list[Finding]:
    """Report pending repairs of GPU memory as warnings: they do not slow a GPU down."""
    return [
        replace(finding, verdict=Verdict.WARN) if finding.verdict is Verdict.FAIL else finding for finding in ill(facts)
    ]


def _each(facts: Facts, check: str, judge: GpuProblem) -> list[Finding]:
    """Apply a function to each GPU of each pod, and report its problems."""
    every = [(name, judge(gpu)) for name, listed in known(facts).items() for gpu in listed.gpus]
    return [fail(check, f"Pod {name}", *wrong) for name, wrong in every if wrong]
