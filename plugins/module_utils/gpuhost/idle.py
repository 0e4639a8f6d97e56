"""Which idle states of the processors to switch off so that waking up never takes longer than allowed."""

from __future__ import annotations

from typing import NamedTuple

from .host import Host
from .topology import CPU, online


class State(NamedTuple):
    """One idle state of one processor."""

    cpu: int
    folder: str
    latency_us: int
    off: bool

    @property
    def switch(self) -> str:
        """The file that switches it off with a 1."""
        return f"{self.folder}/disable"


def states(host: Host) -> list[State]:
    """Every idle state of every processor at work; a state that says no latency cannot be judged and is left out."""
    return [state for cpu in online(host) for state in _of_cpu(host, cpu)]


def _of_cpu(host: Host, cpu: int) -> list[State]:
    base = f"{CPU}/cpu{cpu}/cpuidle"
    found = []
    for name in host.listdir(base):
        latency = host.value(f"{base}/{name}/latency") if name.startswith("state") else None
        if latency is not None and latency.isdigit():
            off = host.value(f"{base}/{name}/disable") == "1"
            found.append(State(cpu, f"{base}/{name}", int(latency), off))
    return found


def to_switch(host: Host, found: list[State], limit_us: int) -> list[State]:
    """Those that are on and wake too slowly, and those that are off and need not be.

    A state that the kernel itself keeps off, such as C1E beside C1, stays off.
    """
    return [
        state
        for state in found
        if state.off != (state.latency_us > limit_us)
        and not (state.off and host.value(f"{state.folder}/default_status") == "disabled")
    ]
