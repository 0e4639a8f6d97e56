"""Kernel arguments: a GRUB drop-in of ours on Debian and Ubuntu, grubby on the RHEL family and Amazon Linux."""

from __future__ import annotations

import re
from collections.abc import Sequence

from ..kernel_line import ENTRIES, PRESENT, loader_entries, said_by_all, split, value, values
from ..model import Conflict, Knob, Reading, Refused, Step, Unreadable, Unsupported
from ..resources.line import GRUB
from ..snapshot import View
from ..topology import CPU, cpus_of
from . import _grub
from ._common import all_alike, guarded, settled
from ._kernel_arguments import TYPES, type_of

__all__ = ["TYPES", "read", "type_of"]

OTHER_LOADERS = {
    "/run/ostree-booted": "an image updated as a whole (ostree)",
    "/boot/efi/loader/loader.conf": "systemd-boot",
    "/efi/loader/loader.conf": "systemd-boot",
    "/boot/loader/loader.conf": "systemd-boot",
    "/boot/extlinux/extlinux.conf": "extlinux",
}
WORK_IS_TAKEN_FROM = ("isolcpus", "nohz_full")


def read(view: View, knobs: Sequence[Knob]) -> list[Reading]:
    """What the kernel runs with, and what every installed kernel will be booted with."""
    try:
        running = split(view.host.read("/proc/cmdline"))
        entries = _entries(view)
    except (Unsupported, Unreadable, OSError) as reason:
        return all_alike(knobs, reason)
    return [guarded(knob, lambda knob=knob: _read(view, knob, running, entries)) for knob in knobs]  # type: ignore[misc]


def _entries(view: View) -> list[list[str]]:
    """The arguments of every entry that boots normally: what is in force after a reboot, whoever wrote it there."""
    host = view.host
    if view.machine.machine == "container":
        raise Unsupported("a container has no kernel of its own")
    other = next((loader for path, loader in OTHER_LOADERS.items() if host.exists(path)), "")
    if view.machine.family == "debian" and host.exists(_grub.CONFIG) and not other:
        return _grub.normal_entries(host)
    if view.machine.family == "rhel" and host.which("grubby") and not other:
        found = loader_entries(host)
        if found:
            return found
        raise Unsupported(f"this host has no boot loader entries in {ENTRIES}")
    raise Unsupported(f"this host boots by {other or 'neither GRUB as Debian keeps it nor entries that grubby keeps'}")


def _read(view: View, knob: Knob, running: list[str], entries: list[list[str]]) -> Reading:
    _leave_processors(view, knob)
    now = value(running, knob.key)
    right = all(value(words, knob.key) == knob.value for words in entries)
    by_grub = view.machine.family == "debian"
    rivals = [*(_grub.rivals(view.host, knob.key, knob.value) if by_grub else ()), *_of_tuned(view, knob)]
    steps: tuple[Step, ...] = ()
    if not right:
        steps = _drop_in(view, knob) if by_grub else _by_grubby(view, knob, entries)
    # Where the drop-in is right and nobody overrules it, grub.cfg is merely older than it.
    stale = not right and not steps and not any(rival.wins for rival in rivals)
    return settled(
        knob,
        now=now or "absent",
        boot=said_by_all(entries, knob.key),
        steps=steps,
        refresh=("grub",) if stale else (),
        reboot=now != knob.value,
        conflicts=tuple(rivals),
    )


def _drop_in(view: View, knob: Knob) -> tuple[Step, ...]:
    return view.step(f"line:{GRUB}:{knob.key}", "" if knob.value == PRESENT else knob.value)


def _by_grubby(view: View, knob: Knob, entries: list[list[str]]) -> tuple[Step, ...]:
    """One step for all kernels. What grubby would flatten, and undo could then not put back, is left to its owner."""
    setting = f"grubby:{knob.key}"
    held = {tuple(values(words, knob.key)) for words in entries}
    if setting not in view.owned and (len(held) > 1 or any(len(each) > 1 for each in held)):
        lines = " | ".join(" ".join(each) or "absent" for each in sorted(held))
        raise Refused(
            f"the installed kernels do not have {knob.key} alike, or several times ({lines}): make them alike first, "
            f"with grubby --update-kernel=ALL"
        )
    return (Step(setting, view.now(setting), knob.value),)


def _of_tuned(view: View, knob: Knob) -> list[Conflict]:
    """tuned puts arguments of its profile on the line too, before ours."""
    found = []
    for said in view.owners.tuned:
        option, _, text = said.text.partition("=")
        held = value(split(text.strip().strip('"')), knob.key) if option.strip().startswith("cmdline") else None
        if held not in (None, knob.value):
            found.append(Conflict(said.owner, said.where, str(held), wins=False))
    return found


def _leave_processors(view: View, knob: Knob) -> None:
    """A host whose every processor is set apart has none left for anything else."""
    numbers = re.sub(r"[a-z_]+,", "", str(knob.value))
    present = view.host.value(f"{CPU}/present")
    if knob.key not in WORK_IS_TAKEN_FROM or not present or not re.fullmatch(r"[\d,-]+", numbers):
        return
    there, taken = set(cpus_of(present)), set(cpus_of(numbers))
    if there <= taken or not taken <= there:
        what = "leaves no processor" if there <= taken else "names processors that are not there"
        raise Refused(f"{knob.key}={knob.value} {what}: this host has {present}")
