"""Files that set limits: limits.d for logins (PAM), systemd's own for services."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

from ..host import Host
from ..startup.lines import in_order
from ._lines import KeyedLine

UNLIMITED = "unlimited"
KIB = 1024
SUFFIXES = {"": 1, "B": 1, **{letter: KIB**power for power, letter in enumerate("KMGTPE", 1)}}
PAM = "/etc/security/limits"
SYSTEMD_FOLDERS = ("/etc/systemd", "/run/systemd", "/usr/local/lib/systemd", "/usr/lib/systemd")


class Item(NamedTuple):
    """One limit: its names in PAM, systemd and /proc/PID/limits, and the size of PAM's unit in bytes (or 1).

    `services` is false for a limit that is set for logins only.
    """

    pam: str
    systemd: str
    proc: str
    unit: int
    services: bool = True

    @property
    def directive(self) -> str:
        """Name of the limit in a unit file."""
        return self.systemd.replace("Default", "")


ITEMS = {
    "memlock": Item("memlock", "DefaultLimitMEMLOCK", "Max locked memory", KIB),
    # An unlimited stack makes the kernel randomise fewer addresses: not for services, which face the network.
    "stack": Item("stack", "DefaultLimitSTACK", "Max stack size", KIB, services=False),
    "nofile": Item("nofile", "DefaultLimitNOFILE", "Max open files", 1),
    "nproc": Item("nproc", "DefaultLimitNPROC", "Max processes", 1),
    "core": Item("core", "DefaultLimitCORE", "Max core file size", KIB),
}
UNITS = {item.pam: item.unit for item in ITEMS.values()}


def for_logins(host: Host) -> list[KeyedLine]:
    """Lines in PAM's order. Key: "* soft memlock"; value: bytes, a number, or "unlimited"."""
    return [
        KeyedLine(f"{who} {kind} {item}", _from_pam(value, item), path, number, text)
        for path in (f"{PAM}.conf", *in_order(host, (f"{PAM}.d",), ".conf"))
        for number, text in _lines(host, path)
        for who, kinds, item, value in [text.partition("#")[0].split()[:4]]
        for kind in (("soft", "hard") if kinds == "-" else (kinds,))
        if item in UNITS
    ]


def for_services(host: Host, manager: str) -> list[KeyedLine]:
    """Default limits of the "system" or "user" manager, in the order in which it reads the files."""
    main = next((p for folder in SYSTEMD_FOLDERS if host.exists(p := f"{folder}/{manager}.conf")), "")
    folders = tuple(f"{folder}/{manager}.conf.d" for folder in SYSTEMD_FOLDERS)
    lines = []
    for path in (main, *in_order(host, folders, ".conf")):
        for number, text in _lines(host, path) if path else ():
            key, equals, value = text.partition("=")
            if equals and key.startswith("DefaultLimit"):
                lines.append(KeyedLine(key.strip(), from_systemd(value.strip()), path, number, text))
    return lines


def _lines(host: Host, path: str) -> Iterator[tuple[int, str]]:
    """(number, text) of lines with content: four fields for PAM, one for systemd."""
    fewest = 4 if path.startswith(PAM) else 1
    for number, line in enumerate((host.read_or_none(path) or "").splitlines(), 1):
        text = line.strip()
        if not text.startswith(("#", ";")) and len(text.partition("#")[0].split()) >= fewest:
            yield number, text


def _from_pam(value: str, item: str) -> str:
    if value in ("infinity", "-1"):
        return UNLIMITED
    return str(int(value) * UNITS[item]) if value.isdigit() else value


def in_pam(value: str, item: Item) -> str:
    """A value in the unit of limits.d."""
    return value if value == UNLIMITED else str(int(value) // item.unit)


def from_systemd(text: str) -> str:
    """systemd's "64G" or "1024:infinity" (soft:hard) in bytes; one number if both are equal."""
    soft, colon, hard = text.partition(":")
    both = dict.fromkeys(_one(part) for part in ((soft, hard) if colon else (soft,)))
    return ":".join(both)


def _one(text: str) -> str:
    match = re.fullmatch(r"(\d+)\s*([KMGTPE]|B?)", text.strip())
    if match is None:
        return UNLIMITED if text.strip() == "infinity" else text.strip()
    return str(int(match.group(1)) * SUFFIXES[match.group(2)])
