"""One setting of one GPU: "gpu:GPU-3f1c0000-0000-4000-8000-000000000000:power_limit", text "500"."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from .. import clock_locks, mig_layout, smi
from ..facts import device_holders
from ..gpu_boot import MODES, SWITCHES
from ..host import Host
from ..model import Unsupported


class Gpu:
    """One setting of one GPU; None if the host no longer has the GPU, or for clocks that are not locked."""

    def __init__(self, place: str) -> None:
        self.uuid, _, self.aspect = place.partition(":")

    def read(self, host: Host) -> str | None:
        gpu = smi.gpu(host, self.uuid)
        return None if gpu is None else READERS[self.aspect](host, gpu)

    def write(self, host: Host, text: str | None) -> None:
        gpu = smi.gpu(host, self.uuid)
        if gpu is None:
            raise RuntimeError(f"{self.uuid} is not listed by nvidia-smi any more")
        if self.aspect in clock_locks.OPTIONS:
            clock_locks.write(host, gpu, self.aspect, text)
        elif text is None:
            raise RuntimeError(f"{self.aspect} of a GPU cannot be removed")
        elif self.aspect == "mig":
            self._write_mig(host, gpu, text)
        else:
            smi.change(host, "-i", gpu.uuid, *OPTIONS[self.aspect](text))

    def _write_mig(self, host: Host, gpu: smi.GpuState, text: str) -> None:
        before = {aspect: _read_if_any(host, gpu, aspect) for aspect in LOST_BY_RESET}
        try:
            mig_layout.write(host, gpu, text)
        except smi.InUse as error:
            holders = device_holders.of_gpu(host, gpu.uuid) or ["a program that this host does not show"]
            raise RuntimeError(f"{error}: held by {', '.join(holders)}; end it first") from error
        finally:
            self._put_back(host, before)

    def _put_back(self, host: Host, before: Mapping[str, str | None]) -> None:
        """Set again what a change of the MIG mode has lost, as it may reset the GPU."""
        gpu = smi.gpu(host, self.uuid)
        clock_locks.forget(host, self.uuid)
        for aspect, text in before.items():
            if gpu is not None and text is not None and _read_if_any(host, gpu, aspect) != text:
                Gpu(f"{self.uuid}:{aspect}").write(host, text)


def _read_if_any(host: Host, gpu: smi.GpuState, aspect: str) -> str | None:
    """A setting's text; None if the GPU has no such setting."""
    try:
        return READERS[aspect](host, gpu)
    except Unsupported:
        return None


def _switch(field: str) -> Callable[[Host, smi.GpuState], str]:
    return lambda _, gpu: "on" if gpu.value(field) == "Enabled" else "off"


def _clock(clock: str) -> Callable[[Host, smi.GpuState], str | None]:
    return lambda host, gpu: clock_locks.read(host, gpu, clock)


READERS: Mapping[str, Callable[[Host, smi.GpuState], str | None]] = {
    "persistence": _switch("persistence_mode"),
    "power_limit": lambda _, gpu: str(gpu.number("power.limit")),
    "compute_mode": lambda _, gpu: gpu.value("compute_mode").lower(),
    "ecc": _switch("ecc.mode.pending"),
    "graphics_clock": _clock("graphics_clock"),
    "memory_clock": _clock("memory_clock"),
    "mig": mig_layout.read,
}
LOST_BY_RESET = ("persistence", "power_limit", "graphics_clock", "memory_clock", "compute_mode")
OPTIONS: Mapping[str, Callable[[str], tuple[str, str]]] = {
    "persistence": lambda text: ("-pm", SWITCHES[text][0]),
    "power_limit": lambda text: ("-pl", text),
    "compute_mode": lambda text: ("-c", MODES[text][0]),
    "ecc": lambda text: ("-e", SWITCHES[text][0]),
}
