"""Other owners of kernel values on this host: sysctl files, tuned, and lines that take effect at startup."""

from __future__ import annotations

import re
from fnmatch import fnmatchcase
from functools import cached_property

from .host import Host
from .known_writers import KnownWriters
from .model import Conflict
from .resources.line import SYSCTL
from .startup import startup_lines
from .startup.assignments import assigned, rest_after
from .startup.lines import ConfigLine, StartupLine, config_lines, in_order
from .startup.search import Search

SYSCTL_FOLDERS = (
    "/etc/sysctl.d",
    "/run/sysctl.d",
    "/usr/local/lib/sysctl.d",
    "/usr/lib/sysctl.d",
    "/lib/sysctl.d",
)
TUNED_FOLDERS = ("/etc/tuned/profiles", "/etc/tuned", "/usr/lib/tuned/profiles", "/usr/lib/tuned")
MAIN = "/etc/sysctl.conf"
# Other names that set the same value. kernel.watchdog sets both of its detectors.
ALIASES = {
    "vm.nr_hugepages": ("vm.nr_hugepages_mempolicy",),
    "net.ipv4.ip_forward": ("net.ipv4.conf.all.forwarding",),
    "net.ipv4.conf.all.forwarding": ("net.ipv4.ip_forward",),
    "net.netfilter.nf_conntrack_max": ("net.nf_conntrack_max",),
    "net.nf_conntrack_max": ("net.netfilter.nf_conntrack_max",),
    "kernel.nmi_watchdog": ("kernel.watchdog",),
    "kernel.soft_watchdog": ("kernel.watchdog",),
}
# Files below /sys with the same value, for all memory or for one NUMA node.
SAME_FILES = {"vm.nr_hugepages": "hugepages/hugepages-2048kB/nr_hugepages"}


class Owners:
    """The owners' files, read on first use and once per visit."""

    def __init__(self, host: Host) -> None:
        self.host = host
        self.search = Search(host)
        self.programs = KnownWriters(self.search)

    @cached_property
    def sysctl_lines(self) -> list[tuple[str, str, ConfigLine]]:
        """(dotted key, value, line) in the order in which systemd-sysctl applies them; the last one wins."""
        rows = []
        for path in in_order(self.host, SYSCTL_FOLDERS, ".conf"):
            for line in config_lines(self.host, "sysctl.d", path):
                key, equals, value = line.text.partition("=")
                if equals:
                    rows.append((dotted(key.strip().lstrip("-")), " ".join(value.split()), line))
        return rows

    def sysctl_at_boot(self, key: str, twin: str = "") -> tuple[str, ConfigLine] | None:
        """A key's value after a boot, and the line that sets it; None if no file sets it.

        `twin`: the key that excludes this one; where it is set last, the value is "TWIN=VALUE".
        """
        exact = [(_shown(k, v, twin), s) for k, v, s in self.sysctl_lines if _sets(k, v, key, twin)]
        matches = exact or [
            (v, s) for k, v, s in self.sysctl_lines if "*" in k and any(fnmatchcase(n, k) for n in names_of(key))
        ]
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
            lines = list(config_lines(self.host, f"tuned profile {name}", path))
            profile_lines += lines
            for line in lines:
                key, _, value = line.text.partition("=")
                if key.strip() == "include":
                    active += re.split(r"[\s,]+", value.strip())
        return profile_lines

    @cached_property
    def tuned_yields(self) -> bool:
        """True if tuned reapplies sysctl files after its own values, which is its default."""
        text = self.host.read_or_none("/etc/tuned/tuned-main.conf") or ""
        option = re.search(r"^\s*reapply_sysctl\s*=\s*(\S+)", text, re.MULTILINE)
        return option is None or option.group(1).lower() not in ("0", "false", "no")

    @cached_property
    def _startup(self) -> list[StartupLine]:
        """Lines at startup, with those of the scripts of the active tuned profile."""
        rows = startup_lines(self.search)
        for line in self.tuned:
            path = _script_of(line)
            if path:
                rows += self.search.script_lines(line.owner, path, runs=True, late=False)
        return rows

    @cached_property
    def _startup_text(self) -> str:
        return "\n".join(row.line.text for row in self._startup)

    @cached_property
    def _tmpfiles(self) -> list[StartupLine]:
        """The lines that may name a sysctl by a pattern alone."""
        return [row for row in self._startup if row.line.owner == "tmpfiles.d"]

    def mentions(self, desired: str, *needles: str, all_win: bool = False) -> list[Conflict]:
        """Owners whose line contains one of `needles` and not the desired value; `wins` for those after gpuctl-boot.

        `all_win`: nothing of ours runs at boot, so that every line wins that takes effect then or later.
        """
        conflicts: list[Conflict] = []
        if not any(needle in self._startup_text for needle in needles):
            return conflicts
        for line, runs, late in self._startup:
            values = (rest_after(line.text, needle) for needle in needles)
            rest = next((value for value in values if value is not None), None)
            if rest is not None and desired not in re.split(r"[\s=\"';]+", rest):
                conflicts.append(Conflict(line.owner, line.where, line.text, wins=runs if all_win else late))
        return conflicts

    def tuned_option(self, desired: str, *names: str) -> list[Conflict]:
        """Lines of the active tuned profile that give another value; our boot unit runs after tuned and wins."""
        conflicts = []
        for line in self.tuned:
            key, equals, value = line.text.partition("=")
            if equals and key.strip() in names and " ".join(value.split()) != desired:
                conflicts.append(Conflict(line.owner, line.where, value.strip(), wins=False))
        return conflicts

    def sysctl_rivals(self, key: str, desired: str, twin: str = "", due: bool = False) -> list[Conflict]:
        """Other owners that give a key another value, or its twin any.

        `due`: our line is not written yet, and will be last in our file.
        """
        rows = [(k, v, s) for k, v, s in self.sysctl_lines if _sets(k, v, key, twin)]
        conflicts = []
        for k, value, line in rows:
            ours = line.path == SYSCTL
            if (k != twin and value == desired) or (ours and due):
                continue
            behind = ours or line.path.rpartition("/")[2] > SYSCTL.rpartition("/")[2]
            conflicts.append(
                Conflict(line.owner, line.where, _shown(k, value, twin), wins=behind and line == rows[-1][2])
            )
        tuned = self.tuned_option(desired, key) + [
            rival._replace(value=f"{twin}={rival.value}") for rival in self.tuned_option("0", twin) if twin
        ]
        conflicts += [rival._replace(wins=not self.tuned_yields) for rival in tuned]
        for name in names_of(key):
            conflicts += self._sysctl_at_startup(name, desired)
        conflicts += self._sysctl_at_startup(twin, "0", f"{twin}=")
        if key in SAME_FILES:
            conflicts += self._file_at_startup(SAME_FILES[key], desired)
        return conflicts + self.programs.rivals(key, desired)

    def _sysctl_at_startup(self, key: str, fine: str, prefix: str = "") -> list[Conflict]:
        """Lines that set a key after, or at the same time as, systemd-sysctl does."""
        if not key:
            return []
        rows = self._startup if key.rpartition(".")[2] in self._startup_text else self._tmpfiles
        values = [(row, assigned(row.line, key)) for row in rows]
        return [
            Conflict(line.owner, line.where, f"{prefix}{value}" if value else line.text, wins=runs)
            for (line, runs, _), value in values
            if value is not None and value != fine
        ]

    def _file_at_startup(self, path: str, desired: str) -> list[Conflict]:
        """Lines that write a kernel file, by the end of its path; where it is a sysctl, nothing of ours runs later."""
        patterns = [
            row.line for row in self._tmpfiles if fnmatchcase(f"/sys/kernel/mm/{path}", row.line.text.split()[1])
        ]
        by_pattern = [
            Conflict(line.owner, line.where, line.text, wins=True) for line in patterns if path not in line.text
        ]
        return self.mentions(desired, path, all_win=True) + by_pattern

    def main_file_lines(self, key: str, desired: str, twin: str = "") -> list[str]:
        """Lines of /etc/sysctl.conf, as written, that give a key another value, or its twin any.

        `sysctl --system` and tuned apply that file after all of sysctl.d.
        """
        lines = []
        for line in (self.host.read_or_none(MAIN) or "").splitlines():
            name, equals, value = line.strip().partition("=")
            k, v = dotted(name.strip().lstrip("-")), " ".join(value.split())
            if equals and _sets(k, v, key, twin) and (k == twin or v != desired):
                lines.append(line)
        return lines


def _script_of(line: ConfigLine) -> str:
    """The script that a line of a tuned profile names; empty for other lines."""
    key, _, value = line.text.partition("=")
    path = value.strip().replace("${i:PROFILE_DIR}", line.path.rpartition("/")[0])
    if key.strip() != "script" or not path:
        return ""
    return path if path.startswith("/") else f"{line.path.rpartition('/')[0]}/{path}"


def names_of(key: str) -> tuple[str, ...]:
    """A sysctl and its other names."""
    return (key, *ALIASES.get(key, ()))


def _sets(k: str, value: str, key: str, twin: str) -> bool:
    """True if a line for `k` sets the key, or its twin; a twin of 0 is not in force."""
    return k in names_of(key) or (k == twin != "" and value != "0")


def _shown(k: str, value: str, twin: str) -> str:
    return f"{k}={value}" if k == twin else value


def dotted(key: str) -> str:
    """A sysctl name with dots; if the first separator is a slash, slashes and dots are swapped."""
    slash, dot = key.find("/"), key.find(".")
    if slash == -1 or (dot != -1 and dot < slash):
        return key
    return key.translate(str.maketrans("/.", "./"))
