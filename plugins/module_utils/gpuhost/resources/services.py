"""Services: their state in systemd, and the malloc that their main process uses."""

from __future__ import annotations

import re
from typing import NamedTuple

from ..allocators import OTHER
from ..host import Host
from ..model import Unreadable
from .unit import ask_systemd

PROPERTIES = ("LoadState", "MainPID", "FragmentPath", "DropInPaths", "EnvironmentFiles")
GLIBC, STATIC = "glibc malloc", "static malloc"
C_LIBRARY = re.compile(r"/libc(-2\.\d+)?\.so")


class Service(NamedTuple):
    """One service in systemd's memory."""

    name: str
    state: str  # loaded, not-found, masked …
    pid: str  # of its main process; "0" if it does not run
    files: tuple[str, ...]  # its unit file and the drop-ins that systemd has read
    environment_files: tuple[str, ...]


def services(host: Host, *names: str) -> list[Service]:
    """State of several services, by one query to systemd."""
    output = ask_systemd(host, "show", "--property=" + ",".join(PROPERTIES), "--", *names)
    blocks = output.strip().split("\n\n")
    if len(blocks) != len(names):
        raise Unreadable(f"systemctl show answered for {len(blocks)} of {len(names)} units")
    return [_service(name, block) for name, block in zip(names, blocks)]


def _service(name: str, block: str) -> Service:
    pairs = [line.partition("=")[::2] for line in block.splitlines()]
    facts = dict(pairs)
    files = (*facts["FragmentPath"].split(), *facts["DropInPaths"].split())
    # One line a file: "EnvironmentFiles=/etc/default/trainer (ignore_errors=yes)".
    environment = tuple(text.rpartition(" (")[0] for key, text in pairs if key == "EnvironmentFiles" and text)
    return Service(name, facts["LoadState"], facts["MainPID"], files, environment)


def malloc_of(host: Host, pid: str) -> str | None:
    """The malloc in a process's memory map; None if there is no such process."""
    maps = host.read_or_none(f"/proc/{pid}/maps") if pid != "0" else None
    if not maps:
        return None
    paths = {line.split(maxsplit=5)[5].partition(" (deleted)")[0] for line in maps.splitlines() if " /" in line}
    libraries = sorted({library.group(1) for path in paths if (library := OTHER.search(path))})
    if libraries:
        return " and ".join(libraries)
    return GLIBC if any(C_LIBRARY.search(path) for path in paths) else STATIC


def environment_of(host: Host, pid: str) -> dict[str, str]:
    """Initial environment of a process; empty if it has ended."""
    text = host.read_or_none(f"/proc/{pid}/environ") or ""
    return dict(pair.partition("=")[::2] for pair in text.split("\0") if pair)
