"""Lines that other programs run or apply at startup or later: units, udev, hooks of networks, cron, cloud-init."""

from __future__ import annotations

import re

from .cloud import cloud_lines
from .cron import cron_lines
from .lines import StartupLine, in_order
from .network import network_lines
from .search import Search
from .udev import udev_lines
from .units import sysv_lines, unit_lines

TMPFILES_FOLDERS = ("/etc/tmpfiles.d", "/run/tmpfiles.d", "/usr/local/lib/tmpfiles.d", "/usr/lib/tmpfiles.d")
WRITES = ("w", "f+", "F")  # types of lines of tmpfiles.d that write to a file that exists
MODPROBE_FOLDERS = ("/etc/modprobe.d", "/run/modprobe.d", "/usr/local/lib/modprobe.d", "/usr/lib/modprobe.d")
RC_LOCAL = ("/etc/rc.local", "/etc/rc.d/rc.local")
SYSFSUTILS = ("/etc/sysfs.conf", "/etc/sysfs.d/*.conf")
SLURM = ("/etc/slurm/slurm.conf", "/etc/slurm-llnl/slurm.conf", "/run/slurm/conf/slurm.conf")
UFW, UFW_SYSCTL = "/etc/ufw/ufw.conf", "/etc/ufw/sysctl.conf"


def startup_lines(search: Search) -> list[StartupLine]:
    """The lines of all owners, with those of the scripts and sysctl files that they name."""
    return [
        *_tmpfiles(search),
        *unit_lines(search),
        *sysv_lines(search),
        *udev_lines(search),
        *_modprobe(search),
        *_sysfsutils(search),
        *_ufw(search),
        *network_lines(search),
        *cloud_lines(search),
        *_rc_local(search),
        *_slurm(search),
        *cron_lines(search),
    ]


def _tmpfiles(search: Search) -> list[StartupLine]:
    return [
        StartupLine(line, runs=True, late=False)
        for path in in_order(search.host, TMPFILES_FOLDERS, ".conf")
        for line in search.lines("tmpfiles.d", path)
        if line.text.startswith(WRITES)
    ]


def _modprobe(search: Search) -> list[StartupLine]:
    """Commands that run whenever a module is loaded."""
    return [
        row
        for path in in_order(search.host, MODPROBE_FOLDERS, ".conf")
        for line in search.lines("modprobe.d", path)
        if line.text.startswith("install")
        for row in search.with_named(StartupLine(line, runs=True, late=True))
    ]


def _sysfsutils(search: Search) -> list[StartupLine]:
    """Lines "PATH = VALUE" below /sys, which its service applies before gpuctl-boot."""
    if not search.host.which("systool"):
        return []
    return [
        StartupLine(line._replace(text=f"/sys/{re.sub(r'^/?(?:sys/)?', '', line.text)}"), runs=True, late=False)
        for pattern in SYSFSUTILS
        for path in search.host.glob(pattern)
        for line in search.lines("sysfsutils", path)
        if not line.text.startswith(("mode", "owner"))
    ]


def _ufw(search: Search) -> list[StartupLine]:
    """The sysctl file that ufw applies when it starts."""
    on = bool(re.search(r"^ENABLED=yes", search.text(UFW), re.MULTILINE | re.IGNORECASE))
    return [StartupLine(line, runs=on, late=on) for line in search.lines("ufw", UFW_SYSCTL)]


def _rc_local(search: Search) -> list[StartupLine]:
    """Lines of rc.local, which systemd runs only if it is executable."""
    rows: list[StartupLine] = []
    for path in RC_LOCAL:
        runs = search.host.is_executable(path)
        rows += search.script_lines("rc.local", path, runs=runs, late=runs)
    return rows


def _slurm(search: Search) -> list[StartupLine]:
    """Lines of the scripts that slurmd runs as root before and after jobs."""
    runs = "slurmd.service" in search.linked
    texts = [search.text(path) for path in SLURM]
    names = [name for text in texts for name in re.findall(r"(?im)^\s*(?:Prolog|Epilog)\s*=\s*(/\S+)", text)]
    paths = dict.fromkeys(path for name in names for path in search.host.glob(name))
    return [row for path in paths for row in search.script_lines("Slurm", path, runs=runs, late=runs)]
