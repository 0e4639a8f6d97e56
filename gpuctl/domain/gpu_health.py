"""What a GPU's own values say of its health: repairs of its memory that wait or failed, and what slows it down."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

# By hardware, or by the driver to save it. "sw_power_cap" is a limit somebody set, "gpu_idle" is rest.
SLOWED = ("hw_slowdown", "hw_thermal_slowdown", "hw_power_brake_slowdown", "sw_thermal_slowdown")
CAPPED = "sw_power_cap"
REMAPPED_MOST = 512  # Azure's number for "replace" (azurehpc-health-checks); NVIDIA does not confirm it: a warning
RESET = "drain it and reset the GPU (nvidia-smi --gpu-reset), or reboot"


class Ill(NamedTuple):
    """`bad`: it is not to be used so; else it is to be watched."""

    bad: bool
    words: str
    advice: str


def memory(gpu: Mapping[str, Any]) -> list[Ill]:
    """Of one GPU as gpuhost/facts/gpu_xml.py has it; what it does not say is not told here."""
    found = []
    if gpu["remap_failure"]:
        found.append(Ill(True, "a row could not be remapped", "have the GPU replaced"))
    if gpu["remap_pending"] or gpu["retire_pending"]:
        what = "row remap" if gpu["remap_pending"] else "page retirement"
        found.append(Ill(True, f"a {what} is pending", RESET))
    if None not in (gpu["ecc"], gpu["ecc_pending"]) and gpu["ecc_pending"] != gpu["ecc"]:
        found.append(Ill(True, f"ECC is {gpu['ecc']}, {gpu['ecc_pending']} after a reset", RESET))
    if gpu["recovery"] not in (None, "None"):
        found.append(Ill(True, f"the driver asks for {gpu['recovery']}", "drain the node, then do so"))
    if gpu["uncorrectable"] or (gpu["remapped"] or 0) > REMAPPED_MOST:
        words = f"{gpu['uncorrectable'] or 0} uncorrectable errors, {gpu['remapped'] or 0} rows remapped"
        found.append(Ill(False, words, "watch it; dcgmi diag -r 3"))
    return found
