"""The files that give limits: limits.d to logins by way of PAM, systemd's own to services."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

from ..host import Host
from ..owners import in_order
from ._lines import Said

UNLIMITED = "unlimited"
KIB = 1024
SUFFIXES = {"": 1, "B": 1, **{letter: KIB**power for power, letter in enumerate("KMGTPE", 1)}}
PAM = "/etc/security/limits"
SYSTEMD_FOLDERS = ("/etc/systemd", "/run/systemd", "/usr/local/lib/systemd", "/usr/lib/systemd")


class Item(NamedTuple):
    """One limit: what PAM, systemd and /proc/PID/limits call it, and how many bytes (or things) PAM's unit has."""

    pam: str
    systemd: str
    proc: str
    unit: int

    @property
    def directive(self) -> str:
        """What a unit file calls it that sets its own."""
        return self.systemd.replace("Default", "")


ITEMS = {
    "memlock": Item("memlock", "DefaultLimitMEMLOCK", "Max locked memory", KIB),
    "stack": Item("stack", "DefaultLimitSTACK", "Max stack size", KIB),
    "nofile": Item("nofile", "DefaultLimitNOFILE", "Max open files", 1),
    "nproc": Item("nproc", "DefaultLimitNPROC", "Max processes", 1),
    "core": Item("core", "DefaultLimitCORE", "Max core file size", KIB),
}
UNITS = {item.pam: item.unit for item in ITEMS.values()}


def for_logins(host: Host) -> list[Said]:
    """Every line of PAM's, in the order in which it reads them: "* soft memlock" -> bytes, a number or "unlimited"."""
    return [
        Said(f"{who} {kind} {item}", _from_pam(value, item), path, number, text)
        for path in (f"{PAM}.conf", *in_order(host, (f"{PAM}.d",), ".conf"))
        for number, text in _lines(host, path)
        for who, kinds, item, value in [text.partition("#")[0].split()[:4]]
        for kind in (("soft", "hard") if kinds == "-" else (kinds,))
        if item in UNITS
    ]


def for_services(host: Host, manager: str) -> list[Said]:
    """Every default limit that files give the "system" or the "user" managers, in the order in which they read them."""
    main = next((p for folder in SYSTEMD_FOLDERS if host.exists(p := f"{folder}/{manager}.conf")), "")
    folders = tuple(f"{folder}/{manager}.conf.d" for folder in SYSTEMD_FOLDERS)
    found = []
    for path in (main, *in_order(host, folders, ".conf")):
        for number, text in _lines(host, path) if path else ():
            key, equals, value = text.partition("=")
            if equals and key.startswith("DefaultLimit"):
                found.append(Said(key.strip(), from_systemd(value.strip()), path, number, text))
    return found


def _lines(host: Host, path: str) -> Iterator[tuple[int, str]]:
    """The lines that say something: PAM's have four words, and systemd's one."""
    words = 4 if path.startswith(PAM) else 1
    for number, line in enumerate((host.read_or_none(path) or "").splitlines(), 1):
        text = line.strip()
        if not text.startswith(("#", ";")) and len(text.partition("#")[0].split()) >= words:
            yield number, text


def _from_pam(value: str, item: str) -> str:
    if value in ("infinity", "-1"):
        return UNLIMITED
    return str(int(value) * UNITS[item]) if value.isdigit() else value


def in_pam(value: str, item: Item) -> str:
    """A value as limits.d wants it."""
    return value if value == UNLIMITED else str(int(value) // item.unit)


def from_systemd(text: str) -> str:
    """systemd's "64G" or "1024:infinity" (soft:hard) in bytes; one number where both are the same."""
    soft, colon, hard = text.partition(":")
    both = dict.fromkeys(_one(part) for part in ((soft, hard) if colon else (soft,)))
    return ":".join(both)


def _one(text: str) -> str:
    found = re.fullmatch(r"(\d+)\s*([KMGTPE]|B?)", text.strip())
    if found is None:
        return UNLIMITED if text.strip() == "infinity" else text.strip()
    return str(int(found.group(1)) * SUFFIXES[found.group(2)])
