"""Other owners of kernel values on this host: sysctl files, tuned, tmpfiles, units, cloud-init."""

from __future__ import annotations

import re
from collections.abc import Iterator
from fnmatch import fnmatchcase
from functools import cached_property
from typing import NamedTuple

from .host import Host
from .model import Conflict
from .resources.line import SYSCTL

SYSCTL_FOLDERS = (
    "/etc/sysctl.d",
    "/run/sysctl.d",
    "/usr/local/lib/sysctl.d",
    "/usr/lib/sysctl.d",
    "/lib/sysctl.d",
)
TMPFILES_FOLDERS = ("/etc/tmpfiles.d", "/run/tmpfiles.d", "/usr/lib/tmpfiles.d")
TUNED_FOLDERS = ("/etc/tuned/profiles", "/etc/tuned", "/usr/lib/tuned/profiles", "/usr/lib/tuned")
# cloud-init runs its commands at the end of a boot, after anything of ours.
LATE = ("/etc/cloud/cloud.cfg", "/etc/cloud/cloud.cfg.d/*.cfg", "/etc/rc.local", "/etc/rc.d/rc.local")
UNIT_FILES = (
    "/etc/systemd/system/*.service",
    "/run/systemd/system/*.service",
    "/usr/local/lib/systemd/system/*.service",
)


class ConfigLine(NamedTuple):
    """One line of a configuration file, and the owner of the file."""

    owner: str
    path: str
    number: int
    text: str

    @property
    def where(self) -> str:
        return f"{self.path}:{self.number}"


class Owners:
    """The owners' files, read on first use and once per visit."""

    def __init__(self, host: Host) -> None:
        self.host = host

    def _lines(self, owner: str, path: str) -> Iterator[ConfigLine]:
        for number, line in enumerate((self.host.read_or_none(path) or "").splitlines(), 1):
            text = line.strip()
            if text and not text.startswith(("#", ";")):
                yield ConfigLine(owner, path, number, text)

    @cached_property
    def sysctl_lines(self) -> list[tuple[str, str, ConfigLine]]:
        """(dotted key, value, line) in the order in which systemd-sysctl applies them; the last one wins."""
        rows = []
        for path in in_order(self.host, SYSCTL_FOLDERS, ".conf"):
            for line in self._lines("sysctl.d", path):
                key, equals, value = line.text.partition("=")
                if equals:
                    rows.append((dotted(key.strip().lstrip("-")), " ".join(value.split()), line))
        return rows

    def sysctl_at_boot(self, key: str) -> tuple[str, ConfigLine] | None:
        """A key's value after a boot, and the line that sets it; None if no file sets it."""
        exact = [(value, line) for k, value, line in self.sysctl_lines if k == key]
        matches = exact or [(v, s) for k, v, s in self.sysctl_lines if "*" in k and fnmatchcase(key, k)]
        return matches[-1] if matches else None

    @cached_property
    def tuned(self) -> list[ConfigLine]:
        """Lines of the active tuned profile and of those it includes; empty if tuned is not enabled."""
        if not self.host.glob("/etc/systemd/system/*.wants/tuned.service"):
            return []
        active = (self.host.read_or_none("/etc/tuned/active_profile") or "").split()
        profile_lines: list[ConfigLine] = []
        visited: set[str] = set()
        while active:
            name = active.pop()
            path = next((p for f in TUNED_FOLDERS if self.host.exists(p := f"{f}/{name}/tuned.conf")), None)
            if path is None or path in visited:
                continue
            visited.add(path)
            lines = list(self._lines(f"tuned profile {name}", path))
            profile_lines += lines
            for line in lines:
                key, _, value = line.text.partition("=")
                if key.strip() == "include":
                    active += re.split(r"[\s,]+", value.strip())
        return profile_lines

    @cached_property
    def tuned_gives_way(self) -> bool:
        """True if tuned reapplies sysctl files after its own values, which is its default."""
        text = self.host.read_or_none("/etc/tuned/tuned-main.conf") or ""
        option = re.search(r"^\s*reapply_sysctl\s*=\s*(\S+)", text, re.MULTILINE)
        return option is None or option.group(1).lower() not in ("0", "false", "no")

    @cached_property
    def _others(self) -> list[tuple[ConfigLine, bool]]:
        """(line, True if it runs after our boot unit) of tmpfiles, units and cloud-init."""
        rows = [
            (line, False)
            for path in in_order(self.host, TMPFILES_FOLDERS, ".conf")
            for line in self._lines("tmpfiles.d", path)
            if line.text[0] == "w"
        ]
        for pattern in UNIT_FILES:
            for path in self.host.glob(pattern):
                if "/gpuctl-" not in path:
                    rows += [(s, False) for s in self._lines("unit", path) if s.text.startswith("Exec")]
        for pattern in LATE:
            rows += [(s, True) for path in self.host.glob(pattern) for s in self._lines("cloud-init", path)]
        return rows

    def mentions(self, desired: str, *needles: str) -> list[Conflict]:
        """Owners whose line contains one of `needles`, not followed by the desired value."""
        conflicts = []
        for line, wins in self._others:
            rest = next((line.text.partition(needle)[2] for needle in needles if needle in line.text), None)
            if rest is not None and desired not in re.split(r"[\s=\"';]+", rest):
                conflicts.append(Conflict(line.owner, line.where, line.text, wins))
        return conflicts

    def tuned_option(self, desired: str, *names: str) -> list[Conflict]:
        """Lines of the active tuned profile that give another value; our boot unit runs after tuned and wins."""
        conflicts = []
        for line in self.tuned:
            key, equals, value = line.text.partition("=")
            if equals and key.strip() in names and " ".join(value.split()) != desired:
                conflicts.append(Conflict(line.owner, line.where, value.strip(), wins=False))
        return conflicts

    def sysctl_rivals(self, key: str, desired: str) -> list[Conflict]:
        """Other owners that give a key another value."""
        winner = self.sysctl_at_boot(key)
        conflicts = [
            Conflict(line.owner, line.where, value, wins=winner is not None and line == winner[1])
            for k, value, line in self.sysctl_lines
            if k == key and value != desired and line.path != SYSCTL
        ]
        conflicts += [rival._replace(wins=not self.tuned_gives_way) for rival in self.tuned_option(desired, key)]
        return conflicts + self.mentions(desired, "/proc/sys/" + key.replace(".", "/"), f"{key}=", f"{key} =")


def dotted(key: str) -> str:
    """A sysctl name with dots; if the first separator is a slash, slashes and dots are swapped."""
    slash, dot = key.find("/"), key.find(".")
    if slash == -1 or (dot != -1 and dot < slash):
        return key
    return key.translate(str.maketrans("/.", "./"))


def in_order(host: Host, folders: tuple[str, ...], suffix: str) -> list[str]:
    """Files of drop-in folders in the order of systemd: by name; a file of an earlier folder hides its namesakes."""
    by_name: dict[str, str] = {}
    for folder in reversed(folders):
        by_name.update({name: f"{folder}/{name}" for name in host.listdir(folder) if name.endswith(suffix)})
    return [by_name[name] for name in sorted(by_name)]
