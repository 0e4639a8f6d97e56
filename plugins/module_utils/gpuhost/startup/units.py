"""Command lines of systemd's units, and of the SysV scripts that it starts."""

from __future__ import annotations

import re
from collections.abc import Iterator

from ..resources.unit import FOLDERS
from .lines import StartupLine
from .search import Search

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
    own += [path for folder in UNIT_FOLDERS for path in host.glob(f"{folder}/*.service.d/*.conf")]
    names = {_unit_of(path) for path in own}
    timed = _timed(search)
    packaged = [
        next((path for folder in FOLDERS[3:] if host.exists(path := f"{folder}/{name}")), "")
        for name in sorted((linked | timed) - names)
        if name.endswith(".service")
    ]
    for path in [*own, *filter(None, packaged)]:
        if "/gpuctl-" in path:
            continue
        name = _unit_of(path)
        commands = [line for line in search.lines("unit", path) if line.text.startswith("Exec")]
        rows = [row for line in commands for row in search.with_named(StartupLine(line, runs=True, late=False))]
        if rows:
            runs = name in timed or _starts(search, name)
            late = runs and (name in timed or bool(LATE_UNIT.search(search.unit_text(name))))
            yield from (row._replace(runs=runs, late=late) for row in rows)


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
    template = re.sub(r"@.*\.", "@.", name)
    if any(other == name or re.sub(r"@.*\.", "@.", other) == template for other in search.linked):
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
