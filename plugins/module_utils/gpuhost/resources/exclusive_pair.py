"""A pair of exclusive kernel files: "either:/proc/sys/vm/dirty_bytes:/proc/sys/vm/dirty_ratio".

Writing one resets the other to 0, which the kernel refuses as a written value. So the text names the file in force,
"dirty_ratio=20", and undo writes that file.
"""

from __future__ import annotations

import posixpath

from ..host import Host


class Either:
    """The pair, named by two paths separated by a colon."""

    def __init__(self, paths: str) -> None:
        self.paths = paths.split(":")

    def read(self, host: Host) -> str | None:
        texts = {posixpath.basename(p): host.read_or_none(p) for p in self.paths}
        if None in texts.values():
            return None
        set_now = [f"{name}={text.strip()}" for name, text in texts.items() if text and text.strip() != "0"]
        return set_now[0] if set_now else f"{posixpath.basename(self.paths[-1])}=0"

    def write(self, host: Host, text: str | None) -> None:
        name, _, value = (text or "").partition("=")
        path = next((p for p in self.paths if posixpath.basename(p) == name), None)
        if path is None:
            raise RuntimeError(f"{text!r} names none of {', '.join(self.paths)}")
        host.write(path, value)
