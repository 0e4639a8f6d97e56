"""Kernel arguments: by a GRUB drop-in on Debian and Ubuntu, by grubby on the RHEL family and Amazon Linux."""

from __future__ import annotations

import re
from collections.abc import Sequence

from ..kernel_line import ENTRIES, PRESENT, loader_entries, split, summary, value, values
from ..model import Conflict, Knob, Reading, Refused, Step, Unreadable, Unsupported
from ..resources.line import GRUB
from ..snapshot import HostSnapshot
from ..topology import CPU, cpus_of
from . import _grub
from ._common import all_failed, guarded, settled
from ._isolation import resolve
from ._kernel_arguments import TYPES, type_of

__all__ = ["TYPES", "read", "type_of"]

OTHER_LOADERS = {
    "/run/ostree-booted": "an image updated as a whole (ostree)",
    "/boot/efi/loader/loader.conf": "systemd-boot",
    "/efi/loader/loader.conf": "systemd-boot",
    "/boot/loader/loader.conf": "systemd-boot",
    "/boot/extlinux/extlinux.conf": "extlinux",
}
ISOLATING = ("isolcpus", "nohz_full")


def read(snapshot: HostSnapshot, knobs: Sequence[Knob]) -> list[Reading]:
    """Arguments of the running kernel, and of every installed kernel at its next boot."""
    try:
        running = split(snapshot.host.read("/proc/cmdline"))
        entries = _entries(snapshot)
    except (Unsupported, Unreadable, OSError) as reason:
        return all_failed(knobs, reason)
    return [guarded(knob, lambda knob=knob: _read(snapshot, knob, running, entries)) for knob in knobs]  # type: ignore[misc]


def _entries(snapshot: HostSnapshot) -> list[list[str]]:
    """Arguments of every normal boot entry, whoever wrote them: those in force after a reboot."""
    host = snapshot.host
    if snapshot.machine.machine == "container":
        raise Unsupported("a container has no kernel of its own")
    other = next((loader for path, loader in OTHER_LOADERS.items() if host.exists(path)), "")
    if snapshot.machine.family == "debian" and host.exists(_grub.CONFIG) and not other:
        return _grub.normal_entries(host)
    if snapshot.machine.family == "rhel" and host.which("grubby") and not other:
        entries = loader_entries(host)
        if entries:
            return entries
        raise Unsupported(f"this host has no boot loader entries in {ENTRIES}")
    raise Unsupported(f"this host boots by {other or 'neither GRUB as Debian keeps it nor entries that grubby keeps'}")


def _read(snapshot: HostSnapshot, knob: Knob, running: list[str], entries: list[list[str]]) -> Reading:
    knob = knob._replace(value=resolve(snapshot.host, str(knob.value)))
    _leave_processors(snapshot, knob)
    now = value(running, knob.key)
    right = all(value(arguments, knob.key) == knob.value for arguments in entries)
    by_grub = snapshot.machine.family == "debian"
    rivals = [*(_grub.rivals(snapshot.host, knob.key, knob.value) if by_grub else ()), *_of_tuned(snapshot, knob)]
    steps: tuple[Step, ...] = ()
    if not right:
        steps = _drop_in(snapshot, knob) if by_grub else _by_grubby(snapshot, knob, entries)
    # If the drop-in is right and no other file wins, grub.cfg is just older.
    stale = not right and not steps and not any(rival.wins for rival in rivals)
    return settled(
        knob,
        now=now or "absent",
        boot=summary(entries, knob.key),
        steps=steps,
        refresh=("grub",) if stale else (),
        reboot=now != knob.value,
        conflicts=tuple(rivals),
    )


def _drop_in(snapshot: HostSnapshot, knob: Knob) -> tuple[Step, ...]:
    return snapshot.step(f"line:{GRUB}:{knob.key}", "" if knob.value == PRESENT else knob.value)


def _by_grubby(snapshot: HostSnapshot, knob: Knob, entries: list[list[str]]) -> tuple[Step, ...]:
    """One step for all kernels; refused if kernels differ, as undo could not restore that."""
    setting = f"grubby:{knob.key}"
    variants = {tuple(values(arguments, knob.key)) for arguments in entries}
    if setting not in snapshot.owned and (len(variants) > 1 or any(len(variant) > 1 for variant in variants)):
        lines = " | ".join(" ".join(variant) or "absent" for variant in sorted(variants))
        raise Refused(
            f"the installed kernels do not have {knob.key} alike, or several times ({lines}): make them alike first, "
            f"with grubby --update-kernel=ALL"
        )
    return (Step(setting, snapshot.now(setting), knob.value),)


def _of_tuned(snapshot: HostSnapshot, knob: Knob) -> list[Conflict]:
    """Arguments of the active tuned profile; they come before ours on the line."""
    conflicts = []
    for line in snapshot.owners.tuned:
        option, _, text = line.text.partition("=")
        tuned_value = value(split(text.strip().strip('"')), knob.key) if option.strip().startswith("cmdline") else None
        if tuned_value not in (None, knob.value):
            conflicts.append(Conflict(line.owner, line.where, str(tuned_value), wins=False))
    return conflicts


def _leave_processors(snapshot: HostSnapshot, knob: Knob) -> None:
    """Refuse to isolate all processors of the host, or ones that it does not have."""
    numbers = re.sub(r"[a-z_]+,", "", str(knob.value))
    present = snapshot.host.value(f"{CPU}/present")
    if knob.key not in ISOLATING or not present or not re.fullmatch(r"[\d,-]+", numbers):
        return
    all_cpus, taken = set(cpus_of(present)), set(cpus_of(numbers))
    if all_cpus <= taken or not taken <= all_cpus:
        what = "leaves no processor" if all_cpus <= taken else "names processors that do not exist"
        raise Refused(f"{knob.key}={knob.value} {what}: this host has {present}")
