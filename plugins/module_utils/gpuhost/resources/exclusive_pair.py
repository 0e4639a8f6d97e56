"""Two kernel files of which one holds a value at a time: "either:/proc/sys/vm/dirty_bytes:/proc/sys/vm/dirty_ratio".

Writing one makes the other 0, and 0 itself is refused by the kernel: so the text names the one that counts,
"dirty_ratio=20", and putting it back writes that one.
"""

from __future__ import annotations

import posixpath

from ..host import Host


class Either:
    """The pair, named by two paths joined with a colon."""

    def __init__(self, paths: str) -> None:
        self.paths = paths.split(":")

    def read(self, host: Host) -> str | None:
        found = {posixpath.basename(p): host.read_or_none(p) for p in self.paths}
        if None in found.values():
            return None
        held = [f"{name}={text.strip()}" for name, text in found.items() if text and text.strip() != "0"]
        return held[0] if held else f"{posixpath.basename(self.paths[-1])}=0"

    def write(self, host: Host, text: str | None) -> None:
        name, _, value = (text or "").partition("=")
        path = next((p for p in self.paths if posixpath.basename(p) == name), None)
        if path is None:
            raise RuntimeError(f"{text!r} names none of {', '.join(self.paths)}")
        host.write(path, value)
