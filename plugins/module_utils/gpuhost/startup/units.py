"""Command lines of systemd's units, and of the SysV scripts that it starts."""

from __future__ import annotations

import re
from collections.abc import Iterator

from ..host import Host
from ..resources.unit import FOLDERS
from .lines import StartupLine
from .search import Search
from .unit_names import expanded, template_of

# Folders of units that an administrator wrote; of packages' units only those that start at boot are read.
UNIT_FOLDERS = ("/etc/systemd/system", "/run/systemd/system", "/usr/local/lib/systemd/system")
STARTED_BY = (".timer", ".path", ".socket")
# A unit after one of these, or one that sleeps for 10 s or more, may end after the second run of gpuctl-boot.
LATE_UNIT = re.compile(
    r"^After=.*\b(?:multi-user\.target|graphical\.target|default\.target|cloud-final\.service|cloud-init\.target"
    r"|rc-local\.service|gpuctl-boot\.service)|^Type=idle|^Exec\w+=.*\bsleep\s+[\"']?(?:\d\d|\d+[mh]|\$)",
    re.MULTILINE,
)
SYSV = ("/etc/rc[S2345].d/S*", "/etc/rc.d/rc[2345].d/S*")


def unit_lines(search: Search) -> Iterator[StartupLine]:
    """Exec lines of services."""
    host, linked = search.host, search.linked
    own = [path for folder in UNIT_FOLDERS for path in host.glob(f"{folder}/*.service")]
    names = {_unit_of(path) for path in own}  # a drop-in of theirs replaces no package's unit
    own += [path for folder in UNIT_FOLDERS for path in host.glob(f"{folder}/*.service.d/*.conf")]
    timed = _timed(search)
    started = sorted(name for name in linked | timed if name.endswith(".service"))
    units = [(name, path) for path in own for name in _instances(_unit_of(path), started)]
    units += [(name, _packaged(host, name)) for name in started if not names & {name, template_of(name)}]
    for name, path in units:
        if not path or "/gpuctl-" in path:
            continue
        commands = [line for line in search.lines("unit", path) if line.text.startswith("Exec")]
        commands = [line._replace(text=expanded(host, line.text, name)) for line in commands]
        rows = [row for line in commands for row in search.with_named(StartupLine(line, runs=True, late=False))]
        if rows:
            runs = name in timed or _starts(search, name)
            late = runs and (name in timed or bool(LATE_UNIT.search(search.unit_text(name))))
            yield from (row._replace(runs=runs, late=late) for row in rows)


def _instances(name: str, started: list[str]) -> list[str]:
    """Started instances of a template; the name alone if it is no template, or none of its instances is started."""
    return [other for other in started if other != name and template_of(other) == name] or [name]


def _packaged(host: Host, name: str) -> str:
    """The file of a package's unit, or of its template; empty if there is none."""
    paths = (f"{folder}/{file}" for file in (name, template_of(name)) for folder in FOLDERS[3:])
    return next(filter(host.exists, paths), "")


def _unit_of(path: str) -> str:
    folder, _, name = path.rpartition("/")
    return folder.rpartition("/")[2][:-2] if folder.endswith(".service.d") else name


def _timed(search: Search) -> set[str]:
    """Services that linked timers, paths and sockets start: their namesakes, or those that they name."""
    services = set()
    for name in search.linked:
        stem, _, kind = name.rpartition(".")
        if f".{kind}" in STARTED_BY:
            named = re.findall(r"^(?:Unit|Service)=(\S+)", search.unit_text(name), re.MULTILINE)
            services.add(named[-1] if named else f"{stem}.service")
    return services


def _starts(search: Search, name: str) -> bool:
    """True unless the unit can be enabled and is not. One that cannot be enabled is started by another one."""
    if any(other == name or template_of(other) == template_of(name) for other in search.linked):
        return True
    text = next((text for f in FOLDERS if (text := search.host.read_or_none(f"{f}/{name}")) is not None), "")
    return not re.search(r"^\[Install\]", text, re.MULTILINE) or name in search.pulled


def sysv_lines(search: Search) -> list[StartupLine]:
    """Lines of the SysV scripts that are started at boot; a unit of the same name takes precedence over a script."""
    rows: list[StartupLine] = []
    paths = [path for pattern in SYSV for path in search.host.glob(pattern)]
    names = {re.sub(r"^S\d*|\.sh$", "", path.rpartition("/")[2]): path for path in paths}
    for name, path in sorted(names.items()):
        if not any(search.host.exists(f"{folder}/{name}.service") for folder in FOLDERS):
            # systemd orders them by their headers, and not by what they do: any may run after gpuctl-boot.
            rows += search.script_lines("init.d", path, runs=True, late=True)
    return rows
