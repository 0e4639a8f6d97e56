"""Parameters of kernel modules: "modprobe.sunrpc.tcp_max_slot_table_entries", kept by a file in /etc/modprobe.d."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from typing import NamedTuple

from ..host import Host
from ..kernel_line import split, values
from ..model import Conflict, Knob, Reading, Step, Unsupported
from ..owners import in_order
from ..resources.line import MODPROBE
from ..snapshot import View
from . import _lines
from ._common import all_alike, guarded, settled
from ._lines import Said
from ._types import Text, Type

FOLDERS = ("/etc/modprobe.d", "/run/modprobe.d", "/usr/local/lib/modprobe.d", "/usr/lib/modprobe.d", "/lib/modprobe.d")
MODULES = "/sys/module"
NVIDIA = "/proc/driver/nvidia/params"  # its parameters are not below /sys, and have no NVreg_ before their names here
# A switch shows as Y or N, whatever it was set by.
SWITCH = {"Y": "1", "N": "0", "y": "1", "n": "0"}
AGAIN = "takes it when it is loaded again (rebuild the initramfs if that loads it)"


class Loaded(NamedTuple):
    """A parameter as the kernel has it: its value for people, and what can be done about it now."""

    now: str
    steps: tuple[Step, ...] = ()
    again: str = ""  # why the module must be loaded again


def type_of(key: str) -> Type | None:
    """What values a key takes; a key is MODULE.PARAMETER."""
    return Text(r"""[^\s#"'\\]+""") if re.fullmatch(r"[\w-]+\.\w+", key, re.ASCII) else None


def read(view: View, knobs: Sequence[Knob]) -> list[Reading]:
    """What each parameter is where its module is loaded, and what modprobe will give it."""
    try:
        lines = _options(view.host)
    except OSError as reason:
        return all_alike(knobs, reason)
    return [guarded(knob, lambda knob=knob: _read(view, knob, lines)) for knob in knobs]  # type: ignore[misc]


def _read(view: View, knob: Knob, lines: list[Said]) -> Reading:
    module, _, parameter = knob.key.partition(".")
    _refuse_impossible(view, knob, module)
    given, wanted = _lines.of(lines, _alike(knob.key)), _normal(knob.value)
    steps: tuple[Step, ...] = ()
    if not given or given[-1].value != wanted:
        steps = view.step(f"line:{MODPROBE}:options {module} {parameter}", knob.value)
    rivals = _lines.rivals("modprobe.d", given, wanted, MODPROBE, bool(steps)) + _on_kernel_line(view.host, knob)
    loaded = _loaded(view.host, knob, "" if steps else given[-1].path)
    last = [rival.value for rival in rivals if rival.wins]
    return settled(
        knob,
        now=loaded.now,
        boot=last[-1] if last else given[-1].text if given else "kernel default",
        steps=steps + loaded.steps,
        conflicts=tuple(rivals),
        reboot=bool(loaded.again),
        notes=(f"{module} {loaded.again}",) if loaded.again else (),
    )


def _loaded(host: Host, knob: Knob, given_by: str) -> Loaded:
    """`given_by`: the file whose line counts at the next load; empty where that is still to be written."""
    module, _, parameter = knob.key.partition(".")
    folder = f"{MODULES}/{_alike(module)}"
    if not host.exists(folder):
        return Loaded("not loaded")
    path = f"{folder}/parameters/{parameter}"
    now = host.value(path)
    if now is None and module == "nvidia":
        now = _of_nvidia(host, parameter)
    if now is None:
        # Loaded since the machine started, a module has read what stood in the files before that.
        known = given_by and _older_than_this_boot(host, given_by)
        return Loaded("not shown", again="" if known else f"does not show it, and {AGAIN}")
    if _normal(now) == _normal(knob.value):
        return Loaded(now)
    if host.exists(path) and os.stat(host.real(path)).st_mode & 0o200:
        return Loaded(now, steps=(Step(f"value:{path}", now, knob.value),))
    return Loaded(now, again=f"is loaded with {now}, and {AGAIN}")


def _of_nvidia(host: Host, parameter: str) -> str | None:
    text = host.read_or_none(NVIDIA) or ""
    found = re.search(rf"^{re.escape(parameter.replace('NVreg_', '', 1))}: (.*)$", text, re.MULTILINE)
    return found.group(1).strip('"') if found else None


def _older_than_this_boot(host: Host, path: str) -> bool:
    started = re.search(r"^btime (\d+)$", host.read_or_none("/proc/stat") or "", re.MULTILINE)
    return started is not None and os.stat(host.real(path)).st_mtime < int(started.group(1))


def _normal(text: str) -> str:
    """One text for what the kernel takes for the same: Y and 1, 0x80 and 128."""
    try:
        return SWITCH.get(text) or str(int(text, 0))
    except ValueError:
        return text


def _alike(name: str) -> str:
    """modprobe and the kernel take hyphens and underscores for the same."""
    return name.replace("-", "_")


def _options(host: Host) -> list[Said]:
    """Every parameter that an options line gives, in the order in which modprobe hands them on: the last one counts."""
    return [
        Said(_alike(f"{words[1]}.{parameter}"), _normal(value), path, number, value)
        for path in in_order(host, FOLDERS, ".conf")
        for number, line in enumerate((host.read_or_none(path) or "").splitlines(), 1)
        if (words := split(line))[:1] == ["options"]
        for parameter, _, value in (word.partition("=") for word in words[2:])
    ]


def _on_kernel_line(host: Host, knob: Knob) -> list[Conflict]:
    """What stands on the kernel's command line goes to the module behind all that files say."""
    said = values(split(host.read_or_none("/proc/cmdline") or ""), knob.key)
    if not said or _normal(said[-1]) == _normal(knob.value):
        return []
    return [Conflict("kernel command line", "/proc/cmdline:1", said[-1], wins=True)]


def _refuse_impossible(view: View, knob: Knob, module: str) -> None:
    host, name = view.host, f"/{_alike(module)}.ko"
    if view.machine.machine == "container":
        raise Unsupported("modules belong to the machine under this container")
    folder = f"/lib/modules/{host.value('/proc/sys/kernel/osrelease')}"
    if name in _alike(host.read_or_none(f"{folder}/modules.builtin") or ""):
        raise Unsupported(f"{module} is built into this kernel: set cmdline.{knob.key} instead")
    if host.exists(f"{MODULES}/{_alike(module)}"):
        return
    known = host.read_or_none(f"{folder}/modules.dep")
    if known is not None and name not in _alike(known):
        raise Unsupported(f"there is no module {module} for this kernel")
