"""The part efa of the stack: version and kind of the installation, its modules, and the proof by libfabric."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ..efa import source, state
from ..efa.state import State
from ..host import Host
from ..model import FAILED, Knob, Reading, Refused, Step
from ..resources import efa
from ..resources.file import described
from ..snapshot import HostSnapshot
from ._common import settled


def read(snapshot: HostSnapshot, knob: Knob, row: Mapping[str, Any], *, driver_changes: bool = False) -> Reading:
    """State of EFA. `row`: `version`, `minimal`, `uri` and `fingerprints` (see `source.Source`).

    `driver_changes`: NVIDIA's module will be another one, against which a module of EFA is built.
    """
    host, now = snapshot.host, state.read(snapshot.host)
    desired = state.text_of(row["version"], minimal=row["minimal"])
    where = source.Source(row["uri"], tuple(row["fingerprints"]))
    steps: tuple[Step, ...] = ()
    due = now.text != desired or (driver_changes and now.peer_memory)
    if due:
        if (now.half or now.whole != desired) and not host.which(source.VERIFIER):
            raise Refused(f"{source.VERIFIER} is not on this host, so no signature can be checked: install it")
        steps = (*snapshot.step(f"file:{source.PATH}", described(where.text)), Step(efa.SETTING, now.whole, desired))
    elif host.exists(source.PATH):
        steps = snapshot.step(f"file:{source.PATH}", described(where.text))
    reading = settled(
        knob,
        now=_shown(now),
        steps=steps,
        reboot=bool(not due and _pending(host, now)),
        notes=_notes(host, now, where, desired) if due else _pending(host, now),
        disruptive="reloads the EFA driver under running programs" if due and host.exists(state.MODULE) else "",
    )
    wrong = "" if due or _pending(host, now) else _unproved(host, now)
    return reading.but(state=FAILED, reason=wrong) if wrong else reading


def _shown(now: State) -> str:
    if now.wrong:
        return f"{now.version or 'no version'}, {'half installed' if now.half else 'without its module'}"
    return now.text or "absent"


def _pending(host: Host, now: State) -> Sequence[str]:
    """Why the driver is not in use before a reboot; empty if it is, or if no device needs it."""
    if not state.devices(host):
        return ()
    if not host.exists(state.MODULE):
        return ("the module efa is not loaded: modprobe efa, or reboot",)
    running = host.value(f"{state.MODULE}/version") or "the kernel's own"
    return () if not now.driver or running == now.driver else (f"the running module efa is {running} until a reboot",)


def _unproved(host: Host, now: State) -> str:
    """Why libfabric does not offer every device; "" if it does, or if it was not to be installed."""
    devices = state.devices(host)
    if now.minimal or not devices:
        return ""
    offered, why = state.offered_devices(host)
    if offered is None:
        return f"whether libfabric offers the devices is not known: {why}"
    return "" if offered >= devices else f"libfabric offers {offered} of {devices} EFA devices (fi_info -p efa)"


def _notes(host: Host, now: State, where: source.Source, desired: str) -> tuple[str, ...]:
    """Reasons for the change, and everything that rollback will not put back."""
    notes = list(now.wrong)
    if now.version and now.whole != desired:
        notes.append(f"rollback installs {now.whole} again, if {where.uri} still has it")
    if now.version:
        return tuple(notes)
    replaced = [
        f"{name} {version}"
        for name, version in state.packages(host).items()
        if state.RDMA.fullmatch(name) and not state.from_aws(name, version)
    ]
    if replaced:
        more = " …" if len(replaced) > 4 else ""
        notes.append(f"rollback may not put back what the installer replaces: {', '.join(replaced[:4])}{more}")
    notes.append("rollback leaves what the installer fetches for itself, such as dkms and headers of kernels")
    return tuple(notes)
