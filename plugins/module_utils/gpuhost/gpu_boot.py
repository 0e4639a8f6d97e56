"""gpuctl-gpu: apply /etc/gpuctl/gpu.conf at boot, and whenever the driver is loaded again."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence

from . import boot_turn, clock_locks, gpu_rules, mig_layout, smi
from .host import Host
from .model import Refused, Unreadable, Unsupported

CONFIG = "/etc/gpuctl/gpu.conf"
PERSISTENCE, POWER, MODE, MIG = "gpu.persistence", "gpu.power_limit", "gpu.compute_mode", "gpu.mig"
SWITCHES = {"on": ("1", "Enabled"), "off": ("0", "Disabled")}
MODES = {
    "default": ("DEFAULT", "Default"),
    "exclusive_process": ("EXCLUSIVE_PROCESS", "Exclusive_Process"),
    "prohibited": ("PROHIBITED", "Prohibited"),
}


def main(argv: Sequence[str], host: Host | None = None) -> int:
    """Set every value that differs; return 1 if any could not be set, with the reasons on standard error."""
    return boot_turn.take(host or Host(argv[0] if argv else "/"), "gpuctl-gpu", CONFIG, apply_all)


def apply_all(host: Host) -> list[str]:
    """Apply every line, persistence first, as a GPU without it forgets the others; return the errors."""
    failed = []
    for key, value in sorted(lines(host), key=lambda line: list(APPLY).index(line[0]) if line[0] in APPLY else -1):
        if key not in APPLY:
            failed.append(f"{CONFIG}: {key} is no setting of this program")
            continue
        try:
            failed += _on_all(host, key, value)
        except (OSError, ValueError, RuntimeError, Refused, Unreadable, Unsupported) as error:
            failed.append(f"{key} {value}: {error}")
    return failed


def lines(host: Host) -> Iterator[tuple[str, str]]:
    """(key, value) of each line of the file."""
    for line in (host.read_or_none(CONFIG) or "").splitlines():
        key, _, value = line.strip().partition(" ")
        if key and not key.startswith("#"):
            yield key, value.strip()


def _on_all(host: Host, key: str, value: str) -> list[str]:
    """Apply one line to its GPUs; an error of one does not stop the others."""
    failed = []
    gpus = smi.gpus(host)
    desired = gpu_rules.layouts(gpus, value) if key == MIG else {}
    for gpu in gpus:
        if key == MIG and gpu.uuid not in desired:
            continue
        try:
            APPLY[key](host, gpu, desired.get(gpu.uuid, value))
        except (OSError, ValueError, RuntimeError, Unreadable, Unsupported) as error:
            failed.append(f"{key}, GPU {gpu.index}: {error}")
    return failed


def _persistence(host: Host, gpu: smi.GpuState, value: str) -> None:
    digit, state = SWITCHES[value]
    if gpu.value("persistence_mode") != state:
        smi.change(host, "-i", gpu.uuid, "-pm", digit)


def _power(host: Host, gpu: smi.GpuState, value: str) -> None:
    if gpu.number("power.limit") != int(value):
        smi.change(host, "-i", gpu.uuid, "-pl", value)


def _compute_mode(host: Host, gpu: smi.GpuState, value: str) -> None:
    mode, left_out = gpu_rules.except_indexes(value)
    option, state = MODES[mode]
    if gpu.index not in left_out and gpu.value("compute_mode") != state:
        smi.change(host, "-i", gpu.uuid, "-c", option)


def _mig(host: Host, gpu: smi.GpuState, layout: str) -> None:
    """Make the instances that a boot or driver load has lost; those of somebody else stay."""
    now = mig_layout.read(host, gpu)
    if now == layout:
        return
    if now not in (mig_layout.OFF, mig_layout.ON):
        raise RuntimeError(f"it has other instances ({now}), which stay: `gpuctl tune-nodes` changes them")
    mig_layout.write(host, gpu, layout)


def _clock(clock: str) -> Callable[[Host, smi.GpuState, str], None]:
    def apply(host: Host, gpu: smi.GpuState, value: str) -> None:
        if clock_locks.read(host, gpu, clock) != value:
            clock_locks.write(host, gpu, clock, value)

    return apply


APPLY: Mapping[str, Callable[[Host, smi.GpuState, str], None]] = {
    PERSISTENCE: _persistence,
    MIG: _mig,
    POWER: _power,
    **{f"gpu.{clock}": _clock(clock) for clock in clock_locks.OPTIONS},
    MODE: _compute_mode,
}
