"""Parameters of kernel modules ("modprobe.sunrpc.tcp_max_slot_table_entries"), in a file in /etc/modprobe.d."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from typing import NamedTuple

from ..host import Host
from ..kernel_line import split, values
from ..model import Conflict, Knob, Reading, Step, Unsupported
from ..resources.line import MODPROBE
from ..snapshot import HostSnapshot
from ..startup.lines import in_order
from . import _lines
from ._common import all_failed, guarded, settled
from ._lines import KeyedLine
from ._types import Text, Type

FOLDERS = ("/etc/modprobe.d", "/run/modprobe.d", "/usr/local/lib/modprobe.d", "/usr/lib/modprobe.d", "/lib/modprobe.d")
MODULES = "/sys/module"
NVIDIA = "/proc/driver/nvidia/params"  # its parameters are not below /sys; names lack the prefix NVreg_ here
# Boolean parameters show as Y or N, however they were set.
SWITCH = {"Y": "1", "N": "0", "y": "1", "n": "0"}
AGAIN = "uses it once it is reloaded (rebuild the initramfs if that loads it)"


class Loaded(NamedTuple):
    """A parameter in the running kernel: its value for people, and the steps that change it now."""

    now: str
    steps: tuple[Step, ...] = ()
    again: str = ""  # why the module must be reloaded


def type_of(key: str) -> Type | None:
    """Type of a key's value; a key is MODULE.PARAMETER."""
    return Text(r"""[^\s#"'\\]+""") if re.fullmatch(r"[\w-]+\.\w+", key, re.ASCII) else None


def read(snapshot: HostSnapshot, knobs: Sequence[Knob]) -> list[Reading]:
    """Values in loaded modules, and those that modprobe will set."""
    try:
        lines = _options(snapshot.host)
    except OSError as reason:
        return all_failed(knobs, reason)
    return [guarded(knob, lambda knob=knob: _read(snapshot, knob, lines)) for knob in knobs]  # type: ignore[misc]


def _read(snapshot: HostSnapshot, knob: Knob, lines: list[KeyedLine]) -> Reading:
    module, _, parameter = knob.key.partition(".")
    _refuse_impossible(snapshot, knob, module)
    lines_for_it, desired = _lines.for_key(lines, _alike(knob.key)), _normal(knob.value)
    steps: tuple[Step, ...] = ()
    if not lines_for_it or lines_for_it[-1].value != desired:
        steps = snapshot.step(f"line:{MODPROBE}:options {module} {parameter}", knob.value)
    rivals = _lines.rivals("modprobe.d", lines_for_it, desired, MODPROBE, bool(steps)) + _on_kernel_line(
        snapshot.host, knob
    )
    loaded = _loaded(snapshot.host, knob, "" if steps else lines_for_it[-1].path)
    last = [rival.value for rival in rivals if rival.wins]
    return settled(
        knob,
        now=loaded.now,
        boot=last[-1] if last else lines_for_it[-1].text if lines_for_it else "kernel default",
        steps=steps + loaded.steps,
        conflicts=tuple(rivals),
        reboot=bool(loaded.again),
        notes=(f"{module} {loaded.again}",) if loaded.again else (),
    )


def _loaded(host: Host, knob: Knob, source_path: str) -> Loaded:
    """`source_path`: the file whose line counts at the next load; empty if it is not written yet."""
    module, _, parameter = knob.key.partition(".")
    folder = f"{MODULES}/{_alike(module)}"
    if not host.exists(folder):
        return Loaded("not loaded")
    path = f"{folder}/parameters/{parameter}"
    now = host.value(path)
    if now is None and module == "nvidia":
        now = _of_nvidia(host, parameter)
    if now is None:
        # The module was loaded after the boot, so it has read files that are older than that.
        known = source_path and _older_than_this_boot(host, source_path)
        return Loaded("not shown", again="" if known else f"does not show it, and {AGAIN}")
    if _normal(now) == _normal(knob.value):
        return Loaded(now)
    if host.exists(path) and os.stat(host.real(path)).st_mode & 0o200:
        return Loaded(now, steps=(Step(f"value:{path}", now, knob.value),))
    return Loaded(now, again=f"is loaded with {now}, and {AGAIN}")


def _of_nvidia(host: Host, parameter: str) -> str | None:
    text = host.read_or_none(NVIDIA) or ""
    match = re.search(rf"^{re.escape(parameter.replace('NVreg_', '', 1))}: (.*)$", text, re.MULTILINE)
    return match.group(1).strip('"') if match else None


def _older_than_this_boot(host: Host, path: str) -> bool:
    started = re.search(r"^btime (\d+)$", host.read_or_none("/proc/stat") or "", re.MULTILINE)
    return started is not None and os.stat(host.real(path)).st_mtime < int(started.group(1))


def _normal(text: str) -> str:
    """One text for equal values: Y and 1, 0x80 and 128."""
    try:
        return SWITCH.get(text) or str(int(text, 0))
    except ValueError:
        return text


def _alike(name: str) -> str:
    """modprobe and the kernel treat hyphens and underscores alike."""
    return name.replace("-", "_")


def _options(host: Host) -> list[KeyedLine]:
    """Parameters of all options lines, in modprobe's order; the last one counts."""
    return [
        KeyedLine(_alike(f"{arguments[1]}.{parameter}"), _normal(value), path, number, value)
        for path in in_order(host, FOLDERS, ".conf")
        for number, line in enumerate((host.read_or_none(path) or "").splitlines(), 1)
        if (arguments := split(line))[:1] == ["options"]
        for parameter, _, value in (argument.partition("=") for argument in arguments[2:])
    ]


def _on_kernel_line(host: Host, knob: Knob) -> list[Conflict]:
    """A value on the kernel command line, which the module gets after those of files."""
    on_line = values(split(host.read_or_none("/proc/cmdline") or ""), knob.key)
    if not on_line or _normal(on_line[-1]) == _normal(knob.value):
        return []
    return [Conflict("kernel command line", "/proc/cmdline:1", on_line[-1], wins=True)]


def _refuse_impossible(snapshot: HostSnapshot, knob: Knob, module: str) -> None:
    host, name = snapshot.host, f"/{_alike(module)}.ko"
    if snapshot.machine.machine == "container":
        raise Unsupported("modules belong to the machine under this container")
    folder = f"/lib/modules/{host.value('/proc/sys/kernel/osrelease')}"
    if name in _alike(host.read_or_none(f"{folder}/modules.builtin") or ""):
        raise Unsupported(f"{module} is built into this kernel: set cmdline.{knob.key} instead")
    if host.exists(f"{MODULES}/{_alike(module)}"):
        return
    known = host.read_or_none(f"{folder}/modules.dep")
    if known is not None and name not in _alike(known):
        raise Unsupported(f"there is no module {module} for this kernel")
