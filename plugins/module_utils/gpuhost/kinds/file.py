"""A small file that is managed whole: its content, mode and owner."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from ..host import Host
from ..model import Knob, Reading, Refused
from ..resources.file import described
from ..snapshot import HostSnapshot
from ._common import read_all, settled
from ._types import Type

# Files of the kernel or lost at a reboot; and fstab, where swap.off disables lines.
OTHERS = ("/proc/", "/sys/", "/dev/", "/run/", "/tmp/", "/etc/fstab")  # noqa: S108
MOST = 1024 * 1024  # bytes, as the record keeps the previous content


class Content(NamedTuple):
    """A mapping with `content` and optional `mode` ("0644") and `owner` ("0:0", ids); or the content alone."""

    path: str

    def check(self, value: object) -> str:
        if "gpuctl" in self.path or self.path.startswith(OTHERS):
            raise ValueError("cannot be a file knob: other knobs manage it")
        fields: dict[str, object] = dict(value) if isinstance(value, Mapping) else {"content": value}
        content, mode, owner = fields.pop("content", None), fields.pop("mode", "0644"), fields.pop("owner", "0:0")
        if fields or not isinstance(content, str) or len(content) > MOST:
            raise ValueError("must be a small text, or a mapping of content, mode and owner")
        if not isinstance(mode, str) or not re.fullmatch(r"[0-7]{4}", mode):
            raise ValueError(f'mode must be four octal digits in quotes, such as "0644", not {mode!r}')
        if not isinstance(owner, str) or not re.fullmatch(r"\d+:\d+", owner):
            raise ValueError(f'owner must be two numbers in quotes, such as "0:0", not {owner!r}')
        uid, _, gid = owner.partition(":")
        return described(content, int(mode, 8), int(uid), int(gid))


def type_of(key: str) -> Type | None:
    """Type of a key's value; a key is an absolute path."""
    return Content(key) if key.startswith("/") and key != "/" and os.path.normpath(key) == key else None


def read(snapshot: HostSnapshot, knobs: Sequence[Knob]) -> list[Reading]:
    """State of each file, without its content, which may be secret."""
    return [reading.but(desired="as wanted") for reading in read_all(snapshot, knobs, _read)]


def _read(snapshot: HostSnapshot, knob: Knob) -> Reading:
    _refuse_what_undo_could_not_put_back(snapshot.host, knob.key)
    steps = snapshot.step(f"file:{knob.key}", knob.value)
    state = "as wanted" if not steps else "absent" if steps[0].before is None else "differs"
    return settled(knob, now=state, boot=state, steps=steps)


def _refuse_what_undo_could_not_put_back(host: Host, path: str) -> None:
    real = host.real(path)
    if os.path.islink(real):
        raise Refused(f"{path} is a link to {host.readlink(path)}: manage that file, or remove the link")
    if os.path.isdir(real):
        raise Refused(f"{path} is a folder")
    if os.path.exists(real) and os.path.getsize(real) > MOST:
        raise Refused(f"{path} has {os.path.getsize(real)} bytes, more than the record can keep for undo")
