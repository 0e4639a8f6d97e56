"""Which malloc a running service has: "restart:trainer.service" holds "jemalloc". To change it is to start it anew."""

from __future__ import annotations

import time

from ..host import Host
from ..model import Unsupported
from .services import malloc_of, services

STEADY = 1.0  # seconds for which a service must run without dying, so that it counts as running
PATIENCE = 10.0


class Restart:
    """One service; its text is the malloc of its main process, None where it does not run."""

    def __init__(self, unit: str) -> None:
        self.unit = unit

    def read(self, host: Host) -> str | None:
        return self._now(host)[1]

    def write(self, host: Host, text: str | None) -> None:
        # systemd starts a service that has died several times in a row only after that is forgotten.
        host.run("systemctl", "reset-failed", "--", self.unit, changes=True)
        done = host.run("systemctl", "restart", "--", self.unit, changes=True, limit=300)
        held = self._once_steady(host) if done.ok else None
        if held is None:
            raise RuntimeError(f"{self.unit} does not run with {text}{'' if done.ok else f': {done.said}'}")
        if held != text:
            raise Unsupported(f"{self.unit} was started anew and still runs with {held}")

    def _once_steady(self, host: Host) -> str | None:
        """What it runs with once one process of it has lasted a while, or none has."""
        began = since = time.monotonic()
        seen = self._now(host)
        while time.monotonic() - since < STEADY and time.monotonic() - began < PATIENCE:
            time.sleep(0.1)
            now = self._now(host)
            if now != seen:
                seen, since = now, time.monotonic()
        return seen[1] if time.monotonic() - since >= STEADY else None

    def _now(self, host: Host) -> tuple[str, str | None]:
        (service,) = services(host, self.unit)
        return service.pid, malloc_of(host, service.pid)
