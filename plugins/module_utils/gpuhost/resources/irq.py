"""Affinity of one interrupt of a PCI device: "irq:0000:10:1c.0:3" is the device's fourth vector, text "0-31".

Named by device, as IRQ numbers change with every boot and driver reload.
"""

from __future__ import annotations

import errno

from ..host import Host
from ..model import Unsupported
from ..topology import as_list, cpus_of, irqs


class Irq:
    """One interrupt vector of one device."""

    def __init__(self, place: str) -> None:
        self.address, _, vector = place.rpartition(":")
        self.vector = int(vector)

    def path(self, host: Host) -> str | None:
        numbers = irqs(host, self.address)
        return f"/proc/irq/{numbers[self.vector]}/smp_affinity_list" if self.vector < len(numbers) else None

    def read(self, host: Host) -> str | None:
        path = self.path(host)
        text = host.value(path) if path else None
        return None if text is None else as_list(cpus_of(text))

    def write(self, host: Host, text: str | None) -> None:
        path = self.path(host)
        if path is None or text is None:
            raise RuntimeError(f"{self.address} no longer has vector {self.vector}")
        try:
            host.write(path, text)
        except OSError as error:
            if error.errno == errno.EIO:
                raise Unsupported("the kernel manages this interrupt itself (EIO)") from error
            raise
