"""Bounded reading of other owners' files. Files that were not searched are listed, never taken for empty."""

from __future__ import annotations

import re
import time
from collections.abc import Iterable, Iterator
from fnmatch import fnmatchcase
from functools import cached_property
from typing import NamedTuple

from ..host import Host
from ..resources.line import SYSCTL
from ..resources.unit import FOLDERS
from .hugeadm import page_size, with_equivalents
from .lines import ConfigLine, StartupLine, joined_lines
from .unit_names import template_of
from .variables import MOST, Shell

# A large host has about 400 files of units, hooks and udev rules, with 2 MiB.
FILES, BYTES, FILE_BYTES, SECONDS = 4000, 32 << 20, 1 << 20, 5.0
# A script that a script of a script runs is read, too.
DEPTH = 3
# `sysctl -p FILE …` applies these files again, whatever their names; so does `systemd-sysctl FILE …`.
SYSCTL_FILES = re.compile(
    r"(?:\bsystemd-sysctl|\bsysctl\b[^|;&\n]*?\s(?:-\w*[pf]|--load))(?=[\s=/])"
    r"((?:[ \t]+-[\w/-]+(?:=[\w/-]*)?)*(?:[= \t]*[\"']?/[^\s;&|\"']+[\"']?)+)"
)
ABSOLUTE = re.compile(r"(?:^|[\s=\"'@+!:-])(/[\w./@+-]+)")
# An interpreter needs neither an executable file nor "#!" in it.
INTERPRETED = re.compile(
    r"(?:^|[\s/=\"'@+!:;&|(-])(?:(?:ba|da|k|z)?sh|python[\d.]*|perl)\s+(?:-[\w-]+\s+)*(/[\w./@+-]+)"
)
# Scripts read other files with `. FILE` or `source FILE`.
SOURCED = re.compile(r"(?:^|[;&|{]\s*|\s)(?:\.|source)\s+[\"']?(/[\w./@+-]+)", re.MULTILINE)
PULLS = re.compile(r"^(?:Wants|Requires|BindsTo|Upholds)\s*=\s*(.+)", re.MULTILINE)
LIBRARIES = frozenset({"/usr/lib/tuned/functions"})  # functions that most of its users do not call
LOCAL_PROGRAMS = ("/usr/local/bin", "/usr/local/sbin")
WORD = re.compile(r"(?<![\w./-])[\w.-]+")
# A line without one of these sets nothing that gpuctl sets.
MARK = re.compile(
    r"/proc/|/sys/|sysctl|(?<![\w./-])(?:abi|crypto|debug|dev|fs|kernel|net|sunrpc|vm)[./][a-z]"
    r"|swapon|irqbalance|affinity|mlnx_tune|frequency-set|idle-set|scaling_governor|energy_perf|cpuidle/|no_turbo"
    r"|cpufreq/boost|--setra|read_ahead_kb|hugepage|hugeadm|nvidia-smi"
)
# The same for a whole file, as substrings, which are ten times as fast.
HINTS = (
    *("/proc/", "/sys/", "sysctl", "swapon", "irqbalance", "affinity", "mlnx_tune", "frequency-set", "idle-set"),
    *(
        "scaling_governor",
        "energy_perf",
        "cpuidle/",
        "no_turbo",
        "cpufreq/boost",
        "--setra",
        "read_ahead_kb",
        "hugepage",
        "hugeadm",
        "nvidia-smi",
    ),
    *(
        f"{top}{dot}"
        for top in ("abi", "crypto", "debug", "dev", "fs", "kernel", "net", "sunrpc", "vm")
        for dot in "./"
    ),
)
COMMENT = re.compile(r"^\s*#.*$", re.MULTILINE)

# Scripts that start NVIDIA's network drivers, their configuration, and what they run only where it is switched on.
OFED_SCRIPTS = ("openibd", "mlnx-en.d")
OFED_CONFIGS = ("/etc/infiniband/openib.conf", "/etc/infiniband/mlnx-en.conf", "/etc/mlnx-en.conf")
OFED_SWITCHES = {
    "sysctl_perf_tuning": "RUN_SYSCTL",
    "mlnx_tune": "RUN_MLNX_TUNE",
    "mlnx_affinity": "RUN_AFFINITY_TUNER",
}


class Named(NamedTuple):
    """A file that a command line names: a script, or a sysctl file that it applies."""

    path: str
    is_sysctl_file: bool


class Search:
    """Reads every file once. `unsearched`: texts for people on the files that were left out."""

    def __init__(self, host: Host) -> None:
        self.host = host
        self.unsearched: list[str] = []
        self._texts: dict[str, str] = {}
        self._scripts: dict[str, bool] = {}
        self._named: dict[str, list[Named]] = {}
        self._bytes, self._seconds = 0, 0.0

    @cached_property
    def linked(self) -> set[str]:
        """Names of the units that links start."""
        folders = [
            f"{folder}/{group}" for folder in FOLDERS for group in self.host.listdir(folder) if _starts_units(group)
        ]
        return {name for folder in folders for name in self.host.listdir(folder)}

    @cached_property
    def pulled(self) -> set[str]:
        """Names of the units that the text of a linked unit starts, or that of a unit so started; slow to read."""
        started = set(self.linked)
        due = list(started)
        while due:
            named = {name for names in PULLS.findall(self.unit_text(due.pop())) for name in names.split()} - started
            started |= named
            due += named
        return started - self.linked

    def unit_text(self, name: str) -> str:
        """The texts of a unit's or its template's file and drop-ins, with those of the folders that systemd prefers."""
        files = list(dict.fromkeys([name, template_of(name)]))
        main = next((text for file in files for folder in FOLDERS if (text := self.text(f"{folder}/{file}"))), "")
        drop_ins = (
            path for file in files for folder in FOLDERS for path in self.host.glob(f"{folder}/{file}.d/*.conf")
        )
        return "\n".join([main, *(self.text(path) for path in drop_ins)])

    def text(self, path: str) -> str:
        """The content of a file; empty if it is missing or was not searched."""
        if path not in self._texts:
            self._texts[path] = self._read(path)
        return self._texts[path]

    def lines(self, owner: str, path: str) -> Iterator[ConfigLine]:
        """The lines of a file without comments and empty ones."""
        return joined_lines(owner, path, self.text(path))

    def script_lines(self, owner: str, path: str, runs: bool, late: bool) -> list[StartupLine]:
        """The lines of a script that may set something, and those of the scripts and sysctl files that it names."""
        row = StartupLine(ConfigLine(owner, path, 0, ""), runs, late)
        return self._lines_of([Named(path, is_sysctl_file=False)], row)

    def with_named(self, row: StartupLine) -> list[StartupLine]:
        """A command line if it may set something, and such lines of the scripts and sysctl files that it names."""
        shell = Shell(row.line.text)
        texts = list(shell.texts(row.line.text))
        self._check_whole(shell, row.line.where)
        marked = [more for text in texts if MARK.search(text) for more in self._with_equivalents(text)]
        lines = [row._replace(line=row.line._replace(text=text)) for text in marked]
        return lines + self._lines_of(self._named_by("\n".join(texts)), row)

    def _lines_of(self, due: list[Named], row: StartupLine) -> list[StartupLine]:
        known: set[Named] = set()
        total: list[StartupLine] = []
        for _ in range(DEPTH):
            fresh = [named for named in dict.fromkeys(due) if named not in known]
            known.update(fresh)
            for path, is_sysctl_file in fresh:
                if is_sysctl_file:
                    total += [row._replace(line=line) for line in self.lines(row.line.owner, path)]
                elif self._may_set(path):
                    total += [row._replace(line=line) for line in self._commands(row.line.owner, path)]
            due = [more for path, is_sysctl_file in fresh if not is_sysctl_file for more in self._named_in(path)]
        return total

    def _commands(self, owner: str, path: str) -> Iterator[ConfigLine]:
        """The lines of a script that may set something, with the values of its variables."""
        shell = Shell(self.text(path))
        lines: Iterable[ConfigLine] = self.lines(owner, path)
        if shell.sets:
            lines = [line._replace(text=text) for line in lines for text in shell.texts(line.text)]
            self._check_whole(shell, path)
        marked = (line for line in lines if MARK.search(line.text))
        return (line._replace(text=text) for line in marked for text in self._with_equivalents(line.text))

    def _with_equivalents(self, text: str) -> Iterable[str]:
        """A line, and what it sets in the words of other programs."""
        return with_equivalents(text, self._huge_page) if "hugeadm" in text else (text,)

    @cached_property
    def _huge_page(self) -> int | None:
        return page_size(self.host.read_or_none("/proc/meminfo") or "")

    def _check_whole(self, shell: Shell, where: str) -> None:
        if shell.is_cut:
            self._leave_out(f"{where} has a line that may be more than {MOST} commands")

    def _may_set(self, path: str) -> bool:
        text = self.text(path)
        return any(word in text for word in HINTS)

    def _named_in(self, path: str) -> list[Named]:
        """The scripts and sysctl files that a script names outside of comments."""
        if path not in self._named:
            text = COMMENT.sub("", self.text(path))
            if "sysctl" in text and "$" in text:
                shell = Shell(text)
                text = "\n".join(more for line in text.splitlines() for more in shell.texts(line))
            named = self._named_by(text)
            off = self._switched_off() if path.rpartition("/")[2] in OFED_SCRIPTS else set()
            self._named[path] = [more for more in named if more.path.rpartition("/")[2] not in off]
        return self._named[path]

    def _switched_off(self) -> set[str]:
        """Programs that the start script of NVIDIA's network drivers names and does not run."""
        text = "\n".join(self.text(path) for path in OFED_CONFIGS)
        on = set(re.findall(r"^\s*(\w+)=[\"']?yes", text, re.MULTILINE))
        return {program for program, switch in OFED_SWITCHES.items() if switch not in on}

    def _named_by(self, text: str) -> list[Named]:
        files = [Named(path, is_sysctl_file=True) for path in self._sysctl_files(text)]
        paths = ABSOLUTE.findall(text) if "/" in text else []
        if self._local_scripts:
            names = self._local_scripts.keys() & WORD.findall(text)
            paths += [self._local_scripts[name] for name in sorted(names)]
        scripts = [path for path in paths if self._is_script(path)]
        scripts += INTERPRETED.findall(text) + SOURCED.findall(text)
        return files + [Named(path, is_sysctl_file=False) for path in dict.fromkeys(scripts) if path not in LIBRARIES]

    def _sysctl_files(self, text: str) -> Iterator[str]:
        """The files that commands in a text apply; of a pattern that ours matches only those behind ours, which win."""
        groups = SYSCTL_FILES.findall(text) if "sysctl" in text else ()
        for pattern in (word.strip("=\"'") for group in groups for word in group.split()):
            paths = self.host.glob(pattern) if pattern.startswith("/") else []
            yield from (path for path in paths if path > SYSCTL or not fnmatchcase(SYSCTL, pattern) or path == pattern)

    @cached_property
    def _local_scripts(self) -> dict[str, str]:
        """Name -> path of the programs that an administrator installed, which are often run without a path."""
        return {name: f"{folder}/{name}" for folder in LOCAL_PROGRAMS for name in self.host.listdir(folder)}

    def _is_script(self, path: str) -> bool:
        if path not in self._scripts:
            kernel = path.startswith(("/proc/", "/sys/", "/dev/"))
            self._scripts[path] = not kernel and self.host.is_script(path)
        return self._scripts[path]

    def _read(self, path: str) -> str:
        if len(self._texts) >= FILES or self._bytes > BYTES or self._seconds > SECONDS:
            self._leave_out("more files than are searched for other owners")
            return ""
        began = time.monotonic()
        try:
            text = self.host.read_regular(path, FILE_BYTES)
        except OverflowError:
            self._leave_out(f"{path} is larger than {FILE_BYTES >> 20} MiB")
            return ""
        except OSError as error:
            self._leave_out(f"{path}: {error.strerror}")
            return ""
        finally:
            self._seconds += time.monotonic() - began
        self._bytes += len(text or "")
        return text or ""

    def _leave_out(self, reason: str) -> None:
        if reason not in self.unsearched:
            self.unsearched.append(reason)


def _starts_units(name: str) -> bool:
    return name.endswith((".wants", ".requires", ".upholds"))
