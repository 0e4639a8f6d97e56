"""Kernel command lines: parsing one, and reading those of the boot loader entries."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence

from .host import Host

PRESENT = "present"  # value of an argument without one, such as nosmt
WORD = re.compile(r'(?:[^\s"]|"[^"]*")+')
VARIABLE = re.compile(r"\$\{?(\w+)\}?")
SET = re.compile(r"""^\s*set (\w+)=["']?(.*?)["']?$""", re.MULTILINE)
ENTRIES = "/boot/loader/entries"


def split(line: str) -> list[str]:
    """The arguments of a line; white space inside double quotes does not separate."""
    return WORD.findall(line)


def argument(name: str, value: str) -> str:
    """An argument as written on a line."""
    return name if value == PRESENT else f"{name}={value}"


def values(arguments: Iterable[str], name: str) -> list[str]:
    """All values of an argument on a line, in order; for most arguments the last one counts."""
    normal_name = _alike(name)
    pairs = (argument_text.partition("=") for argument_text in arguments)
    return [value if equals else PRESENT for key, equals, value in pairs if _alike(key) == normal_name]


def value(arguments: Iterable[str], name: str) -> str | None:
    """The effective value of an argument; None if it is absent."""
    all_values = values(arguments, name)
    return all_values[-1] if all_values else None


def summary(lines: Sequence[Sequence[str]], name: str) -> str:
    """An argument's value on the lines of all kernels, as text for people."""
    by_kernel = [value(arguments, name) for arguments in lines]
    kinds = dict.fromkeys(state or "absent" for state in by_kernel)
    if len(kinds) == 1:
        return next(iter(kinds))
    counted = ((kind, sum((state or "absent") == kind for state in by_kernel)) for kind in kinds if kind != "absent")
    return ", ".join(f"{kind} on {count} of {len(by_kernel)} kernels" for kind, count in counted)


def loader_entries(host: Host) -> list[list[str]]:
    """Arguments of each entry below /boot/loader (Boot Loader Specification), without rescue kernels."""
    known = dict(SET.findall(host.read_or_none("/boot/grub2/grub.cfg") or ""))
    # RHEL 8 keeps arguments that all kernels share in a variable of GRUB's environment block.
    block = (host.read_or_none("/boot/grub2/grubenv") or "").splitlines()
    known.update(line.partition("=")[::2] for line in block if "=" in line and not line.startswith("#"))
    lines = []
    for path in host.glob(f"{ENTRIES}/*.conf"):
        if "-0-rescue" not in path:
            options = re.findall(r"^options[ \t]+(.*)$", host.read(path), re.MULTILINE)
            lines.append(split(filled(" ".join(options), known)))
    return lines


def filled(text: str, known: Mapping[str, str]) -> str:
    """Expand the variables in a text of GRUB; one that is not set is empty."""
    return VARIABLE.sub(lambda variable: known.get(variable.group(1), ""), text)


def _alike(name: str) -> str:
    """The kernel treats hyphens and underscores in a name alike."""
    return name.replace("-", "_")
