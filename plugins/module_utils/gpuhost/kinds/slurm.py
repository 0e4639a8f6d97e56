"""Slurm on a node: GPUs in gres.conf, and what cgroup.conf limits jobs to.

Keys: `gres`, with JSON of autodetect, type and cores; `cgroup`, with JSON of fields of cgroup.conf.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from ..model import OK, PENDING, REFUSED, Knob, Reading, Refused, Step, Unreadable, Unsupported
from ..resources import slurm as resource
from ..slurm import configuration, devices, node, rules
from ..slurm.fields import AUTODETECT, CONSTRAIN, CORES, TYPE, TYPES
from ..snapshot import HostSnapshot
from ._common import read_all, settled
from ._types import Type

GRES, CGROUP = "gres.conf", "cgroup.conf"
NEEDS_RESTART = "slurmctld takes new cores and types of GPUs only when it is restarted"
DETECTED = "AutoDetect=nvml\n"
FIELDS = {"gres": (AUTODETECT, TYPE, CORES), "cgroup": tuple(CONSTRAIN)}


class Fields(NamedTuple):
    """A mapping of some fields of `slurm_gres`."""

    names: tuple[str, ...]

    def check(self, value: object) -> str:
        known = value if isinstance(value, Mapping) else json.loads(str(value)) if str(value)[:1] == "{" else None
        if not isinstance(known, Mapping) or not known or set(known) - set(self.names):
            raise ValueError(f"must be a mapping of {', '.join(self.names)}")
        return json.dumps({name: TYPES[name].check(known[name]) for name in self.names if name in known})


def type_of(key: str) -> Type | None:
    """Type of a key's value."""
    return Fields(FIELDS[key]) if key in FIELDS else None


def read(snapshot: HostSnapshot, knobs: Sequence[Knob]) -> list[Reading]:
    """Parts of Slurm's files, and those that they should have."""
    return read_all(snapshot, knobs, _read)


def _read(snapshot: HostSnapshot, knob: Knob) -> Reading:
    host, desired = snapshot.host, json.loads(knob.value)
    slurmd = node.read(host)
    path = slurmd.path(GRES if knob.key == "gres" else CGROUP)
    node.refuse_shared(host, path)
    left = resource.cut_off(host, path)
    present = host.read_or_none(path) or ""
    text = present if left is None else left.text or ""
    offered = devices.devices(host, snapshot.unchanging, desired) if knob.key == "gres" else []
    if knob.key == "gres":
        changes: dict[str, str | None] = {configuration.GPU: _gpu_lines(offered, desired)}
    else:
        changes = _constraints(snapshot, path, text, desired)
    now = configuration.part_texts(text, path)
    steps = tuple(
        Step(f"slurm:{path}:{part}", now.get(part), due) for part, due in changes.items() if now.get(part) != due
    )
    if left is not None:
        steps += _back(present, path, {**now, **changes}, steps)
    parts = [configuration.GPU] if knob.key == "gres" else [CONSTRAIN[name] for name in desired]
    reading = settled(
        knob._replace(value=_shown({**now, **changes}, [*parts, *(part for part in changes if part not in parts)])),
        now=_shown(now, parts),
        boot=_shown(now, parts),
        steps=steps,
        notes=(left.note,) if left is not None else (),
    )
    known = node.at_controller(host, slurmd)
    if known[0] is not None and any(device.cores for device in offered) and desired.get(AUTODETECT) != "nvml":
        devices.refuse_other_cores(host, known[0])
    if steps and (reason := node.why_not(host, slurmd, known)):
        return reading.but(state=REFUSED, steps=(), reason="; ".join([*reading.notes, reason]), notes=())
    if steps:
        after = configuration.replaced(text, {s.setting.rpartition(":")[2]: s.after for s in steps}, path)
        _refuse_what_does_not_start(snapshot, slurmd, {path: after or None}, desired)
    return _with_controller(snapshot, reading, slurmd, known, devices.counts(offered), desired)


def _back(present: str, path: str, due: Mapping[str, str | None], steps: Sequence[Step]) -> tuple[Step, ...]:
    """Steps of parts that a change which was cut off has written, and that are to be as before it."""
    now, known = configuration.part_texts(present, path), {step.setting.rpartition(":")[2] for step in steps}
    parts = [part for part in {**now, **due} if part not in known and now.get(part) != due.get(part)]
    return tuple(Step(f"slurm:{path}:{part}", now.get(part), due.get(part)) for part in parts)


def _gpu_lines(offered: Sequence[devices.Device], desired: Mapping[str, Any]) -> str:
    return DETECTED if desired.get(AUTODETECT) == "nvml" else devices.lines(list(offered))


def _constraints(snapshot: HostSnapshot, path: str, text: str, desired: Mapping[str, Any]) -> dict[str, str | None]:
    """Lines of the fields that differ, and the former lines of those that an earlier run set and this one does not."""
    values, now = configuration.values(text, path), configuration.part_texts(text, path)
    due = {CONSTRAIN[name]: "yes" if value else "no" for name, value in desired.items()}
    changes: dict[str, str | None] = {
        part: f"{part}={word}\n" for part, word in due.items() if values.get(part, "no") != word or part not in now
    }
    for part in configuration.FIELDS:
        owned = snapshot.owned.get(f"slurm:{path}:{part}")
        if part not in due and owned and owned.holds(now.get(part)) and now.get(part) != owned.original:
            changes[part] = owned.original
    return changes


def _shown(texts: Mapping[str, str | None], parts: Sequence[str]) -> str:
    lines = [line for part in parts for line in (texts.get(part) or "").splitlines()]
    return "; ".join(line.partition("#")[0].strip() for line in lines if line.partition("#")[0].strip()) or "not set"


def _refuse_what_does_not_start(
    snapshot: HostSnapshot, slurmd: node.Slurmd, texts: Mapping[str, str | None], desired: Mapping[str, Any]
) -> None:
    proof = node.prove(snapshot.host, slurmd, texts)
    if not proof.fault:
        return
    if desired.get(AUTODETECT) == "nvml" and "lib wasn't found" in proof.output:
        raise Unsupported(f"this slurmd has no NVML ({proof.fault}): set slurm_gres.autodetect to off")
    raise Refused(f"slurmd does not start with it: {proof.fault}")


def _with_controller(  # noqa: PLR0913, PLR0917 - one decision over all that was read
    snapshot: HostSnapshot,
    reading: Reading,
    slurmd: node.Slurmd,
    known: tuple[dict[str, str] | None, str],
    due: Mapping[str, int],
    desired: Mapping[str, Any],
) -> Reading:
    """The reading, refused or pending where slurmctld does not agree with the file, or slurmd has not read it."""
    fields, reason = known
    rest = ""
    if due and fields is not None:
        at_controller = _expected(fields)
        more = rules.excess(due, at_controller, by_type=desired.get(AUTODETECT) != "nvml")
        if more and reading.steps:
            fault = f"{more}: it would drain the node; correct slurm.conf first, or find the lost GPU"
            return reading.but(state=REFUSED, steps=(), reason=fault)
        rest = more or rules.remaining(slurmd.node, due, at_controller)
        if "INVALID_REG" in fields["State"]:  # then Gres is what the node has, not what slurm.conf has
            rest = f"slurmctld calls {slurmd.node} invalid: its log has the reason; compare Gres of slurm.conf"
    elif due:
        rest = f"whether slurmctld expects these GPUs is not known: {reason}"
    if reading.steps:
        restart = NEEDS_RESTART if any(" Cores=" in (step.after or "") for step in reading.steps) else ""
        return reading.but(notes=(*reading.notes, *filter(None, (rest, restart))))
    paths = [slurmd.path(GRES if "gres" in reading.knob else CGROUP)]
    if stale := node.unread_since(snapshot.host, slurmd, paths):
        rest = f"slurmd has run since before {stale} was changed: drain the node, and restart slurmd"
    elif not slurmd.runs:
        rest = rest or f"{node.UNIT} does not run"
    return reading.but(state=PENDING, reason=rest) if rest and reading.state == OK else reading


def _expected(fields: Mapping[str, str]) -> dict[str, int]:
    try:
        return rules.expected(fields.get("Gres", "(null)"))
    except ValueError as error:
        raise Unreadable(str(error)) from error
