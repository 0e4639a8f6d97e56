"""Keep a setting over a reboot by a line in /etc/gpuctl/boot.conf, which gpuctl-boot.service carries out."""

from __future__ import annotations

from collections.abc import Sequence

from ..model import Conflict, Step
from ..resources.line import BOOT
from ..snapshot import View


def at_boot(view: View, key: str, wanted: str, rivals: Sequence[Conflict]) -> tuple[str, tuple[Step, ...]]:
    """(what stands after a reboot, the steps that make it the wanted value)."""
    steps = view.step(f"line:{BOOT}:{key}", wanted)
    last = [rival.value for rival in rivals if rival.wins]
    if last:
        return last[-1], steps
    if not steps:
        return wanted, steps
    ours = steps[0].before
    others = [rival.value for rival in rivals]
    return ours or (others[-1] if others else "kernel default"), steps
