"""Values that a line of a script or configuration file gives to a sysctl or a kernel file."""

from __future__ import annotations

import re
from fnmatch import fnmatchcase

from .lines import ConfigLine

QUOTES = ("'", '"')
ECHO = re.compile(
    r"""(?:echo|printf)\s+(?:-\w+\s+)*(["']?)(?P<value>[^"'|>;&]*?)(?:\\n)?\1\s*"""
    r"""(?:>>?|\|\s*(?:sudo\s+)?tee(?:\s+-\S+)*)\s*["']?$"""
)
# Ends of the text before a name that only reads it: `cat NAME`, `[ -w NAME`, `< NAME`.
COMMAND = re.compile(r"[;&|`(]|\b(?:then|do|if|elif|while|until|else)\b|(?:^|\s)!\s")
READERS = re.compile(
    r"(?:(?:sudo|command|timeout \S+)\s+)*(?:\S*/)?"
    r"(?:cat|head|tail|e?grep|awk|cut|test|\[\[?|stat|ls|read|wc|sort)(?:\s|$)"
)
SYSCTL = re.compile(r"(?:(?:sudo|command)\s+)*(?:\S*/)?sysctl(?:\s|$)")
TRAILING_COMMENT = re.compile(r"\s#\s")
# Variables that hold the name of an interface, which is never "all" or "default".
INTERFACES = re.compile(r"\$\{?(?:\w*IFACE|INTERFACE|DEV|DEVICE|name|interface|iface|dev|1)\}?")


def rest_after(text: str, needle: str) -> str | None:
    """The text after `needle`, or the value of `echo VALUE > …needle`.

    None if the text does not contain it, or only reads it.
    """
    mentions = [(text[: match.start()], text[match.end() :]) for match in re.finditer(re.escape(needle), text)]
    for before, rest in reversed(mentions):
        command = re.sub(r"[^\s\"'<>=]*$", "", before)
        if not TRAILING_COMMENT.search(before) and not _reads(command, rest):
            echo = ECHO.search(command)
            return echo["value"] if echo else rest
    return None


def assigned(line: ConfigLine, key: str) -> str | None:
    """The value that a line gives a sysctl; "" if its form is not understood, None if the line does not set it."""
    if line.owner == "tmpfiles.d":
        fields = line.text.split(None, 6)
        named = len(fields) > 1 and fnmatchcase(f"/proc/sys/{key.replace('.', '/')}", fields[1].strip("\"'"))
        return _folded(fields[6].replace("\\n", " ") if len(fields) > 6 else "") if named else None
    if key.rpartition(".")[2] not in line.text:
        return None
    for match in reversed(list(re.finditer(_pattern(key), line.text))):
        before, after = line.text[: match.start()], line.text[match.end() :].lstrip()
        if not _names(match.group(1), key) or TRAILING_COMMENT.search(before):
            continue
        echo = ECHO.search(before)
        if echo:
            return _folded(echo["value"])
        if after.startswith("=") and not after.startswith("=="):
            return _folded(_operand(before, after[1:].strip()))
        if not _reads(before, after):
            return ""
    return None


def _pattern(key: str) -> str:
    """A pattern for the key, with dots or slashes; wildcards and variables may stand for all but its last part."""
    *parts, last = key.split(".")
    either = "".join(rf"(?:{re.escape(part)}|[^\s./\"']*[*?\[{{$][^\s./\"']*)[./]" for part in parts)
    return rf"(?<![\w./])(?<![\w.]-)(?:/proc/sys/)?({either}{re.escape(last)})(?![\w./])"


def _names(text: str, key: str) -> bool:
    """True if the parts of a name that are wildcards, braces or variables match those of the key."""
    return all(_part_matches(part, wanted) for part, wanted in zip(re.split(r"[./]", text), key.split(".")))


def _part_matches(part: str, expected: str) -> bool:
    if part == expected:
        return True
    if part.startswith("{"):
        return expected in part.strip("{}").split(",")
    if INTERFACES.fullmatch(part):
        return False
    return fnmatchcase(expected, re.sub(r"\$\{?\w+\}?", "*", part))


def _reads(before: str, after: str) -> bool:
    """True if a command between these texts only reads the name that it mentions."""
    command = COMMAND.split(before)[-1].strip()
    if re.search(r">\s*[\"']?$", command):
        return False
    if re.search(r"<\s*[\"']?$", before) or READERS.match(command):
        return True
    # In Python, `open(NAME)` without a mode.
    if re.search(r"open\(\s*[\"']$", before):
        return bool(re.match(r"[\"']\s*(?:\)|,\s*[\"']r[tb]?[\"'])", after))
    return bool(SYSCTL.match(command)) and not after.lstrip("\"'").startswith("=")


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
