"""Parameters of kernel modules: "modprobe.sunrpc.tcp_max_slot_table_entries", kept by a file in /etc/modprobe.d."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence

from ..model import Conflict, Knob, Reading, Step, Unsupported
from ..owners import in_order
from ..settings.line import MODPROBE
from ..view import View
from ._common import read_each, settled
from ._types import Text, Type

FOLDERS = ("/etc/modprobe.d", "/run/modprobe.d", "/usr/local/lib/modprobe.d", "/usr/lib/modprobe.d", "/lib/modprobe.d")
# A module parameter shows a switch as Y or N, whatever it was set by.
SWITCH = {"Y": "1", "N": "0", "y": "1", "n": "0"}


def type_of(key: str) -> Type | None:
    """What values a key takes; a key is MODULE.PARAMETER."""
    return Text(r"\S+") if re.fullmatch(r"[\w-]+\.\w+", key) else None


def read(view: View, knobs: Sequence[Knob]) -> list[Reading]:
    """What each parameter is where its module is loaded, and what modprobe will give it."""
    return read_each(view, knobs, _read)


def _read(view: View, knob: Knob) -> Reading:
    module, _, parameter = knob.key.partition(".")
    if _built_in(view, module):
        raise Unsupported(f"{module} is built into this kernel: set cmdline.{knob.key} instead")
    given = _given(view, module, parameter)
    steps: tuple[Step, ...] = ()
    if not given or not _same(given[-1].value, knob.value):
        steps += view.step(f"line:{MODPROBE}:options {module} {parameter}", knob.value)
    live, reload_needed, now = _live(view, module, parameter, knob.value)
    rivals = [
        rival for rival in given if rival.where.partition(":")[0] != MODPROBE and not _same(rival.value, knob.value)
    ]
    rivals = [rival._replace(wins=rival == given[-1]) for rival in rivals]
    return settled(
        knob,
        now=now,
        boot=given[-1].value if given else "kernel default",
        steps=steps + live,
        conflicts=tuple(rivals),
        reboot=reload_needed,
        notes=(f"{module} is loaded with {now}; it takes the new value when it is loaded again",)
        if reload_needed
        else (),
    )


def _live(view: View, module: str, parameter: str, wanted: str) -> tuple[tuple[Step, ...], bool, str]:
    """(steps, whether the module must be loaded again, what it holds now)."""
    folder = f"/sys/module/{module.replace('-', '_')}"
    if not view.host.exists(folder):
        return (), False, "not loaded"
    path = f"{folder}/parameters/{parameter}"
    now = view.host.value(path)
    if now is None:
        return (), False, "not shown by the module"
    if _same(now, wanted):
        return (), False, now
    writable = os.stat(view.host.real(path)).st_mode & 0o200
    return ((Step(f"value:{path}", now, wanted),), False, now) if writable else ((), True, now)


def _same(held: str, wanted: str) -> bool:
    return SWITCH.get(held, held) == SWITCH.get(wanted, wanted)


def _given(view: View, module: str, parameter: str) -> list[Conflict]:
    """Every options line that gives the parameter a value, in the order modprobe reads them: the last one counts."""
    found = []
    for path in in_order(view.host, FOLDERS, ".conf"):
        for number, text in enumerate((view.host.read_or_none(path) or "").splitlines(), 1):
            words = text.split()
            if words[:1] == ["options"] and len(words) > 2 and words[1].replace("-", "_") == module.replace("-", "_"):
                values = [word.partition("=")[2] for word in words[2:] if word.partition("=")[0] == parameter]
                found += [Conflict("modprobe.d", f"{path}:{number}", value, wins=False) for value in values]
    return found


def _built_in(view: View, module: str) -> bool:
    release = view.host.value("/proc/sys/kernel/osrelease") or ""
    listed = view.host.read_or_none(f"/lib/modules/{release}/modules.builtin") or ""
    return f"/{module.replace('-', '_')}.ko" in listed.replace("-", "_")
