"""The knob irq.balance: irqbalance off, or running with a policy for the affinity hints of drivers."""

from __future__ import annotations

import re

from ..irqbalance import OURS, SERVICE, command, knows_hint_policies, policy_of, runs, switched_on, unit_file
from ..model import Conflict, Knob, Reading, Step, Unsupported
from ..resources.file import described
from ..resources.unit import show
from ..snapshot import HostSnapshot
from ._common import settled

BOOT, NOW = f"unit:{SERVICE}:boot", f"unit:{SERVICE}:now"
DROP_IN = """# Written by gpuctl; `gpuctl rollback` takes it back.
[Service]
ExecStart=
ExecStart={command} --hintpolicy={policy}
"""


def balance(snapshot: HostSnapshot, knob: Knob) -> Reading:
    """State of irqbalance now and at the next boot; queries systemd only if files show a difference."""
    unit = unit_file(snapshot.host)
    if unit is None:
        if knob.value == "off":
            return settled(knob, now="not installed", boot="not installed")
        raise Unsupported("irqbalance is not installed on this host")
    return _off(snapshot, knob) if knob.value == "off" else _on(snapshot, knob, unit)


def _off(snapshot: HostSnapshot, knob: Knob) -> Reading:
    starts, runs_now = bool(switched_on(snapshot.host)), runs(snapshot.host)
    steps: tuple[Step, ...] = ()
    if starts or runs_now:
        properties = show(snapshot.host, SERVICE)[SERVICE]
        steps += (Step(BOOT, properties["UnitFileState"], "disabled"),) if starts else ()
        steps += (Step(NOW, properties["ActiveState"], "inactive"),) if runs_now else ()
    others = _starters(snapshot)
    sides = {"now": "running" if runs_now else "off", "boot": "enabled" if starts else "off"}
    return settled(knob, **sides, steps=steps, conflicts=tuple(others))


def _starters(snapshot: HostSnapshot) -> list[Conflict]:
    """Owners whose command lines start it again."""
    mentions = snapshot.owners.mentions("\0", "irqbalance")
    return [rival for rival in mentions if re.search(r"\b(enable|start|restart)\b", rival.value)]


def _on(snapshot: HostSnapshot, knob: Knob, unit: str) -> Reading:
    host, policy = snapshot.host, str(knob.value)
    line = command(host, unit)
    hints = knows_hint_policies(host, line)
    if not hints and policy != "ignore":
        raise Unsupported("this irqbalance always ignores hints (it has no --hintpolicy); irq.affinity pins interrupts")
    starts, runs_now = bool(switched_on(host)), runs(host)
    follows = policy
    steps: tuple[Step, ...] = ()
    if hints:
        steps += snapshot.step(f"file:{OURS}", described(DROP_IN.format(command=line, policy=policy)))
    if hints or not (starts and runs_now):
        properties = show(host, SERVICE)[SERVICE]
        steps += (Step(BOOT, properties["UnitFileState"], "enabled"),) if not starts else ()
        steps += (Step(NOW, properties["ActiveState"], "active"),) if not runs_now else ()
        if hints and runs_now:
            follows = policy_of(_arguments(snapshot, properties["MainPID"]))
    return settled(
        knob,
        now=follows if runs_now else "off",
        boot=_at_boot(snapshot, starts, hints) if steps else policy,
        steps=steps,
        refresh=("irqbalance",) if follows != policy else (),
        disruptive="irqbalance moves interrupts of running devices" if follows != policy or not runs_now else "",
    )


def _at_boot(snapshot: HostSnapshot, starts: bool, hints: bool) -> str:
    if not starts:
        return "off"
    return policy_of(snapshot.host.read_or_none(OURS) or "") if hints else "ignore"


def _arguments(snapshot: HostSnapshot, pid: str) -> str:
    return (snapshot.host.read_or_none(f"/proc/{pid}/cmdline") or "").replace("\0", " ")
