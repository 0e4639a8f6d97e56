"""Read-ahead of block devices (at least the desired value), and of NFS file systems by a rule of udev."""

from __future__ import annotations

import re
from collections.abc import Sequence

from ..host import Host
from ..model import Knob, Reading, Step, Unsupported
from ..readahead import smallest, too_small
from ..resources.file import described
from ..snapshot import HostSnapshot
from ..startup.assignments import rest_after
from ._at_boot import at_boot
from ._common import read_all, settled
from ._types import Int, Type

TYPES: dict[str, Type] = {"read_ahead_kb": Int(0, 1 << 20), "nfs_read_ahead_kb": Int(0, 1 << 20)}
SETTERS = ("/queue/read_ahead_kb", "--setra")
MOUNTED = "/proc/fs/nfsfs/volumes"  # the fourth column is the device, "0:45"
RULES = "/etc/udev/rules.d/99-zz-gpuctl-nfs.rules"
# Each mounted NFS file system has a device of its own, made when it is mounted.
RULE = """# Written by gpuctl; `gpuctl rollback` takes it back.
SUBSYSTEM=="bdi", ACTION=="add", \\
PROGRAM="/usr/bin/awk -v bdi=$kernel 'BEGIN{{ret=1}} {{if ($4 == bdi) {{ret=0}}}} END{{exit ret}}' {mounted}", \\
ATTR{{read_ahead_kb}}="{kib}"
"""


def type_of(key: str) -> Type | None:
    """Type of a key's value."""
    return TYPES.get(key)


def read(snapshot: HostSnapshot, knobs: Sequence[Knob]) -> list[Reading]:
    """Values of the devices now, and those that gpuctl-boot and udev give them later."""
    return read_all(snapshot, knobs, lambda snapshot, knob: READERS[knob.key](snapshot, knob))


def _of_disks(snapshot: HostSnapshot, knob: Knob) -> Reading:
    now = smallest(snapshot.host)
    if now is None:
        raise Unsupported("this host has no disks, arrays or volumes of its own")
    desired = int(knob.value)
    steps = tuple(Step(f"value:{path}", kib, knob.value) for path, kib in too_small(snapshot.host, desired).items())
    tuned = snapshot.owners.tuned_option(knob.value, "readahead")
    rivals = [rival for rival in tuned if rival.value.lstrip(">") != knob.value]
    rivals += [
        rival for rival in snapshot.owners.mentions(knob.value, *SETTERS) if not _is_enough(rival.value, desired)
    ]
    boot, kept = at_boot(snapshot, knob.name, knob.value, rivals)
    return settled(knob, now=str(min(now, desired)), boot=boot, steps=steps + kept, conflicts=tuple(rivals))


def _is_enough(text: str, desired: int) -> bool:
    """True if a line sets a read-ahead of at least `desired` KiB."""
    value = re.match(r"\W*(\d+)\b", rest_after(text, SETTERS[0]) or "")
    return bool(value) and int(value[1]) >= desired  # type: ignore[index]


def _of_nfs(snapshot: HostSnapshot, knob: Knob) -> Reading:
    rule = snapshot.step(f"file:{RULES}", described(RULE.format(mounted=MOUNTED, kib=knob.value)))
    paths = [path for device in _devices(snapshot.host) if snapshot.host.exists(path := _bdi(device))]
    values = [step for path in paths for step in snapshot.step(f"value:{path}", knob.value)]
    rivals = [
        rival._replace(wins=rival.where.partition(":")[0].rpartition("/")[2] > RULES.rpartition("/")[2])
        for rival in snapshot.owners.mentions(knob.value, "/bdi/read_ahead_kb")
        if rival.owner == "udev"
    ]
    now = " or ".join(sorted({snapshot.host.value(path) or "?" for path in paths}))
    return settled(
        knob,
        now=now or "nothing mounted",
        boot="default of the kernel" if rule else knob.value,
        steps=(*rule, *values),
        conflicts=tuple(rivals),
    )


def _devices(host: Host) -> list[str]:
    """Devices of the mounted NFS file systems; several mounts share one."""
    rows = [line.split() for line in (host.read_or_none(MOUNTED) or "").splitlines()[1:]]
    return sorted({row[3] for row in rows if len(row) > 3})


def _bdi(device: str) -> str:
    return f"/sys/class/bdi/{device}/read_ahead_kb"


READERS = {"read_ahead_kb": _of_disks, "nfs_read_ahead_kb": _of_nfs}
