"""Keep a setting over a reboot by a line that gpuctl-boot.service applies, or gpuctl-gpu.service of a GPU."""

from __future__ import annotations

from collections.abc import Sequence

from ..model import Conflict, Step
from ..resources.line import BOOT
from ..snapshot import HostSnapshot


def at_boot(
    snapshot: HostSnapshot, key: str, desired: str, rivals: Sequence[Conflict], file: str = BOOT
) -> tuple[str, tuple[Step, ...]]:
    """(the value after a reboot, the steps that make it the desired one)."""
    steps = snapshot.step(f"line:{file}:{key}", desired)
    last = [rival.value for rival in rivals if rival.wins]
    if last:
        return last[-1], steps
    if not steps:
        return desired, steps
    ours = steps[0].before
    others = [rival.value for rival in rivals]
    return ours or (others[-1] if others else "kernel default"), steps
