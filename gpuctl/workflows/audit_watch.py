"""Audit at intervals: one at a time, the last result for whoever scrapes it, and its age."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from gpuctl.audit import scrape
from gpuctl.audit.scrape import Latest
from gpuctl.core.errors import GpuctlError
from gpuctl.core.paths import write_atomically
from gpuctl.domain.report import Report
from gpuctl.edges import metrics_server

STALE_INTERVALS = 2
GRACE_S = 60.0


@dataclass
class Watch:
    """Audits every `every_s` seconds, each to its end before the next begins.

    `limit_s`: the longest that one node may take. `metrics`: file that is replaced after each audit, None for none.
    """

    audit: Callable[[], Report]
    every_s: float
    limit_s: float
    metrics: Path | None = None
    clock: Callable[[], float] = time.time
    latest: Latest = field(init=False)

    def __post_init__(self) -> None:
        self.latest = Latest(STALE_INTERVALS * self.every_s + self.limit_s + GRACE_S)

    def once(self) -> Report | GpuctlError:
        """One audit; an error if it could not be done. The result before it then stands, until it is stale."""
        started = self.clock()
        try:
            report = self.audit()
        except GpuctlError as error:
            self.latest = self.latest.with_failure()
            self._write()
            return error
        now = self.clock()
        self.latest = self.latest.with_report(report, now, now - started)
        self._write()
        return report

    def text(self) -> str:
        """Metrics at this moment."""
        return scrape.metrics(self.latest, self.clock())

    def pause_s(self, started: float) -> float:
        """Seconds until the next audit; an audit that took longer than the interval is followed at once."""
        return max(0.0, started + self.every_s - self.clock())

    def _write(self) -> None:
        if self.metrics is None:
            return
        try:
            write_atomically(self.metrics, self.text(), 0o644)  # the collector runs as another user
        except OSError as error:
            raise GpuctlError(f"write metrics to {self.metrics}", error.strerror or str(error)) from error


@contextmanager
def serving(watch: Watch, address: str) -> Iterator[str]:
    """Serve the metrics of the watch; yields where. `address`: "" serves nothing."""
    if not address:
        yield ""
        return
    host, port = metrics_server.address(address)
    with metrics_server.serving((host, port), watch.text) as bound:
        shown = f"[{host}]" if ":" in host else host
        yield f"http://{shown}:{bound}/metrics"


def is_public(address: str) -> bool:
    """True if other machines can read what is served there; `InvalidInput` for a bad address."""
    return not metrics_server.is_loopback(metrics_server.address(address)[0])
