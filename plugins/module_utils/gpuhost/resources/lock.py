"""A lock of dnf on a package's version: "lock:nvidia-driver-cuda", text "3:580.178.04-1.el9"; None without one.

Locks are lines of the list that the plugin versionlock reads, in the form of `dnf versionlock add`, so that
`dnf versionlock` lists and deletes them.
"""

from __future__ import annotations

import os
import re

from ..host import Host

LIST = "/etc/dnf/plugins/versionlock.list"
PLUGIN = "python3-dnf-plugin-versionlock"


class Lock:
    """One package, by its name; other lines of the list stay as they are."""

    def __init__(self, name: str) -> None:
        self.name = name
        self._line = re.compile(rf"{re.escape(name)}-(\d+:[^-\s]+-[^-\s]+)\.\*\n?")

    def read(self, host: Host) -> str | None:
        versions = [match[1] for line in _lines(host) if (match := self._line.fullmatch(line.strip("\n"))) is not None]
        return ",".join(version.removeprefix("0:") for version in versions) or None

    def write(self, host: Host, text: str | None) -> None:
        lines = [line for line in _lines(host) if not self._line.fullmatch(line)]
        if text is not None:
            if lines and not lines[-1].endswith("\n"):
                lines[-1] += "\n"
            versions = (version if ":" in version else f"0:{version}" for version in text.split(","))
            lines += [f"{self.name}-{version}.*\n" for version in versions]
        mode, owner = 0o644, (0, 0)
        if host.exists(LIST):
            facts = os.stat(host.real(LIST))
            mode, owner = facts.st_mode & 0o7777, (facts.st_uid, facts.st_gid)
        host.replace(LIST, "".join(lines), mode, owner)


def _lines(host: Host) -> list[str]:
    return (host.read_or_none(LIST) or "").splitlines(keepends=True)
