"""Kernel arguments: a GRUB drop-in of ours on Debian and Ubuntu, grubby on the RHEL family and Amazon Linux."""

from __future__ import annotations

import re
from collections.abc import Sequence

from ..model import Conflict, Knob, Reading, Step, Unreadable, Unsupported
from ..settings.grubby import arguments_of_every_kernel
from ..settings.line import GRUB
from ..view import View
from ._common import all_alike, guarded, settled
from ._types import Text, Type

GRUB_FILES = ("/etc/default/grub", "/etc/default/grub.d/*.cfg")
GRUB_OUTPUT = ("/boot/grub/grub.cfg", "/boot/grub2/grub.cfg")
# Other knobs own these, or they stand several times on one line, where the last does not simply win.
NOT_HERE = {
    "transparent_hugepage",
    "console",
    "earlycon",
    "hugepages",
    "hugepagesz",
    "root",
    "ro",
    "rw",
    "init",
    "quiet",
}
FLAG = "on"  # the value of an argument that stands alone, such as cmdline.nosmt


def type_of(key: str) -> Type | None:
    """What values a key takes; a key is the argument's name. Only letters that no boot loader takes for its own."""
    return Text(r"[\w.,:/=@+-]+") if re.fullmatch(r"[\w.-]+", key) and key not in NOT_HERE else None


def read(view: View, knobs: Sequence[Knob]) -> list[Reading]:
    """What the kernel runs with, and what every installed kernel will be booted with."""
    try:
        entries = _entries(view)
        running = view.host.read("/proc/cmdline").split()
    except (Unsupported, Unreadable, OSError) as reason:
        return all_alike(knobs, reason)
    return [guarded(knob, lambda knob=knob: _read(view, knob, running, entries)) for knob in knobs]  # type: ignore[misc]


def _entries(view: View) -> list[list[str]]:
    """The arguments of every entry that boots normally."""
    if view.machine.machine == "container":
        raise Unsupported("a container has no kernel of its own")
    if view.machine.family == "rhel":
        if not view.host.which("grubby"):
            raise Unsupported("grubby is not on this host")
        return arguments_of_every_kernel(view.host)
    path = next((path for path in GRUB_OUTPUT if view.host.exists(path)), None)
    if view.machine.family != "debian" or path is None:
        raise Unsupported("this host boots neither by GRUB as Debian keeps it nor by grubby")
    lines = re.findall(r"^\s*linux(?:efi|16)?\s+(.+)$", view.host.read(path), re.MULTILINE)
    normal = [words for words in (line.split() for line in lines) if not {"single", "recovery"} & set(words)]
    if not normal:
        raise Unreadable(f"{path} has no entry that boots Linux")
    return normal


def _read(view: View, knob: Knob, running: list[str], entries: list[list[str]]) -> Reading:
    argument = knob.key if knob.value == FLAG else f"{knob.key}={knob.value}"
    now = _value(running, knob.key)
    after = {_value(entry, knob.key) for entry in entries}
    kept = after == {knob.value}
    steps: tuple[Step, ...] = ()
    if not kept and view.machine.family == "rhel":
        steps = view.step(f"grubby:{argument}", "on")
    elif not kept:
        steps = view.step(f"line:{GRUB}:{knob.key}", "" if knob.value == FLAG else knob.value)
    boot = after.pop() if len(after) == 1 else "not the same for every kernel"
    return settled(
        knob,
        now=now or "absent",
        boot=boot or "absent",
        steps=steps,
        # The drop-in is right and the boot loader's own file is older than it.
        refresh=("grub",) if not kept and not steps and view.machine.family == "debian" else (),
        reboot=now != knob.value,
        conflicts=tuple(_rivals(view, knob)),
    )


def _value(words: list[str], key: str) -> str:
    """The last value a line gives an argument ("on" where it stands alone), empty where it is absent."""
    found = ""
    for word in words:
        name, equals, value = word.partition("=")
        if name == key:
            found = value if equals else FLAG
    return found


def _rivals(view: View, knob: Knob) -> list[Conflict]:
    """Files that give the argument another value. Ours is read last, and the last one on the line counts."""
    found = []
    for path in (path for pattern in GRUB_FILES for path in view.host.glob(pattern)):
        for number, text in enumerate((view.host.read_or_none(path) or "").splitlines(), 1):
            if path == GRUB or not text.strip().startswith("GRUB_CMDLINE_LINUX"):
                continue
            value = _value(re.sub(r"[\"']", " ", text.partition("=")[2]).split(), knob.key)
            if value and value != knob.value:
                found.append(Conflict("GRUB", f"{path}:{number}", value, wins=path > GRUB))
    return found
