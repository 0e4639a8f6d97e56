"""Judge a GPU by what its driver reports: errors, memory repairs that are pending or failed, reasons for low clocks."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from gpuctl.core.text import plural
from gpuctl.domain.findings import Verdict

# Clocks lowered by the hardware, or by the driver to protect it; not by a configured limit or idleness.
SLOWED = ("hw_slowdown", "hw_thermal_slowdown", "hw_power_brake_slowdown", "sw_thermal_slowdown")
CAPPED = "sw_power_cap"
REMAPPED_MOST = 512  # DCGM's error 132, to be triaged; Azure replaces the GPU
RESET = "drain it and reset the GPU (nvidia-smi --gpu-reset), or reboot"
ISOLATE = f"{RESET}; then dcgmi diag -r 3, and the field diagnostic if they return"
LOST = "look for Xid messages in dmesg; drain the node and reboot it"
AT_WORK = 50  # percent: at full load every GPU reaches its power limit (an H200 that multiplies matrices: 695 of 700 W)
SHOWN = 3  # values named in one message
# Values about the health of the GPU's memory; the others are judged where they are used.
MEMORY = ("ecc", "ecc_pending", "uncorrectable", "remap_pending", "remap_failure", "remapped", "retire_pending")
REPAIRS = ("unrepairable", "repair_pending", "banks_without_reserve", "recovery")  # of newer drivers


class HealthIssue(NamedTuple):
    """FAIL: the GPU must not be used. WARN: it needs watching. UNKNOWN: the driver does not report a value."""

    verdict: Verdict
    message: str
    hint: str


def issues(gpu: Mapping[str, Any]) -> list[HealthIssue]:
    """Reported errors and memory health of a GPU, as facts/gpu_xml.py returns it."""
    failed = errors(gpu)
    return [*failed, *(i for i in memory(gpu) if not (failed and i.verdict is Verdict.UNKNOWN))]


def why_capped(gpu: Mapping[str, Any]) -> str:
    """Reason why a GPU at its power limit needs attention; empty for one that works at its default limit."""
    limit, default, busy = gpu["power_limit_w"], gpu["default_power_limit_w"], gpu["busy_percent"]
    if limit is None or default is None:
        return "and it is unknown whether that was lowered"
    if limit < default:
        return f"{limit} W, by default {default} W"
    if busy is None or busy < AT_WORK:
        return "though it is not known to be at work" if busy is None else f"though it is only {busy} % busy"
    return ""


def memory(gpu: Mapping[str, Any]) -> list[HealthIssue]:
    """Memory repairs that are pending or failed, and values about them that the driver does not report."""
    issues = _repairs(gpu)
    if None not in (gpu["ecc"], gpu["ecc_pending"]) and gpu["ecc_pending"] != gpu["ecc"]:
        issues.append(HealthIssue(Verdict.FAIL, f"ECC is {gpu['ecc']}, {gpu['ecc_pending']} after a reset", RESET))
    if gpu["recovery"] not in (None, "None"):
        issues.append(HealthIssue(Verdict.FAIL, f"the driver asks for {gpu['recovery']}", "drain the node, then do so"))
    if gpu["uncorrectable"]:
        message = f"{gpu['uncorrectable']} uncorrectable errors since the driver was loaded"
        issues.append(HealthIssue(Verdict.FAIL, message, ISOLATE))
    if (gpu["remapped"] or 0) >= REMAPPED_MOST:
        message = f"{gpu['remapped']} rows remapped after uncorrectable errors"
        issues.append(HealthIssue(Verdict.FAIL, message, "drain it; run the field diagnostic, and have it replaced"))
    if gpu.get("banks_without_reserve"):
        banks = plural(gpu["banks_without_reserve"], "bank")
        message = f"{banks} of its memory have no spare rows left"
        issues.append(HealthIssue(Verdict.WARN, message, "the next error there cannot be repaired: plan a replacement"))
    return [*issues, *_unread(gpu)]


def errors(gpu: Mapping[str, Any]) -> list[HealthIssue]:
    """Error texts that nvidia-smi prints in place of values: one issue per text, with the values it replaces."""
    places: dict[str, list[str]] = {}
    for path, text in gpu["errors"].items():
        places.setdefault(text.strip("[] "), []).append(path.rpartition("/")[2])
    issues = []
    for text, names in places.items():
        more = f" and {len(names) - SHOWN} more" if len(names) > SHOWN else ""
        message = f'nvidia-smi reports "{text}" for {", ".join(names[:SHOWN])}{more}'
        issues.append(HealthIssue(Verdict.FAIL, message, RESET if "reset" in text.lower() else LOST))
    return issues


def _repairs(gpu: Mapping[str, Any]) -> list[HealthIssue]:
    issues = []
    if gpu.get("unrepairable"):
        issues.append(HealthIssue(Verdict.FAIL, "its memory cannot be repaired", "have the GPU replaced"))
    if gpu.get("repair_pending"):
        issues.append(HealthIssue(Verdict.FAIL, "a repair of a memory channel or a TPC is pending", RESET))
    if gpu["remap_failure"]:
        issues.append(HealthIssue(Verdict.FAIL, "a row could not be remapped", "have the GPU replaced"))
    if gpu["remap_pending"] or gpu["retire_pending"]:
        repair = "row remap" if gpu["remap_pending"] else "page retirement"
        issues.append(HealthIssue(Verdict.FAIL, f"a {repair} is pending", RESET))
    return issues


def _unread(gpu: Mapping[str, Any]) -> list[HealthIssue]:
    """Report missing values; one never counts as good."""
    remaps = gpu["remap_pending"] is not None and gpu["remap_failure"] is not None
    names: dict[str, list[str]] = {}
    for name in (*MEMORY, *REPAIRS):
        # A GPU that remaps rows retires no pages.
        if name in gpu["unread"] and not (remaps and name == "retire_pending"):
            names.setdefault(gpu["unread"][name], []).append(name)
    reason = "; ".join(f"{', '.join(alike)}: {text}" for text, alike in names.items())
    if gpu["ecc"] == "Enabled" and not remaps and gpu["retire_pending"] is None:
        missing = "pending repairs are"
    elif gpu["ecc"] == "Enabled" and gpu["uncorrectable"] is None:
        missing = "its uncorrectable errors are"
    elif reason:
        missing = "the state of its memory is"
    else:
        return []
    reason = reason or ("the driver does not report them under MIG" if gpu["mig"] == "Enabled" else "")
    return [HealthIssue(Verdict.UNKNOWN, f"{missing} unknown: {reason or 'nvidia-smi does not report them'}", "")]
