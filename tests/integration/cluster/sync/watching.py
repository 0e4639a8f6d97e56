"""What tests and the benchmark of a watch share: hear what it tells, and see in a pod that an edit is there."""

from __future__ import annotations

import time
from collections.abc import Callable

from gpuctl.cluster.sync.model import Outcome

# Waits in the pod itself for a text in a file; so the time until it is there is measured without an exec.
AWAIT = """
import sys, time
print("ready", flush=True)
while open(sys.argv[1]).read() != sys.argv[2]:
    time.sleep(0.005)
print("there", flush=True)
"""


class Heard:
    """What a watch tells."""

    def __init__(self) -> None:
        self.versions: dict[str, int] = {}
        self.latest = 1
        self.lost: list[str] = []

    def changed(self, version: int, _: object) -> None:
        self.latest = version

    def reached(self, outcome: Outcome, version: int) -> None:
        self.versions[outcome.pod] = version

    def away(self, outcome: Outcome) -> None:
        self.lost.append(outcome.pod)


def until(true: Callable[[], object], limit_s: float = 60) -> None:
    """Wait until something is so."""
    end = time.monotonic() + limit_s
    while not true():
        assert time.monotonic() < end
        time.sleep(0.02)
