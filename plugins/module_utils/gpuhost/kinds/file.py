"""A small file that is managed whole: its content, mode and owner."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from ..model import Knob, Reading
from ..settings import line
from ..settings.file import described
from ..view import View
from ._common import read_each, settled
from ._types import Type

# What other kinds own, and what is no file to keep: one setting has one owner.
OTHERS = ("/proc/", "/sys/", "/dev/", "/run/", "/var/lib/gpuctl/", "/etc/gpuctl/", *line.FORMS)


class Content(NamedTuple):
    """A mapping with `content`, and if wanted `mode` ("0644") and `owner` ("0:0", numbers); or the content alone."""

    def check(self, value: object) -> str:
        given: dict[str, object] = dict(value) if isinstance(value, Mapping) else {"content": value}
        content, mode, owner = given.pop("content", None), given.pop("mode", "0644"), given.pop("owner", "0:0")
        if given or not isinstance(content, str):
            raise ValueError("must be a text, or a mapping of content, mode and owner")
        if not isinstance(mode, str) or not mode.isdigit() or len(mode) != 4 or set(mode) - set("01234567"):
            raise ValueError(f'mode must be four octal digits in quotes, such as "0644", not {mode!r}')
        uid, _, gid = str(owner).partition(":")
        if not (uid.isdigit() and gid.isdigit()):
            raise ValueError(f'owner must be two numbers such as "0:0", not {owner!r}')
        return described(content, int(mode, 8), int(uid), int(gid))


def type_of(key: str) -> Type | None:
    """What values a key takes; a key is an absolute path that no other kind owns."""
    proper = key.startswith("/") and os.path.normpath(key) == key and not key.startswith(OTHERS)
    return Content() if proper else None


def read(view: View, knobs: Sequence[Knob]) -> list[Reading]:
    """Whether each file is there, as wanted."""
    return read_each(view, knobs, _read)


def _read(view: View, knob: Knob) -> Reading:
    setting = f"file:{knob.key}"
    steps = view.step(setting, knob.value)
    held = "as wanted" if not steps else "absent" if steps[0].before is None else "different"
    return settled(knob, now=held, boot=held, steps=steps).but(wanted="as wanted")
