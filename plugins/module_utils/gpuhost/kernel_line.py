"""Kernel command lines: what one says, and what boot loader entries will say at the next boot."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence

from .host import Host

PRESENT = "present"  # what an argument holds that stands alone, such as nosmt
WORD = re.compile(r'(?:[^\s"]|"[^"]*")+')
VARIABLE = re.compile(r"\$\{?(\w+)\}?")
SET = re.compile(r"""^\s*set (\w+)=["']?(.*?)["']?$""", re.MULTILINE)
ENTRIES = "/boot/loader/entries"


def split(line: str) -> list[str]:
    """The arguments of a line; white space between double quotes belongs to its argument."""
    return WORD.findall(line)


def argument(name: str, value: str) -> str:
    """An argument as it stands on a line."""
    return name if value == PRESENT else f"{name}={value}"


def values(words: Iterable[str], name: str) -> list[str]:
    """Every value that a line gives an argument, in order; for most the last one counts."""
    wanted = _alike(name)
    pairs = (word.partition("=") for word in words)
    return [value if equals else PRESENT for key, equals, value in pairs if _alike(key) == wanted]


def value(words: Iterable[str], name: str) -> str | None:
    """The value that counts; None where the argument is absent."""
    found = values(words, name)
    return found[-1] if found else None


def said_by_all(lines: Sequence[Sequence[str]], name: str) -> str:
    """For people: what an argument is on the lines of all kernels."""
    found = [value(words, name) for words in lines]
    kinds = dict.fromkeys(held or "absent" for held in found)
    if len(kinds) == 1:
        return next(iter(kinds))
    counted = ((kind, sum((held or "absent") == kind for held in found)) for kind in kinds if kind != "absent")
    return ", ".join(f"{kind} on {count} of {len(found)} kernels" for kind, count in counted)


def loader_entries(host: Host) -> list[list[str]]:
    """The arguments of each entry below /boot/loader (Boot Loader Specification), but for rescue kernels."""
    known = dict(SET.findall(host.read_or_none("/boot/grub2/grub.cfg") or ""))
    # RHEL 8 keeps the arguments that all kernels share in a variable of GRUB's environment block.
    block = (host.read_or_none("/boot/grub2/grubenv") or "").splitlines()
    known.update(line.partition("=")[::2] for line in block if "=" in line and not line.startswith("#"))
    lines = []
    for path in host.glob(f"{ENTRIES}/*.conf"):
        if "-0-rescue" not in path:
            options = re.findall(r"^options[ \t]+(.*)$", host.read(path), re.MULTILINE)
            lines.append(split(filled(" ".join(options), known)))
    return lines


def filled(text: str, known: Mapping[str, str]) -> str:
    """A text of GRUB's with its variables filled in; one that is not set is empty."""
    return VARIABLE.sub(lambda found: known.get(found.group(1), ""), text)


def _alike(name: str) -> str:
    """The kernel takes hyphens and underscores in a name for the same."""
    return name.replace("-", "_")
