"""MIG: mode and instances of the GPUs, now and after each boot and driver load."""

from __future__ import annotations

from .. import gpu_rules, mig_layout, smi
from ..facts import device_holders
from ..host import Host
from ..model import Knob, Reading, Refused, Step, Unsupported
from ..resources.line import GPU_BOOT
from ..snapshot import HostSnapshot
from . import _gpu_owners
from ._at_boot import at_boot
from ._common import settled


def read(snapshot: HostSnapshot, knob: Knob) -> Reading:
    """Layouts of the GPUs that an entry is for; refused while a program holds one whose layout differs."""
    ruler = _gpu_owners.mig_ruler(snapshot.host)
    if ruler:
        hint = "set the layout there, or remove it from this host; or leave mig out of gpu_settings"
        raise Refused(f"MIG is set by {ruler}: {hint}")
    host = snapshot.unchanging
    gpus = smi.gpus(host)
    desired = gpu_rules.layouts(gpus, knob.value)
    chosen = [gpu for gpu in gpus if gpu.uuid in desired]
    if not chosen:
        raise Unsupported("no entry of mig is for a GPU of this host")
    now = {gpu.uuid: _layout(host, gpu) for gpu in chosen}
    waiting = [gpu for gpu in chosen if _waits_for_reboot(gpu, desired[gpu.uuid])]
    due = [gpu for gpu in chosen if now[gpu.uuid] != desired[gpu.uuid] and gpu not in waiting]
    for gpu in due:
        _refuse_if_impossible(host, gpu, now[gpu.uuid], desired[gpu.uuid])
    steps = tuple(Step(f"gpu:{gpu.uuid}:mig", now[gpu.uuid], desired[gpu.uuid]) for gpu in due)
    conflicts = _gpu_owners.rivals(snapshot, "mig")
    boot, kept = at_boot(snapshot, knob.name, knob.value, conflicts, GPU_BOOT)
    reason = f"GPU {_indexes(waiting)}: the mode changes at the next reboot, its instances after it" if waiting else ""
    return settled(
        knob._replace(value=_text(chosen, desired)),
        now=_text(chosen, now),
        boot=_text(chosen, desired) if boot == knob.value else boot,
        steps=steps + kept,
        conflicts=tuple(conflicts),
        disruptive=f"changes the MIG instances of GPU {_indexes(due)}" if due else "",
        reboot=bool(waiting),
        reason=reason,
    )


def _layout(host: Host, gpu: smi.GpuState) -> str:
    if not gpu.has("mig.mode.current"):
        raise Unsupported(f"GPU {gpu.index} ({gpu.name}) has no MIG: leave it out by `gpus` or `filter`")
    return mig_layout.read(host, gpu)


def _waits_for_reboot(gpu: smi.GpuState, desired: str) -> bool:
    """True if the mode is set, and takes effect at the next reboot, as in virtual machines with A100s."""
    mode = "Disabled" if desired == mig_layout.OFF else "Enabled"
    return gpu.value("mig.mode.current") != mode and gpu.value("mig.mode.pending") == mode


def _refuse_if_impossible(host: Host, gpu: smi.GpuState, now: str, desired: str) -> None:
    if " with " in now:
        undo = f"nvidia-smi mig -i {gpu.index} -dci; nvidia-smi mig -i {gpu.index} -dgi"
        raise Refused(f"GPU {gpu.index} has {now}, which gpuctl could not make again: remove them first ({undo})")
    wrong = mig_layout.why_impossible(host, gpu, mig_layout.instances_of(desired))
    if wrong:
        raise Refused(f"GPU {gpu.index}: {wrong}")
    holders = device_holders.of_gpu(host, gpu.uuid)
    if holders is None:
        why = "too many processes, or they are hidden, or the driver does not list the GPU"
        raise Refused(f"it is unknown who holds GPU {gpu.index} ({why}): drain the host")
    if holders:
        hint = "end these first, and stop services that watch GPUs (nvidia-dcgm, dcgm-exporter, the device plugin)"
        raise Refused(f"GPU {gpu.index} is held by {', '.join(holders)}: {hint}")


def _text(gpus: list[smi.GpuState], layouts: dict[str, str]) -> str:
    """ "1g.10gb:7" if all have one layout, else each GPU with its layout."""
    distinct = {layouts[gpu.uuid] for gpu in gpus}
    if len(distinct) == 1:
        return distinct.pop()
    return ", ".join(f"GPU {gpu.index} {layouts[gpu.uuid]}" for gpu in gpus)


def _indexes(gpus: list[smi.GpuState]) -> str:
    return ", ".join(str(gpu.index) for gpu in gpus)
