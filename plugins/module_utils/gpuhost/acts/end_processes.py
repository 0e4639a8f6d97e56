"""End processes that were shown to somebody. No other process gets a signal, whatever became of their pids since.

A pidfd is opened first and the start time compared after that, so that the descriptor is the shown process or none. On
kernels before 5.3 the comparison comes right before each signal.
"""

from __future__ import annotations

import os
import select
import signal
import time
from collections.abc import Mapping, Sequence
from typing import Any

from ..facts import process_details
from ..host import Host

KILL_S = 5.0  # for the kernel to free the memory of a killed process
PAUSE_S = 0.05
DRIFT_S = 2  # the kernel's time of the boot moves with the clock
NAME_LENGTH = 15  # the kernel truncates names of programs to this
# Ending one of these harms everybody on the node; all clients of an MPS server die with it.
NEVER = frozenset(
    name[:NAME_LENGTH]
    for name in (
        *("nvidia-persistenced", "nv-hostengine", "nvidia-cuda-mps-control", "nvidia-cuda-mps-server"),
        *("nv-fabricmanager", "nvidia-imex", "nvlsm", "nvsm", "dcgm-exporter", "nvidia-device-plugin"),
        *("Xorg", "Xwayland", "gnome-shell", "dbus-daemon"),
        *("systemd", "systemd-logind", "init", "sshd", "sshd-session"),
        *("slurmd", "slurmstepd", "slurmctld", "munged", "kubelet", "containerd", "containerd-shim", "dockerd", "crio"),
        *("conmon", "runc", "crun"),
    )
)
BLOCKED, ZOMBIE = "D", "Z"
ONLY_RESET = "it waits in the kernel (state D) and ignores signals: only a reset of the GPU or a reboot helps"


class Signals:
    """Signals by pidfd, or by pid on kernels without it."""

    def open(self, pid: int) -> int | None:
        """Descriptor of a process; None without pidfds. ProcessLookupError if it does not exist."""
        if not hasattr(os, "pidfd_open") or not hasattr(signal, "pidfd_send_signal"):
            return None
        try:
            return os.pidfd_open(pid)
        except ProcessLookupError:
            raise
        except OSError:  # ENOSYS, or a filter of system calls
            return None

    def send(self, pid: int, descriptor: int | None, number: int) -> None:
        """OSError if the process does not exist any more, or is not ours to end."""
        if descriptor is None:
            os.kill(pid, number)
        else:
            signal.pidfd_send_signal(descriptor, number)

    def has_exited(self, descriptor: int) -> bool:
        poll = select.poll()
        poll.register(descriptor, select.POLLIN)
        return bool(poll.poll(0))

    def close(self, descriptor: int) -> None:
        os.close(descriptor)


class Victim:
    """A shown process, and what became of it. `state`: see `answer_types.ProcessEnd`."""

    def __init__(self, shown: Mapping[str, Any]) -> None:
        self.shown, self.pid = shown, int(shown["pid"])
        self.descriptor: int | None = None
        self.state, self.reason = "runs", ""
        self.signals: list[str] = []

    def row(self) -> dict[str, Any]:
        return {"pid": self.pid, "state": self.state, "reason": self.reason, "signals": self.signals}


def run(host: Host, request: Mapping[str, Any], signals: Signals | None = None) -> dict[str, Any]:
    """{processes, by_descriptor}: state of each shown process, see `answer_types.ProcessEnds`.

    Request: `processes` [{pid, start_ticks, since, uid, cgroup}] as facts of this host had them, `grace_s`, `check`. If
    one of them is another process now, or must not be ended, none gets a signal.
    """
    signals = signals or Signals()
    boot = process_details.boot_time(host)
    victims = [Victim(shown) for shown in request["processes"]]
    try:
        for victim in victims:
            _compare(host, victim, boot, signals)
        if not request.get("check") and all(victim.state in ("runs", "gone") for victim in victims):
            _end(host, victims, float(request["grace_s"]), signals)
        return {
            "processes": [victim.row() for victim in victims],
            "by_descriptor": any(victim.descriptor is not None for victim in victims),
        }
    finally:
        for victim in victims:
            if victim.descriptor is not None:
                signals.close(victim.descriptor)


def _compare(host: Host, victim: Victim, boot: int | None, signals: Signals) -> None:
    """Open the process, then compare what has its pid with what was shown."""
    try:
        victim.descriptor = signals.open(victim.pid)
        now = process_details.read(host, victim.pid, boot)
    except ProcessLookupError:
        now = None
    except OSError as error:
        victim.state, victim.reason = "changed", f"it cannot be read any more: {error.strerror}"
        return
    if now is None or now["state"] == ZOMBIE:
        victim.state = "gone"
        victim.reason = "" if now is None else "it has ended; its parent has not collected it yet"
    elif difference := differs(victim.shown, now):
        victim.state, victim.reason = "changed", difference
    elif victim.pid in (1, os.getpid()) or now["name"] in NEVER:
        victim.state, victim.reason = "refused", f"{now['name']} serves everybody on this node"


def differs(shown: Mapping[str, Any], now: Mapping[str, Any]) -> str:
    """Difference of a process from the shown one; "" if it is the same, with the same owner."""
    name = f"pid {shown['pid']} is {now['name']} now"
    since = (shown["since"], now["since"])
    if shown["start_ticks"] is None or shown["start_ticks"] != now["start_ticks"]:
        return f"{name}, which started at another time: the pid was used again"
    if None in since or abs(since[0] - since[1]) > DRIFT_S:
        return f"{name}, which started at another time: the node was restarted"
    if shown["uid"] != now["uid"]:
        return f"{name}, and runs as another user"
    return (
        "" if shown["cgroup"] == now["cgroup"] else f"{name}, and belongs to somebody else: its control group changed"
    )


def _end(host: Host, victims: Sequence[Victim], grace_s: float, signals: Signals) -> None:
    """TERM, wait, KILL, wait."""
    for number, wait_s, state in ((signal.SIGTERM, grace_s, "ended"), (signal.SIGKILL, KILL_S, "killed")):
        sent = [victim for victim in victims if victim.state == "runs" and _send(host, victim, number, signals)]
        _wait(host, sent, wait_s, state, signals)
    for victim in victims:
        if victim.state == "runs":
            now = process_details.read(host, victim.pid, None)
            victim.state = "left"
            victim.reason = ONLY_RESET if now and now["state"] == BLOCKED else "it is still there after SIGKILL"


def _send(host: Host, victim: Victim, number: signal.Signals, signals: Signals) -> bool:
    """Send a signal; False if that is not possible any more, with the reason as the state."""
    if victim.descriptor is None and _is_gone(host, victim, signals):
        victim.state = "gone"
        return False
    try:
        signals.send(victim.pid, victim.descriptor, number)
    except ProcessLookupError:
        victim.state = "ended" if victim.signals else "gone"
        return False
    except PermissionError:
        victim.state, victim.reason = "denied", "it is another user's, and we are not root"
        return False
    victim.signals.append(number.name[3:])
    return True


def _wait(host: Host, sent: Sequence[Victim], wait_s: float, state: str, signals: Signals) -> None:
    end = time.monotonic() + wait_s
    while True:
        for victim in sent:
            if victim.state == "runs" and _is_gone(host, victim, signals):
                victim.state = state
        if time.monotonic() > end or all(victim.state != "runs" for victim in sent):
            return
        time.sleep(PAUSE_S)


def _is_gone(host: Host, victim: Victim, signals: Signals) -> bool:
    """True if the shown process has exited, also if another one has its pid."""
    if victim.descriptor is not None:
        return signals.has_exited(victim.descriptor)
    try:
        now = process_details.read(host, victim.pid, None)
    except OSError:
        return False
    return now is None or now["state"] == ZOMBIE or now["start_ticks"] != victim.shown["start_ticks"]
