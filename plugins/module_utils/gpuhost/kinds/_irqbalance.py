"""The knob irq.balance: irqbalance off, or running with a policy for the hints that drivers give."""

from __future__ import annotations

import re

from ..irqbalance import OURS, SERVICE, command, knows_hint_policies, policy_of, runs, switched_on, unit_file
from ..model import Conflict, Knob, Reading, Step, Unsupported
from ..resources.file import described
from ..resources.unit import show
from ..snapshot import View
from ._common import settled

BOOT, NOW = f"unit:{SERVICE}:boot", f"unit:{SERVICE}:now"
DROP_IN = """# Written by gpuctl; `gpuctl rollback` takes it back.
[Service]
ExecStart=
ExecStart={command} --hintpolicy={policy}
"""


def balance(view: View, knob: Knob) -> Reading:
    """What irqbalance does now and at the next boot. systemd is asked only where files show something to do."""
    unit = unit_file(view.host)
    if unit is None:
        if knob.value == "off":
            return settled(knob, now="not installed", boot="not installed")
        raise Unsupported("irqbalance is not installed on this host")
    return _off(view, knob) if knob.value == "off" else _on(view, knob, unit)


def _off(view: View, knob: Knob) -> Reading:
    starts, runs_now = bool(switched_on(view.host)), runs(view.host)
    steps: tuple[Step, ...] = ()
    if starts or runs_now:
        found = show(view.host, SERVICE)[SERVICE]
        steps += (Step(BOOT, found["UnitFileState"], "disabled"),) if starts else ()
        steps += (Step(NOW, found["ActiveState"], "inactive"),) if runs_now else ()
    others = _starters(view)
    sides = {"now": "running" if runs_now else "off", "boot": "enabled" if starts else "off"}
    return settled(knob, **sides, steps=steps, conflicts=tuple(others))


def _starters(view: View) -> list[Conflict]:
    """Others whose command lines start it again."""
    said = view.owners.mentions("\0", "irqbalance")
    return [rival for rival in said if re.search(r"\b(enable|start|restart)\b", rival.value)]


def _on(view: View, knob: Knob, unit: str) -> Reading:
    host, policy = view.host, str(knob.value)
    line = command(host, unit)
    hints = knows_hint_policies(host, line)
    if not hints and policy != "ignore":
        raise Unsupported("this irqbalance always ignores hints (it has no --hintpolicy); irq.affinity pins interrupts")
    starts, runs_now = bool(switched_on(host)), runs(host)
    follows = policy
    steps: tuple[Step, ...] = ()
    if hints:
        steps += view.step(f"file:{OURS}", described(DROP_IN.format(command=line, policy=policy)))
    if hints or not (starts and runs_now):
        found = show(host, SERVICE)[SERVICE]
        steps += (Step(BOOT, found["UnitFileState"], "enabled"),) if not starts else ()
        steps += (Step(NOW, found["ActiveState"], "active"),) if not runs_now else ()
        if hints and runs_now:
            follows = policy_of(_arguments(view, found["MainPID"]))
    return settled(
        knob,
        now=follows if runs_now else "off",
        boot=_at_boot(view, starts, hints) if steps else policy,
        steps=steps,
        refresh=("irqbalance",) if follows != policy else (),
        disruptive="irqbalance moves interrupts of running devices" if follows != policy or not runs_now else "",
    )


def _at_boot(view: View, starts: bool, hints: bool) -> str:
    if not starts:
        return "off"
    return policy_of(view.host.read_or_none(OURS) or "") if hints else "ignore"


def _arguments(view: View, pid: str) -> str:
    return (view.host.read_or_none(f"/proc/{pid}/cmdline") or "").replace("\0", " ")
