"""Who else sets kernel values on this host: sysctl files, tuned, tmpfiles, units, cloud-init."""

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
# cloud-init runs its commands at the end of every boot or of the first one: later than anything of ours.
LATE = ("/etc/cloud/cloud.cfg", "/etc/cloud/cloud.cfg.d/*.cfg", "/etc/rc.local", "/etc/rc.d/rc.local")
UNIT_FILES = (
    "/etc/systemd/system/*.service",
    "/run/systemd/system/*.service",
    "/usr/local/lib/systemd/system/*.service",
)


class Said(NamedTuple):
    """One line of somebody's file."""

    owner: str
    path: str
    number: int
    text: str

    @property
    def where(self) -> str:
        return f"{self.path}:{self.number}"


class Owners:
    """Read once a visit, only as far as asked."""

    def __init__(self, host: Host) -> None:
        self.host = host

    def _lines(self, owner: str, path: str) -> Iterator[Said]:
        for number, line in enumerate((self.host.read_or_none(path) or "").splitlines(), 1):
            text = line.strip()
            if text and not text.startswith(("#", ";")):
                yield Said(owner, path, number, text)

    @cached_property
    def sysctl_lines(self) -> list[tuple[str, str, Said]]:
        """(key with dots, value, line) in the order in which systemd-sysctl applies them: the last one wins."""
        found = []
        for path in in_order(self.host, SYSCTL_FOLDERS, ".conf"):
            for said in self._lines("sysctl.d", path):
                key, equals, value = said.text.partition("=")
                if equals:
                    found.append((dotted(key.strip().lstrip("-")), " ".join(value.split()), said))
        return found

    def sysctl_at_boot(self, key: str) -> tuple[str, Said] | None:
        """The value that a key has after a boot and the line that gives it; None where nobody sets it."""
        exact = [(value, said) for k, value, said in self.sysctl_lines if k == key]
        found = exact or [(v, s) for k, v, s in self.sysctl_lines if "*" in k and fnmatchcase(key, k)]
        return found[-1] if found else None

    @cached_property
    def tuned(self) -> list[Said]:
        """The lines of the active tuned profile and of those it includes; empty where tuned is not switched on."""
        if not self.host.glob("/etc/systemd/system/*.wants/tuned.service"):
            return []
        active = (self.host.read_or_none("/etc/tuned/active_profile") or "").split()
        found: list[Said] = []
        seen: set[str] = set()
        while active:
            name = active.pop()
            path = next((p for f in TUNED_FOLDERS if self.host.exists(p := f"{f}/{name}/tuned.conf")), None)
            if path is None or path in seen:
                continue
            seen.add(path)
            lines = list(self._lines(f"tuned profile {name}", path))
            found += lines
            for said in lines:
                key, _, value = said.text.partition("=")
                if key.strip() == "include":
                    active += re.split(r"[\s,]+", value.strip())
        return found

    @cached_property
    def tuned_gives_way(self) -> bool:
        """tuned applies sysctl files again after its own values, unless told not to."""
        text = self.host.read_or_none("/etc/tuned/tuned-main.conf") or ""
        said = re.search(r"^\s*reapply_sysctl\s*=\s*(\S+)", text, re.MULTILINE)
        return said is None or said.group(1).lower() not in ("0", "false", "no")

    @cached_property
    def _others(self) -> list[tuple[Said, bool]]:
        """(line, whether it has the last word over our boot unit) of tmpfiles, units and cloud-init."""
        found = [
            (said, False)
            for path in in_order(self.host, TMPFILES_FOLDERS, ".conf")
            for said in self._lines("tmpfiles.d", path)
            if said.text[0] == "w"
        ]
        for pattern in UNIT_FILES:
            for path in self.host.glob(pattern):
                if "/gpuctl-" not in path:
                    found += [(s, False) for s in self._lines("unit", path) if s.text.startswith("Exec")]
        for pattern in LATE:
            found += [(s, True) for path in self.host.glob(pattern) for s in self._lines("cloud-init", path)]
        return found

    def mentions(self, wanted: str, *needles: str) -> list[Conflict]:
        """Everybody whose line names one of these and not the wanted value behind it."""
        found = []
        for said, wins in self._others:
            rest = next((said.text.partition(needle)[2] for needle in needles if needle in said.text), None)
            if rest is not None and wanted not in re.split(r"[\s=\"';]+", rest):
                found.append(Conflict(said.owner, said.where, said.text, wins))
        return found

    def tuned_option(self, wanted: str, *names: str) -> list[Conflict]:
        """The active tuned profile's lines "name=other value"; our boot unit runs after it: the last word is ours."""
        found = []
        for said in self.tuned:
            key, equals, value = said.text.partition("=")
            if equals and key.strip() in names and " ".join(value.split()) != wanted:
                found.append(Conflict(said.owner, said.where, value.strip(), wins=False))
        return found

    def sysctl_rivals(self, key: str, wanted: str) -> list[Conflict]:
        """Others who give a key another value, and whether theirs will stand after a reboot."""
        winner = self.sysctl_at_boot(key)
        found = [
            Conflict(said.owner, said.where, value, wins=winner is not None and said == winner[1])
            for k, value, said in self.sysctl_lines
            if k == key and value != wanted and said.path != SYSCTL
        ]
        found += [rival._replace(wins=not self.tuned_gives_way) for rival in self.tuned_option(wanted, key)]
        return found + self.mentions(wanted, "/proc/sys/" + key.replace(".", "/"), f"{key}=", f"{key} =")


def dotted(key: str) -> str:
    """A sysctl name with dots; where the first separator is a slash, slashes and dots change places."""
    slash, dot = key.find("/"), key.find(".")
    if slash == -1 or (dot != -1 and dot < slash):
        return key
    return key.translate(str.maketrans("/.", "./"))


def in_order(host: Host, folders: tuple[str, ...], suffix: str) -> list[str]:
    """The files of drop-in folders as systemd reads them: by name, an earlier folder hides a later one's namesake."""
    found: dict[str, str] = {}
    for folder in reversed(folders):
        found.update({name: f"{folder}/{name}" for name in host.listdir(folder) if name.endswith(suffix)})
    return [found[name] for name in sorted(found)]
