"""MIG: the instances of a GPU as one text, the profiles that a GPU has, and the commands that make a layout.

A layout is "off", "on" (mode without instances), or profiles with counts, the largest first: "3g.40gb:1 1g.10gb:4".
"""

from __future__ import annotations

import contextlib
import re
from collections import Counter
from collections.abc import Mapping

from . import smi
from .host import Host
from .model import Unreadable, Unsupported

OFF, ON = "off", "on"
PROFILE = re.compile(r"([1-7])g\.(\d{1,3})gb(\+me(\.all)?|\+gfx|-me)?")
CDI = "nvidia-cdi-refresh.service"
UNIT_FOLDERS = ("/etc/systemd/system", "/usr/lib/systemd/system", "/lib/systemd/system")
# Rows of `nvidia-smi mig -lgi`: GPU, name, profile id, instance id, placement.
_INSTANCE = re.compile(r"^\|\s+(\d+)\s+MIG (\S+)\s+\d+\s+(\d+)\s+\d+:\d+\s+\|", re.MULTILINE)
# Rows of `nvidia-smi mig -lgip`: GPU, name, id, free/total.
_OFFERED = re.compile(r"^\|\s+(\d+)\s+MIG (\S+)\s+\d+\s+\d+/(\d+)\s", re.MULTILINE)
_GPU_LINE, _DEVICE_LINE = re.compile(r"^GPU (\d+): "), re.compile(r"^\s+MIG (\S+)\s+Device\s+\d+:")


def text_of(instances: Mapping[str, int]) -> str:
    """The layout of these instances: profile -> count."""
    ordered = sorted(instances.items(), key=lambda item: (-slices(item[0]), item[0]))
    return " ".join(f"{profile}:{count}" for profile, count in ordered) or ON


def instances_of(text: str) -> dict[str, int]:
    """Profile -> count; empty for "off" and "on"."""
    if text in (OFF, ON):
        return {}
    return {name: int(count) for name, _, count in (word.partition(":") for word in text.split())}


def slices(profile: str) -> int:
    """Compute slices of a profile."""
    match = PROFILE.fullmatch(profile)
    return int(match.group(1)) if match else 0


def read(host: Host, gpu: smi.GpuState) -> str:
    """The current layout of a GPU; `Unsupported` if it has no MIG."""
    if gpu.value("mig.mode.current") == "Disabled":
        return OFF
    rows = [name for name, _ in gpu_instances(host, gpu.index)]
    usable = _usable(host, gpu.index)
    if sorted(usable) != sorted(rows):  # somebody made or destroyed compute instances
        return f"{text_of(Counter(rows))} with compute instances {' '.join(sorted(usable)) or 'none'}"
    return text_of(Counter(rows))


def gpu_instances(host: Host, index: int) -> list[tuple[str, int]]:
    """Profile and number of each GPU instance of a GPU; `Unreadable` if nvidia-smi does not list them."""
    listing = smi.ask(host, "mig", "-lgi")
    rows = [(name, int(number)) for gpu, name, number in _INSTANCE.findall(listing.out) if int(gpu) == index]
    if not rows and not listing.ok and not re.search(r"No (GPU instances|MIG-enabled devices) found", listing.out):
        raise Unreadable(f"nvidia-smi mig -lgi: {listing.last_line}")
    return rows


def _usable(host: Host, index: int) -> list[str]:
    """Profiles of the MIG devices that `nvidia-smi -L` lists for a GPU."""
    names, current = [], -1
    for line in smi.ask(host, "-L").out.splitlines():
        head, device = _GPU_LINE.match(line), _DEVICE_LINE.match(line)
        current = int(head.group(1)) if head else current
        if device and current == index:
            names.append(device.group(1))
    return names


def why_impossible(host: Host, gpu: smi.GpuState, instances: Mapping[str, int]) -> str:
    """Why the GPU cannot have these instances; "" if nothing is known against it."""
    offered = _offered(host, gpu)
    if not offered:
        return ""
    strange = [name for name in instances if name not in offered]
    if strange:
        return f"{gpu.name} has no MIG profile {', '.join(strange)}; it has {', '.join(offered)}"
    many = [f"{name} at most {offered[name]}" for name, count in instances.items() if count > offered[name]]
    if many:
        return f"{gpu.name} holds {', '.join(many)}"
    whole = max(slices(name) for name in offered)
    needed = sum(slices(name) * count for name, count in instances.items())
    return f"the instances need {needed} slices, {gpu.name} has {whole}" if needed > whole else ""


def _offered(host: Host, gpu: smi.GpuState) -> Mapping[str, int]:
    """Profile -> the most instances of it; empty if nvidia-smi lists none, as old drivers while MIG is off."""
    rows = _OFFERED.findall(smi.ask(host, "mig", "-lgip").out)
    return {name: int(total) for index, name, total in rows if int(index) == gpu.index}


def write(host: Host, gpu: smi.GpuState, layout: str) -> None:
    """Change a GPU's mode and instances; RuntimeError, `Unsupported` or `smi.InUse` with nvidia-smi's message.

    If the new instances cannot be made, the old ones are made again. Returns without instances if the mode takes
    effect at the next reboot only.
    """
    before = read(host, gpu)
    if before not in (OFF, ON):
        _destroy(host, gpu.index)
    if layout == OFF:
        _switch(host, gpu, "Disabled")
    elif (before != OFF or _switch(host, gpu, "Enabled")) and layout != ON:
        try:
            _create(host, gpu.index, layout)
        except RuntimeError as error:
            with contextlib.suppress(RuntimeError):
                _destroy(host, gpu.index)
            back = _restored(host, gpu, before)
            raise RuntimeError(f"{error}; {back}") from error
    _refresh_cdi(host)


def _restored(host: Host, gpu: smi.GpuState, before: str) -> str:
    try:
        if before == OFF:
            _switch(host, gpu, "Disabled")
        elif instances_of(before) and " with " not in before:
            _create(host, gpu.index, before)
    except (RuntimeError, Unsupported) as error:
        return f"its instances from before ({before}) could not be made again: {error}"
    return f"it is {before} again"


def _destroy(host: Host, index: int) -> None:
    """Remove all instances of a GPU; an instance without compute instances has none to remove first."""
    with contextlib.suppress(NoneLeft):
        _mig(host, "-i", str(index), "-dci")
    with contextlib.suppress(NoneLeft):
        _mig(host, "-i", str(index), "-dgi")


class NoneLeft(RuntimeError):
    """nvidia-smi has no instance to remove."""


def _mig(host: Host, *argv: str) -> None:
    try:
        smi.change(host, "mig", *argv)
    except RuntimeError as error:
        if "Not Found" in str(error) or re.search(r"No \w+ instances found", str(error)):
            raise NoneLeft(str(error)) from error
        raise


def _create(host: Host, index: int, layout: str) -> None:
    names = [name for name, count in instances_of(layout).items() for _ in range(count)]
    smi.change(host, "mig", "-i", str(index), "-cgi", ",".join(names), "-C")


def _switch(host: Host, gpu: smi.GpuState, mode: str) -> bool:
    """Set MIG mode, with a reset of the GPU where that is needed; False if a reboot is."""
    digit = "1" if mode == "Enabled" else "0"
    opposite = "0" if mode == "Enabled" else "1"
    try:
        smi.change(host, "-i", gpu.uuid, "-mig", digit)
    except smi.InUse:
        with contextlib.suppress(RuntimeError, Unsupported):  # else it would come into force at some later reset
            smi.change(host, "-i", gpu.uuid, "-mig", opposite)
        raise
    except Unsupported:  # the mode is pending: this platform does not reset the GPU by itself
        pass
    if _mode(host, gpu.uuid) == (mode, mode):
        return True
    try:
        smi.change(host, "-i", gpu.uuid, "--gpu-reset")
    except (RuntimeError, Unsupported):
        if _mode(host, gpu.uuid)[1] == mode:
            return False
        raise
    return _mode(host, gpu.uuid) == (mode, mode)


def _mode(host: Host, uuid: str) -> tuple[str, str]:
    """MIG mode now, and after the next reset."""
    current = smi.gpu(host, uuid)
    if current is None:
        raise Unreadable(f"{uuid} is not listed any more")
    return current.value("mig.mode.current"), current.value("mig.mode.pending")


def _refresh_cdi(host: Host) -> None:
    """Let the container toolkit list the new devices; runtimes would hand out ones that no longer exist."""
    if not any(host.exists(f"{folder}/{CDI}") for folder in UNIT_FOLDERS):
        return
    host.run("systemctl", "reset-failed", "--", CDI, changes=True)  # else one restart per GPU is too many
    done = host.run("systemctl", "restart", "--", CDI, changes=True)
    if not done.ok:
        raise RuntimeError(f"the layout is made, but {CDI} failed: {done.last_line}")
