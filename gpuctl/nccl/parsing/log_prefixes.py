"""Remove what log collectors put in front of lines: timestamps, journald, CRI and Docker records, pod names."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator

_TIME = r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(?:[.,]\d+)?(?:Z|[+-]\d\d:?\d\d)?"
# containerd and CRI-O: 2026-11-23T10:17:22.123456789Z stdout F line; P marks a part of a line
_CRI = re.compile(rf"{_TIME} (?:stdout|stderr) ([FP])(?: |$)")
_STAMP = re.compile(rf"(\[pod/[^\]]+\] )?{_TIME} ")  # kubectl logs --timestamps, with --prefix or without
# journald, short or short-iso: Nov 23 10:17:22 node-1 all_reduce_perf[4711]: line
_JOURNAL = re.compile(rf"(?:[A-Z][a-z]{{2}} [ \d]\d \d\d:\d\d:\d\d(?:\.\d+)?|{_TIME}) [\w.-]+ ([\w./-]+)\[\d+\]: ?")
# stern: its prefix is known from a line that only nccl-tests prints
_STERN = re.compile(
    rf"(?!#)(\S+ \S+ )(?:{_TIME} )?(?=# (?:nccl-tests version|nThread|Collective test starting|Using devices))"
)
_DAEMONS = ("slurmstepd", "slurmd", "systemd", "kubelet", "dockerd", "containerd", "crio")  # their name is information
_MOST_PART = 1 << 20  # characters of a line that came in parts


def strip(lines: Iterable[str]) -> Iterator[str]:
    """Yield lines as the program printed them; lines without such a prefix pass through unchanged."""
    part, stern = "", _Stern()
    for line in lines:
        text, whole = stern.strip(line) if line[:1].isalpha() and line[3:4] != " " else _record(line)
        if part or not whole:
            part += text
            if not whole and len(part) < _MOST_PART:
                continue
            text, part = part, ""
        yield text
    if part:
        yield part


class _Stern:
    """Prefixes of stern ("pod container "), learned from lines that only nccl-tests prints."""

    def __init__(self) -> None:
        self._prefixes: tuple[str, ...] = ()

    def strip(self, line: str) -> tuple[str, bool]:
        if "# " in line[:300] and (match := _STERN.match(line)) and match[1] not in self._prefixes:
            self._prefixes = (*self._prefixes, match[1])
        prefix = next((prefix for prefix in self._prefixes if line.startswith(prefix)), None)
        return _record(line[len(prefix) :]) if prefix else (line, True)


def _record(line: str) -> tuple[str, bool]:
    first = line[:1]
    if first == "{":
        return _docker(line)
    return _stamped(line) if first.isalnum() or first == "[" else (line, True)


def _docker(line: str) -> tuple[str, bool]:
    """Docker's json-file record: a line that is split has no line end in its first parts."""
    if not line.startswith('{"log":'):
        return line, True
    try:
        record = json.loads(line)
    except (ValueError, RecursionError):  # cut, or not Docker's
        return line, True
    text = record.get("log") if isinstance(record, dict) and "stream" in record else None
    return (text, text.endswith("\n")) if isinstance(text, str) else (line, True)


def _stamped(line: str) -> tuple[str, bool]:
    """The line without its timestamp and origin; False if only a part of it is here."""
    if cri := _CRI.match(line):
        rest = line[cri.end() :]
        return (rest, True) if cri[1] == "F" else (rest.rstrip("\r\n"), False)
    if journal := _JOURNAL.match(line):
        name = journal[1].rpartition("/")[2]
        return (f"{name}: " if name in _DAEMONS else "") + line[journal.end() :], True
    if stamp := _STAMP.match(line):
        return (stamp[1] or "") + line[stamp.end() :], True
    return line, True
