"""Remove what log collectors put in front of lines: timestamps, journald, CRI and Docker records, pod names."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator

from gpuctl.nccl.parsing.lines import TAG

_TIME = r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(?:[.,]\d+)?(?:Z|[+-]\d\d:?\d\d)?"
# containerd and CRI-O: 2026-11-23T10:17:22.123456789Z stdout F line; P marks a part of a line
_CRI = re.compile(rf"{_TIME} (?:stdout|stderr) ([FP])(?: |$)")
_STAMP = re.compile(rf"(\[pod/[^\]]+\] )?{_TIME} ")  # kubectl logs --timestamps, with --prefix or without
# journald, short or short-iso: Nov 23 10:17:22 node-1 all_reduce_perf[4711]: line
_JOURNAL = re.compile(rf"(?:[A-Z][a-z]{{2}} [ \d]\d \d\d:\d\d:\d\d(?:\.\d+)?|{_TIME}) [\w.-]+ ([\w./-]+)\[\d+\]: ?")
# Any other prefix is learned from a line that only nccl-tests prints: stern's and docker compose's names, the times of
# ts, mpirun --timestamp-output, syslog and aws logs. Numbers in it may differ from line to line.
_FIRST = re.compile(r"# (?:nccl-tests version|nThread|Collective test starting|Using devices)")
_LONGEST_PREFIX = 200
_JSON_LINES = (("MESSAGE", "__REALTIME_TIMESTAMP"), ("message", "podName"))  # journalctl -o json, stern -o json
_DAEMONS = ("slurmstepd", "slurmd", "systemd", "kubelet", "dockerd", "containerd", "crio")  # their name is information
_MOST_PART = 1 << 20  # characters of a line that came in parts
_MOST_PREFIXES = 1024  # of different pods
_DIGITS = re.compile(r"(\d+)")


def strip(lines: Iterable[str]) -> Iterator[str]:
    """Yield lines as the program printed them; lines without such a prefix pass through unchanged."""
    part, learned = "", _Learned()
    for line in lines:
        text, whole = learned.strip(line)
        if part or not whole:
            part += text
            if not whole and len(part) < _MOST_PART:
                continue
            text, part = part, ""
        yield text
    if part:
        yield part


class _Learned:
    """Prefixes learned from lines that only nccl-tests prints."""

    def __init__(self) -> None:
        self._prefixes: tuple[re.Pattern[str], ...] = ()

    def strip(self, line: str) -> tuple[str, bool]:
        # Nearly all of a large log begins with a host's name, and is no record of a collector.
        text, whole = (line, True) if line[:1].isalpha() and line[3:4] != " " else _record(line)
        if whole and text[:1] != "#" and "# " in text[:_LONGEST_PREFIX]:
            self._learn(text)
        for prefix in self._prefixes:
            if match := prefix.match(text):
                return _record(text[match.end() :])
        return text, whole

    def _learn(self, line: str) -> None:
        """Learn what stands in front of the first words of nccl-tests, up to a tag of mpirun."""
        first = _FIRST.search(line, 0, _LONGEST_PREFIX)
        prefix = line[: first.start()] if first else ""
        tag = TAG.search(prefix)
        prefix = prefix[: tag.start()] if tag else prefix
        known = any(known.match(line) for known in self._prefixes) or len(self._prefixes) >= _MOST_PREFIXES
        # The label of srun, a number, tells the rank: it stays.
        if known or not prefix.strip("# \t0123456789:") or " NCCL " in prefix:
            return
        # A time that is stripped anyway may stand in front of only some lines, and behind a name.
        plain = re.sub(rf"{_TIME} $", "", prefix) or prefix
        pattern = re.compile("".join(r"\d+" if part.isdigit() else re.escape(part) for part in _DIGITS.split(plain)))
        self._prefixes = (*self._prefixes, pattern)


def _record(line: str) -> tuple[str, bool]:
    first = line[:1]
    if first == "{":
        return _json(line)
    return _stamped(line) if first.isalnum() or first == "[" else (line, True)


def _json(line: str) -> tuple[str, bool]:
    """Text of a record of Docker's json-file, journald or stern; Docker ends only the last part of a line."""
    docker = line.startswith('{"log":')
    names = next((names for names in _JSON_LINES if all(f'"{name}"' in line for name in names)), None)
    if not docker and names is None:
        return line, True
    try:
        record = json.loads(line)
    except (ValueError, RecursionError):  # cut, or of something else
        return line, True
    if not isinstance(record, dict):
        return line, True
    if docker:
        text = record.get("log") if "stream" in record else None
        return (text, text.endswith("\n")) if isinstance(text, str) else (line, True)
    text = record.get(names[0]) if names else None
    return (text.rstrip("\r\n") + "\n", True) if isinstance(text, str) else (line, True)


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
