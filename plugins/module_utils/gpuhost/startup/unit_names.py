"""Names of systemd's units: templates, their instances, and the specifiers of a unit's text (systemd.unit(5))."""

from __future__ import annotations

import re

from ..host import Host

# Folders of the manager that runs as root. Users' managers start nothing at boot.
ROOTS = {"t": "/run", "S": "/var/lib", "C": "/var/cache", "L": "/var/log", "E": "/etc", "T": "/tmp", "V": "/var/tmp"}  # noqa: S108
ROOT_USER = {"u": "root", "U": "0", "g": "root", "G": "0", "h": "/root", "s": "/bin/sh"}
HOST_FILES = {"H": "/proc/sys/kernel/hostname", "v": "/proc/sys/kernel/osrelease", "m": "/etc/machine-id"}


def template_of(name: str) -> str:
    """The template of an instance such as tune@fast.service; the name itself for any other unit."""
    return re.sub(r"@.*\.", "@.", name)


def expanded(host: Host, text: str, name: str) -> str:
    """A unit's text with its specifiers replaced, for the unit of that name; those that gpuctl does not know stay."""
    if "%" not in text:
        return text
    stem = name.rpartition(".")[0]
    prefix, _, instance = stem.partition("@")
    last = prefix.rpartition("-")[2]
    values = {"%": "%", "n": name, "N": stem, "p": prefix, "i": instance, "j": last, **ROOTS, **ROOT_USER}
    values.update({letter.upper(): _unescaped(values[letter]) for letter in "pij"})
    values["f"] = "/" + _unescaped(instance or prefix).lstrip("/")

    def value(match: re.Match[str]) -> str:
        letter = match[1]
        if letter in HOST_FILES:
            return (host.read_or_none(HOST_FILES[letter]) or match[0]).strip()
        return values.get(letter, match[0])

    return re.sub(r"%(.)", value, text)


def _unescaped(text: str) -> str:
    """The text that systemd-escape(1) made a part of a unit's name of."""
    text = text.replace("-", "/")
    return re.sub(r"\\x([0-9a-fA-F]{2})", lambda match: chr(int(match[1], 16)), text)
