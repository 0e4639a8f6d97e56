"""Choose the processors' idle states (C-states) to disable, so that waking up never exceeds a latency."""

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
        """The file that disables the state when it holds 1."""
        return f"{self.folder}/disable"


def states(host: Host) -> list[State]:
    """Idle states of all online processors, without those that have no latency."""
    idle_states = []
    known: dict[tuple[str, ...], dict[str, int]] = {}
    for cpu in online(host):
        base = f"{CPU}/cpu{cpu}/cpuidle"
        names = tuple(host.listdir(base))
        # All processors have the same latencies, except on kernels with one cpuidle driver per processor.
        if names not in known or "driver" in names:
            known[names] = _latencies(host, base, names)
        for name, latency_us in known[names].items():
            off = host.value(f"{base}/{name}/disable") == "1"
            idle_states.append(State(cpu, f"{base}/{name}", latency_us, off))
    return idle_states


def _latencies(host: Host, base: str, names: tuple[str, ...]) -> dict[str, int]:
    """State -> exit latency in microseconds."""
    texts = {name: host.value(f"{base}/{name}/latency") for name in names if name.startswith("state")}
    return {name: int(text) for name, text in texts.items() if text is not None and text.isdigit()}


def to_switch(host: Host, idle_states: list[State], limit_us: int) -> list[State]:
    """States to toggle: enabled ones that wake too slowly, and disabled ones that are fast enough.

    A state that the kernel disables by default, such as C1E beside C1, stays disabled.
    """
    return [
        state
        for state in idle_states
        if state.off != (state.latency_us > limit_us)
        and not (state.off and host.value(f"{state.folder}/default_status") == "disabled")
    ]
