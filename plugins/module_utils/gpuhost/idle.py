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
    found = []
    known: dict[tuple[str, ...], dict[str, int]] = {}
    for cpu in online(host):
        base = f"{CPU}/cpu{cpu}/cpuidle"
        names = tuple(host.listdir(base))
        # Latencies are the driver's, alike for all; only a kernel that gives processors drivers of their own says so.
        if names not in known or "driver" in names:
            known[names] = _latencies(host, base, names)
        for name, latency_us in known[names].items():
            off = host.value(f"{base}/{name}/disable") == "1"
            found.append(State(cpu, f"{base}/{name}", latency_us, off))
    return found


def _latencies(host: Host, base: str, names: tuple[str, ...]) -> dict[str, int]:
    """State -> how long it takes to wake from it, in microseconds."""
    texts = {name: host.value(f"{base}/{name}/latency") for name in names if name.startswith("state")}
    return {name: int(text) for name, text in texts.items() if text is not None and text.isdigit()}


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
