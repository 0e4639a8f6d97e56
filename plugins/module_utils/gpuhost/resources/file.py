"""A whole text file with its mode and owner: "file:/etc/systemd/system/gpuctl-boot.service".

The text is a first line "0644 0:0", then the content, so that undo restores all of it.
"""

from __future__ import annotations

import os

from ..host import Host


def described(content: str, mode: int = 0o644, uid: int = 0, gid: int = 0) -> str:
    """The text of a file with this content, mode and owner."""
    return f"{mode:04o} {uid}:{gid}\n{content}"


class File:
    """One file that gpuctl manages as a whole."""

    def __init__(self, path: str) -> None:
        self.path = path

    def read(self, host: Host) -> str | None:
        content = host.read_or_none(self.path)
        if content is None:
            return None
        facts = os.stat(host.real(self.path))
        return described(content, facts.st_mode & 0o7777, facts.st_uid, facts.st_gid)

    def write(self, host: Host, text: str | None) -> None:
        if text is None:
            host.remove(self.path)
            return
        head, _, content = text.partition("\n")
        mode, _, owner = head.partition(" ")
        uid, _, gid = owner.partition(":")
        host.replace(self.path, content, int(mode, 8), (int(uid), int(gid)))
