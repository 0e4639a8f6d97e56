"""A line of somebody else's file, commented out: "comment:/etc/fstab:UUID=… none swap sw 0 0"."""

from __future__ import annotations

import os
import posixpath

from ..host import Host

MARK = "#gpuctl# "


class Comment:
    """One line: "on" if active, "off" if commented out by our mark, None if the file has neither."""

    def __init__(self, place: str) -> None:
        self.path, _, self.line = place.partition(":")

    def read(self, host: Host) -> str | None:
        lines = [line for line, _ in lines_of(host.read_or_none(self.path) or "")]
        if self.line in lines:
            return "on"
        return "off" if MARK + self.line in lines else None

    def write(self, host: Host, text: str | None) -> None:
        old, new = (self.line, MARK + self.line) if text == "off" else (MARK + self.line, self.line)
        path = _target(host, self.path)
        content = host.read(path)
        facts = os.stat(host.real(path))
        changed = "".join((new if line == old else line) + end for line, end in lines_of(content))
        host.replace(path, changed, facts.st_mode & 0o7777, (facts.st_uid, facts.st_gid))


def _target(host: Host, path: str) -> str:
    """The file that a link leads to, so that the link stays one; the path itself if it is no link."""
    for _ in range(10):
        try:
            path = posixpath.normpath(posixpath.join(posixpath.dirname(path), host.readlink(path)))
        except OSError:
            break
    return path


def lines_of(content: str) -> list[tuple[str, str]]:
    """(line, line ending) pairs, so that the rest of the file stays unchanged to the byte."""
    whole = content.splitlines(keepends=True)
    return [(line.rstrip("\r\n"), line[len(line.rstrip("\r\n")) :]) for line in whole]
