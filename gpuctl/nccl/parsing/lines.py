"""Text that others add to the output: timestamps, rank tags, labels, escapes, and NCCL lines inside rows."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace

# A number that a machine can have: longer ones are none, and Python makes no integer of more than 4,300 digits.
COUNT = r"\d{1,18}(?!\d)"
DECIMAL = rf"{COUNT}(?:\.\d*)?(?:[eE](?:-\d{{1,3}}|\+?\d{{1,2}})(?!\d))?"
# mpirun --tag-output and PRRTE's form: [1,0]<stdout>: and [prterun-host-77@1,0]<stderr>:
TAG = re.compile(rf"\[(?:[\w.@-]+,)?({COUNT})\]<std\w+>:? ?")
# kubectl logs --prefix, srun --label
_LABEL = re.compile(rf"^(?:\[pod/[^\]]+\] | *({COUNT}): (?=\S*:\d+:\d+ \[|#|  ))")
ESCAPES = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)|[@-Z\\-_])")
# What NCCL and UCX put before a message: host:pid:thread [device], and a time since 2.24.
_SPEAKER = re.compile(
    rf"(?:\[\d[\d :.T-]*\] )?(?<![\w.-])(?P<host>[\w.-]+):(?P<pid>{COUNT}):(?P<thread>\d+) \[(?P<device>-?{COUNT})\] "
    r"(?=.{0,200}?NCCL (?:INFO|WARN|TRACE|ERROR|CALL|ABORT|VERSION)\b)"
)
_UCX = re.compile(r"\[\d{9,}\.\d+\] \[[^\]]+\] ")
# The end of a cell of a row: of a number, a type or an operation.
_CELL = re.compile(
    r"(?:float|double|half|bfloat16|u?int(?:8|32|64)|sum|prod|max|min|avg|mulsum|none)|[-.\d]*(?:(?<=\d)e[-+]?\d*)?"
)


@dataclass(frozen=True)
class Speaker:
    """Process and GPU that a line of NCCL comes from; None means not printed."""

    host: str | None = None
    pid: int | None = None
    device: int | None = None
    rank: int | None = None


@dataclass(frozen=True)
class NcclMessage:
    """A line of NCCL and its origin. `before`: possible texts in front of it on the same line, likeliest first."""

    speaker: Speaker
    text: str
    before: tuple[str, ...]


def clean(line: str) -> str:
    """Strip escapes, control characters and the line end, so that the line is safe to print on a terminal."""
    line = line.rstrip("\r\n")
    if line.isprintable():
        return line
    return "".join(letter for letter in ESCAPES.sub("", line) if letter.isprintable() or letter == "\t")


def untag(line: str) -> tuple[str, int | None]:
    """Strip the tags and labels of launchers; also return the rank that a leading tag names."""
    rank: int | None = None
    if "]<std" in line:
        match = TAG.match(line)
        rank = int(match[1]) if match else None
        line = TAG.sub("", line)
    if line[:5] == "[pod/" or ": " in line[:8]:
        label = _LABEL.match(line)
        if label:
            rank = int(label[1]) if label[1] else rank
            line = line[label.end() :]
    return line, rank


def parse_messages(line: str, hosts: set[str], rank: int | None = None) -> list[NcclMessage]:
    """Find the NCCL messages in a line, wherever they begin; several if line ends between them were lost."""
    if " NCCL " not in line:
        other = _UCX.search(line) if " UCX " in line else None
        return [NcclMessage(Speaker(rank=rank), "", (line[: other.start()],))] if other else []
    found: list[NcclMessage] = []
    begin = 0
    # The search in a long rest is slow; only behind another " NCCL " it can succeed.
    while (not begin or line.find(" NCCL ", begin) > 0) and (match := _SPEAKER.search(line, begin)):
        before, host = _begin(line[begin : match.start()], match["host"], hosts)
        if found:
            # Behind another message only a known host tells where that one ends.
            found[-1] = replace(found[-1], text=before[0])
            before = ("",)
        elif not before[0]:
            hosts.add(host)
        speaker = Speaker(host, int(match["pid"]), int(match["device"]), None if found else rank)
        found.append(NcclMessage(speaker, line[match.end() :], before))
        begin = match.end()
    return found


def _begin(before: str, host: str, hosts: set[str]) -> tuple[tuple[str, ...], str]:
    """Find where the host name begins: the end of a broken row may precede it without a space."""
    if not before.strip() and (host in hosts or not host[0].isdigit()):
        return (before,), host
    known = max((name for name in hosts if host.endswith(name)), key=len, default=None)
    if known is not None:
        return (before + host[: len(host) - len(known)],), known
    # Nobody named this host before. What looks like a cell in front of its name rather is the end of the row.
    likely = _CELL.match(host)
    first = likely.end() if likely else 0
    splits = dict.fromkeys([first if first < len(host) else 0, *range(len(host))])
    return tuple(before + host[:i] for i in splits), host
