"""Remove what log collectors put around lines: timestamps, journald and CRI records, pod names, JSON.

Where it names a pod or host, the line keeps that as its origin: one text may hold the lines of several.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from gpuctl.nccl.parsing import log_records
from gpuctl.nccl.parsing.lines import ESCAPES, TAG

_TIME = r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(?:[.,]\d+)?(?:Z|[+-]\d\d:?\d\d)?"
# containerd and CRI-O: 2026-11-23T10:17:22.123456789Z stdout F line; P marks a part of a line
_CRI = re.compile(rf"{_TIME} (?:stdout|stderr) ([FP])(?: |$)")
_STAMP = re.compile(rf"(\[pod/[^\]]+\] )?{_TIME} ")  # kubectl logs --timestamps, with --prefix or without
# journald, short or short-iso: Nov 23 10:17:22 node-1 all_reduce_perf[4711]: line
_JOURNAL = re.compile(rf"(?:[A-Z][a-z]{{2}} [ \d]\d \d\d:\d\d:\d\d(?:\.\d+)?|{_TIME}) ([\w.-]+) ([\w./-]+)\[\d+\]: ?")
# Any other prefix is learned from a line that only nccl-tests prints: stern's and docker compose's names, the times of
# ts, mpirun --timestamp-output, syslog and aws logs. Numbers in it may differ from line to line.
_FIRST = re.compile(r"# (?:nccl-tests version|nThread|Collective test starting|Using devices)")
_LONGEST_PREFIX = 200
_CLOCK = re.compile(r"\d\d:\d\d:\d\d +")  # ts -s, ts %H:%M:%S
# A prefix that names where the line comes from, without its time: stern's and docker compose's, a stream of aws logs.
_NAME = r"[\d.-]*[a-z][\w.-]*"  # not a number, which may be a time
_NAMES = re.compile(rf"({_NAME} {_NAME}) |([\w.-]+) +\| |((?!\d+/\d)\S+/\S+/\S+) ")
_POD = re.compile(r"\[pod/([^\]/]+)/?([^\]]*)\] ")
_DOCKER_PART = 16 << 10  # bytes of a part of a longer line
_DAEMONS = ("slurmstepd", "slurmd", "systemd", "kubelet", "dockerd", "containerd", "crio")  # their name is information
_MOST_PART = 1 << 20  # characters of a line that came in parts
_MOST_PREFIXES = 1024  # of different pods
_DIGITS = re.compile(r"(\d+)")


def strip(lines: Iterable[str]) -> Iterator[tuple[str | None, str]]:
    """Yield lines as the program printed them, each with its origin; lines without a prefix pass through unchanged.

    The origin is a pod with its container, a log stream or a host; None if the text names none.
    """
    parts: dict[str | None, str] = {}
    learned, docker_ends = _Learned(), False
    for item in log_records.documents(lines):
        if isinstance(item, str):
            origin, text, whole = learned.strip(item)
            if whole and not parts:  # nearly all lines of a large log
                yield origin, text
                continue
            stripped = [(origin, text, whole)]
        else:
            docker_ends = docker_ends or any(one.whole is None and one.text.endswith("\n") for one in item)
            stripped = [_of_json(one, docker_ends) for one in item]
        for origin, text, whole in stripped:
            line = parts.pop(origin, "") + text if parts else text
            if not whole and len(line) < _MOST_PART and len(parts) < _MOST_PREFIXES:
                parts[origin] = line
                continue
            yield origin, line
    yield from parts.items()


Stripped = tuple[str | None, str, bool]  # origin, text, and False if it is only a part of a line


def _of_json(record: log_records.Record, docker_ends: bool) -> Stripped:
    """The text of a record may have a prefix of its own: that of containerd, where a shipper did not parse it."""
    origin, text, whole = _record(record.text)
    if record.whole is None:  # where no record has a line end, something took them off
        whole = whole and (text.endswith("\n") or not (docker_ends or len(text) >= _DOCKER_PART))
        text = text if text.endswith("\n") or not whole else f"{text}\n"
    return record.origin or origin, text, whole and record.whole is not False


class _Learned:
    """Prefixes learned from lines that only nccl-tests prints."""

    def __init__(self) -> None:
        self._prefixes: tuple[re.Pattern[str], ...] = ()

    def strip(self, line: str) -> Stripped:
        # Nearly all of a large log begins with a host's name, and is no record of a collector.
        origin, text, whole = (None, line, True) if line[:1].isalpha() and line[3:4] != " " else _record(line)
        if whole and text[:1] != "#" and "# " in text[:_LONGEST_PREFIX]:
            self._learn(text)
        for prefix in self._prefixes:
            if match := prefix.match(text):
                inner, text, whole = _record(text[match.end() :])
                return origin or inner or _origin(match[0]), text, whole
        return origin, text, whole

    def _learn(self, line: str) -> None:
        """Learn what stands in front of the first words of nccl-tests, up to a tag of mpirun."""
        first = _FIRST.search(line, 0, _LONGEST_PREFIX)
        prefix = line[: first.start()] if first else ""
        tag = TAG.search(prefix)
        prefix = prefix[: tag.start()] if tag else prefix
        known = any(known.match(line) for known in self._prefixes) or len(self._prefixes) >= _MOST_PREFIXES
        # The label of srun, a number, tells the rank: it stays.
        label = not prefix.strip("# \t0123456789:") and not _CLOCK.fullmatch(prefix)
        if known or label or " NCCL " in prefix:
            return
        # A time that is stripped anyway may stand in front of only some lines, and behind a name.
        plain = re.sub(rf"{_TIME} $", "", prefix) or prefix
        pattern = re.compile("".join(r"\d+" if part.isdigit() else re.escape(part) for part in _DIGITS.split(plain)))
        self._prefixes = (*self._prefixes, pattern)


def _origin(prefix: str) -> str | None:
    """The pod, container or stream that a prefix names; None for times, ranks and other text."""
    names = _NAMES.fullmatch(re.sub(rf"{_TIME} ", "", ESCAPES.sub("", prefix)))
    return next((name for name in names.groups() if name), None) if names else None


def _record(line: str) -> Stripped:
    """The line without its timestamp and origin; False if only a part of it is here."""
    if not (line[:1].isalnum() or line[:1] == "["):
        return None, line, True
    if cri := _CRI.match(line):
        rest = line[cri.end() :]
        return (None, rest, True) if cri[1] == "F" else (None, rest.rstrip("\r\n"), False)
    if journal := _JOURNAL.match(line):
        name = journal[2].rpartition("/")[2]
        return journal[1], (f"{name}: " if name in _DAEMONS else "") + line[journal.end() :], True
    origin = " ".join(name for name in pod.groups() if name) if (pod := _POD.match(line)) else None
    if stamp := _STAMP.match(line):
        return origin, (stamp[1] or "") + line[stamp.end() :], True
    return origin, line, True
