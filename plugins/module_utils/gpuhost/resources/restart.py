"""The malloc of a running service: "restart:trainer.service", text "jemalloc". A change restarts the service."""

from __future__ import annotations

import time

from ..host import Host
from ..model import Unsupported
from .services import malloc_of, services

STEADY = 1.0  # seconds without an exit after which a service counts as running
PATIENCE = 10.0


class Restart:
    """One service; its text is the malloc of its main process, None if it does not run."""

    def __init__(self, unit: str) -> None:
        self.unit = unit

    def read(self, host: Host) -> str | None:
        return self._now(host)[1]

    def write(self, host: Host, text: str | None) -> None:
        # systemd does not start a service that failed several times in a row, until that count is reset.
        host.run("systemctl", "reset-failed", "--", self.unit, changes=True)
        done = host.run("systemctl", "restart", "--", self.unit, changes=True, limit=300)
        malloc = self._once_steady(host) if done.ok else None
        if malloc is None:
            raise RuntimeError(f"{self.unit} does not run with {text}{'' if done.ok else f': {done.last_line}'}")
        if malloc != text:
            raise Unsupported(f"{self.unit} was restarted and still runs with {malloc}")

    def _once_steady(self, host: Host) -> str | None:
        """The malloc once one main process has run for STEADY seconds; None if none does within PATIENCE."""
        began = since = time.monotonic()
        current = self._now(host)
        while time.monotonic() - since < STEADY and time.monotonic() - began < PATIENCE:
            time.sleep(0.1)
            now = self._now(host)
            if now != current:
                current, since = now, time.monotonic()
        return current[1] if time.monotonic() - since >= STEADY else None

    def _now(self, host: Host) -> tuple[str, str | None]:
        (service,) = services(host, self.unit)
        return service.pid, malloc_of(host, service.pid)
