"""Persistence mode: the daemon's drop-in, and the mode of each GPU now."""

from __future__ import annotations

import re
from collections.abc import Sequence

from .. import smi
from ..host import Host
from ..model import Conflict, Knob, Reading, Step
from ..resources.file import described
from ..resources.line import GPU_BOOT
from ..resources.unit import FOLDERS
from ..snapshot import HostSnapshot
from . import _gpu_owners
from ._at_boot import at_boot
from ._common import settled

DAEMON = "nvidia-persistenced.service"
DROP_IN = f"/etc/systemd/system/{DAEMON}.d/50-gpuctl.conf"
# Ubuntu's unit is static, started by udev, and says --no-persistence-mode; an empty ExecStart= removes its command.
TEXT = """# Written by gpuctl; `gpuctl rollback` takes it back.
[Service]
ExecStart=
ExecStart={command}
"""
MODES = {"on": "--persistence-mode", "off": "--no-persistence-mode"}
NO_DAEMON = (
    "nvidia-persistenced is not installed: the driver's own persistence mode serves, which NVIDIA calls legacy",
)


def read(snapshot: HostSnapshot, knob: Knob, gpus: Sequence[smi.GpuState]) -> Reading:
    """Mode of the GPUs now, and the command of the daemon; other drop-ins are named."""
    now = {gpu.uuid: "on" if gpu.value("persistence_mode") == "Enabled" else "off" for gpu in gpus}
    steps = tuple(
        Step(f"gpu:{uuid}:persistence", state, knob.value) for uuid, state in now.items() if state != knob.value
    )
    unit = _unit(snapshot.host)
    conflicts = [
        *_drop_ins(snapshot.host, knob.value),
        *_gpu_owners.rivals(snapshot, "persistence", *_spelt(knob.value)),
    ]
    boot, kept = at_boot(snapshot, knob.name, knob.value, conflicts, GPU_BOOT)
    command = _command(unit, knob.value) if unit else ""
    if command:
        kept += snapshot.step(f"file:{DROP_IN}", described(TEXT.format(command=command)))
    return settled(
        knob,
        now=" or ".join(sorted(set(now.values()))),
        boot=boot,
        steps=(*kept, *steps),
        conflicts=tuple(conflicts),
        notes=() if unit else NO_DAEMON,
    )


def _spelt(value: str) -> tuple[str, ...]:
    return ("1", "enabled") if value == "on" else ("0", "disabled")


def _unit(host: Host) -> str:
    """The text of the daemon's unit; "" if it is not installed."""
    texts = (host.read_or_none(f"{folder}/{DAEMON}") for folder in FOLDERS)
    return next((text for text in texts if text), "")


def _command(unit: str, value: str) -> str:
    """The unit's own command with the mode; "" if the unit has none."""
    commands = re.findall(r"^ExecStart=(.+)$", unit, re.MULTILINE)
    words = [word for word in commands[-1].split() if word not in MODES.values()] if commands else []
    return " ".join([*words, MODES[value]] if words else [])


def _drop_ins(host: Host, value: str) -> list[Conflict]:
    """Drop-ins that set the daemon's command to the other mode; gpuctl-gpu.service sets it after the daemon's start."""
    other = MODES["off" if value == "on" else "on"]
    paths = [path for folder in FOLDERS for path in host.glob(f"{folder}/{DAEMON}.d/*.conf") if path != DROP_IN]
    conflicts = []
    for path in paths:
        for number, line in enumerate((host.read_or_none(path) or "").splitlines(), 1):
            if line.startswith("ExecStart=") and other in line:
                conflicts.append(Conflict("drop-in", f"{path}:{number}", line, wins=False))
    return conflicts
