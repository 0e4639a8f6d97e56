"""Lines that other programs run or apply at startup: tmpfiles, units and their scripts, cron, cloud-init, rc.local."""

from __future__ import annotations

import re
from collections.abc import Iterator
from fnmatch import fnmatchcase
from typing import NamedTuple

from .host import Host
from .resources.unit import FOLDERS

TMPFILES_FOLDERS = ("/etc/tmpfiles.d", "/run/tmpfiles.d", "/usr/lib/tmpfiles.d")
# These run at the end of a boot or later, after anything of ours.
LATE = (
    ("cloud-init", "/etc/cloud/cloud.cfg"),
    ("cloud-init", "/etc/cloud/cloud.cfg.d/*.cfg"),
    ("rc.local", "/etc/rc.local"),
    ("rc.local", "/etc/rc.d/rc.local"),
    ("cron", "/etc/crontab"),
    ("cron", "/etc/cron.d/*"),
    ("cron", "/var/spool/cron/root"),
    ("cron", "/var/spool/cron/crontabs/root"),
)
# Folders of units that an administrator wrote; of packages' units only those that start at boot are read.
OWN_FOLDERS = ("/etc/systemd/system", "/run/systemd/system", "/usr/local/lib/systemd/system")
STARTED_BY = (".timer", ".path", ".socket")
# `sysctl -p FILE` applies that file again, whatever its name.
SYSCTL_FILE = re.compile(r"\bsysctl\b[^|;&]*?\s(?:-\w*p|--load)[= ]?\s*(/[^\s;&|\"']+)")
ABSOLUTE = re.compile(r"(?:^|[\s=\"'@+!:-])(/[\w./@+-]+)")
QUOTES = ("'", '"')
ECHO = re.compile(
    r"""(?:echo|printf)\s+(?:-\w+\s+)*(["']?)(?P<value>[^"'|>;&]*?)(?:\\n)?\1\s*"""
    r"""(?:>>?|\|\s*(?:sudo\s+)?tee(?:\s+-\S+)*)\s*["']?$"""
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


class StartupLine(NamedTuple):
    """A line and when it takes effect. `runs`: at boot, by all that its files say; `late`: after gpuctl-boot."""

    line: ConfigLine
    runs: bool
    late: bool


def config_lines(host: Host, owner: str, path: str) -> Iterator[ConfigLine]:
    """The lines of a file without comments and empty ones; lines that end in a backslash are joined."""
    joined, first = "", 0
    for number, line in enumerate((host.read_or_none(path) or "").splitlines(), 1):
        first = first or number
        joined += line.strip()
        if joined.endswith("\\"):
            joined = joined[:-1] + " "
            continue
        if joined and not joined.startswith(("#", ";")):
            yield ConfigLine(owner, path, first, joined)
        joined, first = "", 0


def in_order(host: Host, folders: tuple[str, ...], suffix: str) -> list[str]:
    """Files of drop-in folders in the order of systemd: by name; a file of an earlier folder hides its namesakes."""
    by_name: dict[str, str] = {}
    for folder in reversed(folders):
        by_name.update({name: f"{folder}/{name}" for name in host.listdir(folder) if name.endswith(suffix)})
    return [by_name[name] for name in sorted(by_name)]


def startup_lines(host: Host) -> list[StartupLine]:
    """All lines, with those of the scripts and sysctl files that they name."""
    found = [
        StartupLine(line, runs=True, late=False)
        for path in in_order(host, TMPFILES_FOLDERS, ".conf")
        for line in config_lines(host, "tmpfiles.d", path)
        if line.text[0] == "w"
    ]
    found += _of_units(host)
    for owner, pattern in LATE:
        for path in host.glob(pattern):
            found += [StartupLine(line, runs=True, late=True) for line in config_lines(host, owner, path)]
    return [*found, *(more for row in found if row.line.owner != "tmpfiles.d" for more in _named_by(host, row))]


def _of_units(host: Host) -> Iterator[StartupLine]:
    linked = {
        path.rpartition("/")[2]
        for folder in FOLDERS
        for kind in ("wants", "requires")
        for path in host.glob(f"{folder}/*.{kind}/*")
    }
    own = [path for folder in OWN_FOLDERS for path in host.glob(f"{folder}/*.service")]
    own += [path for folder in OWN_FOLDERS for path in host.glob(f"{folder}/*.service.d/*.conf")]
    names = {_unit_of(path) for path in own}
    packaged = [
        next((path for folder in FOLDERS[3:] if host.exists(path := f"{folder}/{name}")), "")
        for name in sorted(linked - names)
        if name.endswith(".service")
    ]
    for path in [*own, *filter(None, packaged)]:
        if "/gpuctl-" in path:
            continue
        name = _unit_of(path)
        timed = any(name.replace(".service", suffix) in linked for suffix in STARTED_BY)
        runs = timed or _starts(host, name, linked)
        for line in config_lines(host, "unit", path):
            if line.text.startswith("Exec"):
                yield StartupLine(line, runs=runs, late=timed)


def _unit_of(path: str) -> str:
    folder, _, name = path.rpartition("/")
    return folder.rpartition("/")[2][:-2] if folder.endswith(".service.d") else name


def _starts(host: Host, name: str, linked: set[str]) -> bool:
    """True unless the unit can be enabled and is not. One that cannot be enabled is started by another one."""
    template = re.sub(r"@.*\.", "@.", name)
    if any(other == name or re.sub(r"@.*\.", "@.", other) == template for other in linked):
        return True
    text = next((text for f in FOLDERS if (text := host.read_or_none(f"{f}/{name}")) is not None), "")
    return not re.search(r"^\[Install\]", text, re.MULTILINE)


def _named_by(host: Host, row: StartupLine) -> Iterator[StartupLine]:
    """Lines of the scripts that a command line runs, and of the files that it applies with `sysctl -p`."""
    owner, text = row.line.owner, row.line.text
    for path in dict.fromkeys(SYSCTL_FILE.findall(text)):
        yield from (row._replace(line=line) for line in config_lines(host, owner, path))
    for path in dict.fromkeys(ABSOLUTE.findall(text)):
        if host.is_script(path):
            yield from (row._replace(line=line) for line in config_lines(host, owner, path))


def rest_after(text: str, needle: str) -> str | None:
    """The text after `needle`, or the value of `echo VALUE > …needle`; None if the text does not contain it."""
    before, found, rest = text.partition(needle)
    echo = ECHO.search(re.sub(r"/\S*$", "", before))
    return None if not found else echo["value"] if echo else rest


def assigned(line: ConfigLine, key: str) -> str | None:
    """The value that a line gives a sysctl; "" if its form is not understood, None if the line does not name it."""
    slashed = key.replace(".", "/")
    if line.owner == "tmpfiles.d":
        fields = line.text.split(None, 6)
        named = len(fields) > 1 and fnmatchcase(f"/proc/sys/{slashed}", fields[1].strip("\"'"))
        return _folded(fields[6] if len(fields) > 6 else "") if named else None
    if key not in line.text and slashed not in line.text:  # nearly all lines; a pattern for each takes long
        return None
    names = rf"(?<![\w./-])(?:/proc/sys/{re.escape(slashed)}|{re.escape(key)}|{re.escape(slashed)})(?![\w./])"
    named_at = list(re.finditer(names, line.text))
    if not named_at:
        return None
    before, after = line.text[: named_at[-1].start()], line.text[named_at[-1].end() :].lstrip()
    echo = ECHO.search(before)
    if echo:
        return _folded(echo["value"])
    return _folded(_operand(before, after[1:].strip())) if after.startswith("=") else ""


def _operand(before: str, value: str) -> str:
    """The value of KEY=VALUE at the start of `value`; `before` is the text before the key."""
    if before in ("", "-"):  # a line of a sysctl file
        return value
    if value[:1] in QUOTES:
        return value[1:].partition(value[0])[0]
    # In `sysctl -w "KEY=1 2 3"` the value ends with the quotes, otherwise with the word.
    return value.partition(before[-1])[0] if before[-1] in QUOTES else re.split(r"[\s;&|\"']", value)[0]


def _folded(text: str) -> str:
    return " ".join(text.split())
