"""GPUs of this host with their settings, as nvidia-smi prints them, and the commands that change those settings."""

from __future__ import annotations

import re
from collections.abc import Mapping

from .host import Host, Result
from .model import Unreadable, Unsupported
from .remembered import Remembered

LIMIT_S = 60.0  # eight GPUs without persistence mode take ten seconds and more
CHANGE_LIMIT_S = 120.0
FIELDS = (
    "index",
    "uuid",
    "pci.bus_id",
    "name",
    "pci.device_id",
    "persistence_mode",
    "compute_mode",
    "power.limit",
    "power.default_limit",
    "power.min_limit",
    "power.max_limit",
    "ecc.mode.current",
    "ecc.mode.pending",
    "mig.mode.current",
    "mig.mode.pending",
    "clocks.max.graphics",
    "clocks.max.memory",
    "clocks.current.graphics",
    "clocks.current.memory",
)
ABSENT = frozenset({"", "n/a", "not supported", "requested functionality has been deprecated"})
UUID = re.compile(r"GPU-[0-9a-f-]{36}")
IN_USE, NO_PERMISSION = "In use by another client", "Insufficient Permissions"
NO_SMI = "there is no nvidia-smi: install the driver first (`gpuctl gpu-node plan` chooses it)"
# nvidia-smi ends with 0 after these.
_WARNING = re.compile(r"Treating as warning|not supported|Not Supported", re.IGNORECASE)
_REFUSAL = re.compile(
    r"does not have permission|Insufficient Permissions|In use by another client|is not a valid|Insufficient Resources"
    r"|^Unable to |^Failed to |Terminating early",
    re.IGNORECASE | re.MULTILINE,
)
_BYE = ("All done.", "Treating as warning and moving on.", "Terminating early due to previous errors.")


class InUse(RuntimeError):
    """nvidia-smi refused a change because a program has the GPU open; the message is nvidia-smi's."""


class GpuState:
    """One GPU. `values`: fields of `FIELDS` as printed, without units."""

    def __init__(self, values: Mapping[str, str]) -> None:
        self.values = values
        self.index = int(values["index"])
        self.uuid, self.name, self.device_id = values["uuid"], values["name"], values["pci.device_id"]

    def value(self, field: str) -> str:
        """`Unsupported` if the GPU has no such value, `Unreadable` for an error in its place."""
        text = self.values[field].strip("[] ")
        if text.lower() in ABSENT:
            raise Unsupported(f"GPU {self.index} ({self.name}) has no {field}")
        if not re.fullmatch(r"[\d.]+|Enabled|Disabled|Default|Exclusive_\w+|Prohibited", text):
            raise Unreadable(f"GPU {self.index}: {field} is {text!r}")
        return text

    def number(self, field: str) -> int:
        """A value in its unit, rounded: W or MHz."""
        return round(float(self.value(field)))

    def has(self, field: str) -> bool:
        """False if the GPU has no such value."""
        return self.values[field].strip("[] ").lower() not in ABSENT


def ask(host: Host, *argv: str) -> Result:
    """Output of nvidia-smi; a host whose answers are remembered runs each question once."""
    known = host.answers if isinstance(host, Remembered) else {}
    if argv not in known:
        known[argv] = host.run("nvidia-smi", *argv, limit=LIMIT_S)
    return known[argv]


def gpus(host: Host) -> list[GpuState]:
    """GPUs that the driver serves; `Unsupported` without nvidia-smi or GPUs, `Unreadable` for no whole answer."""
    result = ask(host, f"--query-gpu={','.join(FIELDS)}", "--format=csv,noheader,nounits")
    if result.code == 127:
        raise Unsupported(NO_SMI)
    if "No devices were found" in result.out:
        raise Unsupported("nvidia-smi finds no GPU")
    if not result.ok:
        raise Unreadable(f"nvidia-smi: {result.last_line}")
    return [_gpu(line) for line in result.out.splitlines() if line.strip()]


def _gpu(line: str) -> GpuState:
    cells = [cell.strip() for cell in line.split(", ")]
    values = dict(zip(FIELDS, cells))
    if len(cells) != len(FIELDS) or not cells[0].isdigit() or not UUID.fullmatch(values["uuid"]):
        raise Unreadable(f"nvidia-smi printed no row of {len(FIELDS)} values: {line[:120]!r}")
    return GpuState(values)


def gpu(host: Host, uuid: str) -> GpuState | None:
    """The GPU with this UUID; None if the host no longer has it."""
    return next((one for one in gpus(host) if one.uuid == uuid), None)


def change(host: Host, *argv: str) -> str:
    """Run nvidia-smi to change something, and return its output.

    `Unsupported`, `InUse` or RuntimeError with its message if it refuses: its exit code is 0 after some refusals.
    """
    result = host.run("nvidia-smi", *argv, changes=True, limit=CHANGE_LIMIT_S)
    text = f"{result.out}\n{result.err}"
    message = next((line.strip() for line in text.splitlines() if line.strip() and line.strip() not in _BYE), "")
    if IN_USE.lower() in text.lower():
        raise InUse(message)
    if _REFUSAL.search(text):
        raise RuntimeError(message)
    if _WARNING.search(text):
        raise Unsupported(message)
    if not result.ok:
        raise RuntimeError(message or f"nvidia-smi ended with {result.code}")
    return result.out
