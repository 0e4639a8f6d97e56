"""Plan the undo of settings: back to their values before gpuctl, except those that somebody else has changed since."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import groupby

from .host import Host
from .kinds import BOOT_PROGRAMS
from .model import CONFLICT, DIFFERS, OK, REFUSED, UNKNOWN, Reading, Step, Unreadable, Unsupported
from .record import PACKAGES, Owned
from .resources import file_of, make, refresh_after, show
from .resources.unit import HARMLESS
from .snapshot import HostSnapshot

# Undoing these disturbs running jobs.
DISTURBS = {
    "irq": "moves interrupts of running devices",
    "restart": "restarts services",
    "deb": "changes packages of the GPUs' software",
    "rpm": "changes packages of the GPUs' software",
    "efa": "reloads the EFA driver under running programs",
}
LISTS, RENEW = "the host has no package lists of dnf", "run `dnf makecache` on it"
UNREADABLE = (OSError, ValueError, Unreadable, Unsupported)
# A folder stays while it holds files of others; a module goes with its package.
NOT_COMPARED = ("restart:", "folder:", "module:")


def plan(snapshot: HostSnapshot, owned: Mapping[str, Owned], force: bool = False) -> list[Reading]:
    """One reading per knob. With `force`, settings that somebody else changed are undone too."""
    by_knob = sorted(
        (entry for entry in owned.values() if not _still_needed(snapshot, entry, owned)),
        key=lambda entry: entry.knob,
    )
    return [
        _of_knob(snapshot, name, list(group), force) for name, group in groupby(by_knob, key=lambda entry: entry.knob)
    ]


def _still_needed(snapshot: HostSnapshot, entry: Owned, owned: Mapping[str, Owned]) -> bool:
    """True for a setting that several knobs share while one of them stays: it goes with the last one."""
    staying = {other.knob.partition(".")[0] for setting, other in snapshot.owned.items() if setting not in owned}
    if entry.setting.startswith("folder:"):
        inside = f"{entry.setting.partition(':')[2]}/"
        return any(file_of(setting).startswith(inside) for setting in snapshot.owned if setting not in owned)
    for program, kinds in BOOT_PROGRAMS.items():
        if entry.knob == program.name:
            return bool(staying & kinds)
    return entry.setting.startswith("package:") and entry.knob.partition(".")[0] in staying


def _of_knob(snapshot: HostSnapshot, knob: str, owned: list[Owned], force: bool) -> Reading:
    steps, strangers = [], []
    packages = _packages(snapshot.host, owned)
    for entry in owned:
        try:
            now = _text_now(snapshot, entry, packages)
        except UNREADABLE as error:
            return Reading(
                knob, "as before", state=UNKNOWN, reason=f"cannot read {entry.setting}: {error}", restores=True
            )
        if now == entry.original or went_away(entry.setting, now):
            steps += _closing(entry, now)
            continue
        if not entry.holds(now):
            strangers.append(f"{entry.setting} is {show(now)}, neither ours ({show(entry.ours[-1])}) nor what it was")
        if entry.holds(now) or force:
            steps.append(Step(entry.setting, now, entry.original))
    if strangers and not force:
        reason = "somebody else changed it: " + "; ".join(strangers) + " (--force undoes it)"
        return Reading(knob, "as before", state=CONFLICT, reason=reason, restores=True)
    if reason := _unavailable(snapshot.host, steps):
        return Reading(knob, "as before", now=_now(steps), state=REFUSED, reason=reason, restores=True)
    return _to_restore(snapshot.host, knob, steps)


def _closing(entry: Owned, now: str | None) -> list[Step]:
    """A step without a change, after which the refresh runs and the record of an interrupted undo is closed."""
    unfinished = entry.interrupted or (entry.unsure and refresh_after(entry.setting))
    return [Step(entry.setting, now, now)] if unfinished and now == entry.original else []


def _to_restore(host: Host, knob: str, steps: list[Step]) -> Reading:
    state = DIFFERS if steps else OK
    disturbs = "; ".join(sorted({_disturbs(host, step) for step in steps} - {""}))
    return Reading(
        knob, "as before", now=_now(steps), state=state, steps=tuple(steps), disruptive=disturbs, restores=True
    )


def _text_now(snapshot: HostSnapshot, entry: Owned, packages: Mapping[str, str | None]) -> str | None:
    return packages[entry.setting] if entry.setting in packages else snapshot.now(entry.setting)


def _packages(host: Host, owned: list[Owned]) -> dict[str, str | None]:
    """Texts of the packages by setting, by one query; empty if it fails, as each is then read alone."""
    texts: dict[str, str | None] = {}
    if not any(entry.setting.startswith(PACKAGES) for entry in owned):
        return texts
    from .resources import deb, rpm_packages

    for kind, states in (("deb", deb.states), ("rpm", rpm_packages.states)):
        names = [entry.setting.partition(":")[2] for entry in owned if entry.setting.startswith(f"{kind}:")]
        try:
            texts.update({f"{kind}:{name}": text for name, text in states(host, names).items()} if names else {})
        except UNREADABLE:
            return {}
    return texts


def _unavailable(host: Host, steps: list[Step]) -> str:
    """Why the earlier version of a package, or of EFA, cannot be had, or a node is not drained; "" if all can."""
    for step in steps:
        if reason := _why_not_now(host, step):
            return reason
    packages = [step for step in steps if step.setting.startswith(PACKAGES)]
    return _why_not_offered(host, packages) if packages else ""


def _why_not_now(host: Host, step: Step) -> str:
    kind = step.setting.partition(":")[0]
    if kind == "kubelet":
        from .resources import kubelet

        return kubelet.unavailable(host)
    if kind == "slurm":
        from .resources import slurm

        return slurm.unavailable(host)
    if kind == "efa":
        from .resources import efa

        return efa.unavailable(host, step)
    return ""


def _why_not_offered(host: Host, packages: Sequence[Step]) -> str:
    from .facts import package_lists
    from .resources import deb

    earlier = {
        step.setting.partition(":")[2].partition("=")[0]: version
        for step in packages
        if (version := deb.version_of(step.after)) != deb.version_of(step.before)
    }
    earlier = {name: version for name, version in earlier.items() if version}
    by_dnf = package_lists.manager(host) == "dnf"
    if earlier and by_dnf and package_lists.age_days(host, 0.0) is None:
        return f"{LISTS}: {RENEW}"
    try:
        offered = package_lists.offered(host, [*earlier], "") if earlier else {}
    except OSError as error:
        if not by_dnf:
            raise
        return f"{LISTS} that can be read ({error.strerror}): {RENEW}"
    missing = [f"{name} {version}" for name, version in earlier.items() if version not in offered[name]]
    if not missing:
        return ""
    shown = ", ".join(missing[:4]) + (" …" if len(missing) > 4 else "")
    renew = f"{RENEW}, " if by_dnf else ""
    return f"no repository of this host has {shown} any more: {renew}add one that has, or keep what there is"


def went_away(setting: str, now: str | None) -> bool:
    """True if the object itself is gone (a processor, an interrupt, a process), so there is nothing to undo."""
    return now is None and setting.startswith(("value:", "irq:", "restart:", "gpu:"))


def _disturbs(host: Host, step: Step) -> str:
    kind, _, rest = step.setting.partition(":")
    if kind == "mps":
        from .resources import mps

        users = mps.clients(host, rest) if step.before is not None else []
        return f"stops MPS {rest}" + (f", used by {', '.join(users)}" if users else "")
    if kind == "gpu":
        return "changes MIG instances" if rest.endswith(":mig") else ""
    unit, _, side = rest.rpartition(":")
    if kind == "unit" and side == "now" and step.after == "inactive" and not unit.endswith(HARMLESS):
        return f"stops {unit}"
    return DISTURBS.get(kind, "")


def undo_error(host: Host, step: Step) -> str:
    """Why an undone setting does not have its value; empty if it has, or if it cannot be compared."""
    if step.setting.startswith(NOT_COMPARED):
        return ""
    try:
        now = make(step.setting).read(host)
    except UNREADABLE as error:
        return f"cannot be read back: {error}"
    same = now == step.after or went_away(step.setting, now)
    return "" if same else f"asked for {show(step.after)}, the host holds {show(now)}"


def _now(steps: list[Step]) -> str:
    """The current value for people, or the number of settings if they differ."""
    values = {show(step.before) for step in steps} or {"as before"}
    return values.pop() if len(values) == 1 else f"{len(steps)} settings to restore"
