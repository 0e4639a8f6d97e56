"""Failures in the log of a distributed job: which came first, on which rank and node, and which only followed.

A job's log is that of all its ranks together, by torchrun, srun, mpirun or kubectl, with or without their labels. A
rank that fails makes others fail: they lose their connection to it, or wait until NCCL's watchdog ends them. These
consequences are recognised by their texts.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import islice

from gpuctl.core.redact import removed
from gpuctl.core.text import plural
from gpuctl.domain.findings import Finding, Verdict, unknown

# Before each line: PyTorch's own, torchrun's --tee, `mpirun --tag-output`, `kubectl logs --prefix`, stern (only pods
# with a hyphen in their names, as tables have bars, too), and `srun --label`. One may be inside another.
LABELS = (
    re.compile(r"^\[rank(?P<rank>\d+)\]:\s?"),
    re.compile(r"^\[default\d+\]:\s?"),
    re.compile(r"^\[\d+,(?P<rank>\d+)\](?:<std(?:out|err)>)?:\s?"),
    re.compile(r"^\[pod/(?P<node>[^/\s\]]+)/[^\]\s]+\]\s"),
    re.compile(r"^(?P<node>[a-z0-9][a-z0-9.]*-[a-z0-9.-]*[a-z0-9]) [a-z0-9-]+ \| ?"),
    re.compile(r"^\s*(?P<rank>\d+): "),
)
MOST_LABELS = 3
EXCEPTION = re.compile(r"^(?P<text>(?:\w+\.)*[A-Z]\w*(?:Error|Exception|Interrupt|Exit|Failure)\b(?::.*)?)$")
# What a rank prints that has lost another one. Sources: gloo/transport/tcp/pair.cc; PyTorch's TCPStore,
# ProcessGroupNCCL and NCCLUtils; NCCL's ncclGetErrorString.
LOST_PEER = re.compile(
    r"Connection (?:closed|reset) by (?:remote )?peer|Broken pipe|failed to recv, got 0 bytes|DistNetworkError"
    r"|recvValue failed|remote process exited or there was a network error|ncclRemoteError"
    r"|NCCL communicator was aborted|Watchdog caught collective operation timeout|Timed out waiting \d+ms for recv"
    r"|Last error:\s*(?:socketProgress|Net ).*closed|ran for \d+ milliseconds before timing out",
    re.IGNORECASE,
)
# torchrun reports its first failed process in a line with this text, and then prints its own traceback and a table.
# Source: torch/distributed/elastic/multiprocessing/api.py, the same text in 1.13 to 2.9.
EPILOGUE = re.compile(r"failed \(exitcode: -?\d+\) local_rank: \d+ \(pid: \d+\) of (?:binary|fn)")
# Reports of a launcher about processes that ended; they come after the failure and repeat it.
LAUNCHERS = re.compile(
    rf"ChildFailedError|SignalException|Sending process \d+ closing signal|CalledProcessError|{EPILOGUE.pattern}"
)
# srun's report: "srun: error: node-5: task 37: Exited with exit code 1".
SRUN = re.compile(
    r"srun: error: (?P<node>[\w.-]+): tasks? (?P<ranks>[\d,-]+): (?P<how>Exited with exit code \d+|Out Of Memory|Killed"
    r"|Segmentation fault|Bus error|Aborted|Floating point exception|Terminated)[^\n]*"
)
# torchrun's table of the first failure. Source: torch/distributed/elastic/multiprocessing/errors/__init__.py.
ROOT_CAUSE = re.compile(r"Root Cause \(first observed failure\):")
ROOT_FIELDS = re.compile(r"^\s*(?P<key>time|host|rank|exitcode|error_file)\s*: (?P<value>.+?)\s*$")
XID = "NVRM: Xid ("
MOST_OF_A_LINE = 4096  # characters that are searched; progress bars are printed into one endless line
MOST_TEXT = 300  # characters of a line in a message
RULE = "job-log"
LINES_OF_AN_EXCEPTION = 6  # PyTorch prints NCCL's reason some lines below its exception
MOST_LATER = 8
OF_THE_NODE = frozenset(
    {"uncorrectable memory error", "CUDA error", "Xid", "crash", "NCCL warning", "NCCL error", "host gone"}
)
OF_THE_CODE = {
    "exception": "an error of the program as a rule: the traceback above the line has the place",
    "GPU memory full": "smaller batches, or another process on the GPU: `gpuctl nodes` shows who uses it",
    "host memory full": "the kernel ended it: raise the job's memory limit, or use fewer data workers",
    "disk full": "free space, or another folder for checkpoints and caches",
    "stale file system": "mount the file system again on the node: `gpuctl audit` shows mounts that do not answer",
    "time limit": "the job reached its limit and was not ended by a fault",
    "cancelled": "somebody, or the scheduler, ended the job: its own records have the reason",
}
NCCL_WARN = re.compile(r"(?<![\w.-])(?P<node>[\w.-]+):\d+:\d+ \[\d+\] (?:.*?)NCCL WARN (?P<text>.+)")


@dataclass(frozen=True)
class Pattern:
    """Lines of one kind of failure. `kind` is for people; `is_consequence`: the rank only lost another one."""

    kind: str
    regex: re.Pattern[str]
    is_consequence: bool = False


PATTERNS = (
    Pattern("lost another rank", LOST_PEER, is_consequence=True),
    Pattern("uncorrectable memory error", re.compile(r"uncorrectable (?:ECC|NVLink) error", re.IGNORECASE)),
    Pattern("GPU memory full", re.compile(r"CUDA out of memory|CUDA error: out of memory|HIP out of memory")),
    Pattern(
        "CUDA error", re.compile(r"CUDA error: .+|CUDA failure .+|Cuda failure .+|CUDA_ERROR_\w+|CUBLAS_STATUS_\w+")
    ),
    Pattern("host memory full", re.compile(r"oom[-_]kill event|Out of memory: Killed process|OOMKilled|MemoryError")),
    Pattern("disk full", re.compile(r"No space left on device|Disk quota exceeded")),
    Pattern(
        "stale file system", re.compile(r"Stale file handle|Transport endpoint is not connected|Input/output error")
    ),
    Pattern("crash", re.compile(r"Segmentation fault|Bus error|Fatal Python error: .+|SIGSEGV|SIGBUS|core dumped")),
    Pattern("NCCL error", re.compile(r"ncclUnhandledCudaError|ncclSystemError|ncclInternalError|NCCL error")),
    Pattern("time limit", re.compile(r"CANCELLED AT \S+ DUE TO TIME LIMIT")),
    Pattern(
        "cancelled",
        re.compile(
            r"KeyboardInterrupt|\*\*\* (?:JOB|STEP) \S+ ON \S+ CANCELLED AT .+|DUE TO PREEMPTION|DUE TO NODE FAILURE"
        ),
    ),
    Pattern("host gone", re.compile(r"No route to host|Host key verification failed|ssh: connect to host .+")),
)


# Every line of interest has one of these; most lines of a log have none, and are not looked at any further.
SUSPECT = (
    *("error", "exception", "interrupt", "exit", "fail", "fault", "kill", "aborted", "cancelled", "preempt"),
    *("closed", "reset", "pipe", "recv", "route", "verification", "ssh:", "endpoint", "stale", "quota", "space left"),
    *("nccl", "cuda", "cublas", "oom", "memory", "xid", "sigsegv", "sigbus", "bus error", "core dump"),
    *("watchdog", "timed out", "timing out", "root cause"),
)


@dataclass(frozen=True)
class JobFailure:
    """A failure in the log. `line` counts from 1; `rank` None and `node` "" if the line does not name them.

    `is_consequence`: the rank only lost another one. `source`: "line", or "torchrun" and "srun" for their own reports.
    """

    line: int
    kind: str
    text: str
    rank: int | None = None
    node: str = ""
    is_consequence: bool = False
    source: str = "line"


@dataclass(frozen=True)
class JobLog:
    """Failures of a log in its order, and the number of lines that were read."""

    failures: Sequence[JobFailure]
    lines: int

    @property
    def first(self) -> JobFailure | None:
        """The cause: torchrun's own verdict if no line names one, else the first that is no consequence.

        Only consequences: the first of them, whose rank lost somebody that printed nothing.
        """
        causes = [one for one in self.failures if not one.is_consequence]
        by_line = [one for one in causes if one.source == "line"]
        return next(iter(by_line or causes or self.failures), None)


@dataclass(frozen=True)
class Line:
    """A line without its labels, which may name its rank and node."""

    number: int
    text: str
    rank: int | None = None
    node: str = ""


def read(lines: Iterable[str]) -> JobLog:
    """Read a log; of a rank, its first failure counts, and the first loss of another rank."""
    failures: dict[tuple[object, ...], JobFailure] = {}
    root: dict[str, str] = {}
    count = 0
    for count, raw in enumerate(lines, 1):
        text = raw[:MOST_OF_A_LINE].rstrip("\r\n")
        lower = text.lower()
        if not root and not any(word in lower for word in SUSPECT):
            continue
        line = unlabelled(count, text)
        if ROOT_CAUSE.search(line.text):
            root = {"line": str(count)}
        elif root and (match := ROOT_FIELDS.match(line.text)):
            root.setdefault(match["key"], match["value"])
        for one in _failures_of(line):
            if one.is_consequence:
                _withdraw(failures, one)
            what = one.kind if one.rank is None else ""
            failures.setdefault((one.rank, one.node, what, one.is_consequence, one.source), one)
    found = list(failures.values())
    return JobLog(_with_nodes([*found, _of_root(root)] if "host" in root else found), count)


def _withdraw(failures: dict[tuple[object, ...], JobFailure], loss: JobFailure) -> None:
    """Mark an exception about NCCL as a consequence if its next lines say that another rank was lost."""
    for key, one in failures.items():
        is_same = (one.rank, one.node) == (loss.rank, loss.node) and loss.line - one.line <= LINES_OF_AN_EXCEPTION
        if is_same and not one.is_consequence and "NCCL" in one.text:
            failures[key] = replace(one, kind=loss.kind, is_consequence=True)


def judge(log: JobLog) -> list[Finding]:
    """Judge a log: the cause first, then who only followed. A log without a known failure proves nothing: UNKNOWN."""
    first = log.first
    if first is None:
        hint = "a hang and a slow node print nothing: `gpuctl nccl preflight`, then `gpuctl nccl isolate`"
        what = f"no line of a known failure in {plural(log.lines, 'line')}" if log.lines else "the log is empty"
        return [unknown(RULE, "", what, hint)]
    if first.is_consequence:
        silent = _silent(log)
        named = f"rank {silent[0]}" if len(silent) == 1 else f"ranks {', '.join(map(str, silent))}"
        who = f"{named} printed nothing" if silent else "the rank that it lost printed nothing"
        message = f"line {first.line}: {first.text}; {who} before it ended or hung"
        hint = "look for a killed process or a lost host; `gpuctl cluster doctor NAME hang` while it hangs"
        return [Finding(RULE, "" if silent else subject(first), Verdict.FAIL, message, hint=hint)]
    message = f"{first.kind}, line {first.line}: {first.text}"
    return [Finding(RULE, subject(first), Verdict.FAIL, message, hint=_hint(first)), *_others(log, first)]


def _silent(log: JobLog) -> list[int]:
    """Ranks below the highest one that did not report a loss, if they are few: the others waited for them."""
    lost = {one.rank for one in log.failures if one.rank is not None}
    silent = sorted(set(range(max(lost, default=-1) + 1)) - lost)
    return silent if len(silent) <= MOST_LATER and len(silent) < len(lost) else []


def _others(log: JobLog, first: JobFailure) -> list[Finding]:
    """Later failures that may have causes of their own, and in one finding the ranks that lost another one."""
    lost = [one for one in log.failures if one.is_consequence]
    later = [one for one in log.failures if one is not first and not one.is_consequence and one.source == "line"]
    findings = [
        Finding(RULE, subject(one), Verdict.WARN, f"later: {one.kind}, line {one.line}: {one.text}")
        for one in later[:MOST_LATER]
    ]
    if len(later) > MOST_LATER:
        findings.append(Finding(RULE, "", Verdict.WARN, f"{len(later) - MOST_LATER} further failures came later"))
    if lost:
        names = ", ".join(dict.fromkeys(map(subject, lost[:MOST_LATER]))) or "ranks that are not named"
        more = f" and {len(lost) - MOST_LATER} more" if len(lost) > MOST_LATER else ""
        message = f"from line {lost[0].line} on, others only lost their connection: {names}{more}"
        findings.append(Finding(RULE, "", Verdict.OK, message))
    return findings


def subject(failure: JobFailure) -> str:
    """Name a failure's rank and node, as far as they are known."""
    rank = "" if failure.rank is None else f"rank {failure.rank}"
    return " on ".join(part for part in (rank, failure.node) if part)


def _hint(failure: JobFailure) -> str:
    if failure.kind in OF_THE_CODE:
        return OF_THE_CODE[failure.kind]
    where = f" --limit {failure.node}" if failure.node else ""
    if failure.kind in OF_THE_NODE:
        return f"`gpuctl audit --inventory NAME{where}` checks the node" + (
            "" if where else ", once you know which it is"
        )
    return "`--around 20` prints the lines around it"


def around(lines: Iterable[str], failure: JobFailure, count: int) -> list[str]:
    """Return a failure's line with as many lines before and after it."""
    return list(islice(lines, max(0, failure.line - 1 - count), failure.line + count))


def unlabelled(number: int, raw: str) -> Line:
    """Take the labels of launchers off a line."""
    text, rank, node = raw, None, ""
    for _ in range(MOST_LABELS):
        match = next((found for label in LABELS if (found := label.match(text))), None)
        if match is None:
            break
        values = match.groupdict()
        rank = rank if values.get("rank") is None else int(values["rank"])
        node = values.get("node") or node
        text = text[match.end() :]
    return Line(number, text, rank, node)


def _failures_of(line: Line) -> list[JobFailure]:
    if LAUNCHERS.search(line.text):
        return []
    if match := SRUN.search(line.text):
        first = JobFailure(line.number, f"srun: {match['how']}", match.group(), node=match["node"], source="srun")
        return [replace(first, rank=rank) for rank in _ranks(match["ranks"]) if match["how"] != "Terminated"]
    one = _failure_of(line)
    if one is None:
        return []
    text, _ = removed(one.text.strip()[: 4 * MOST_TEXT])  # before the cut, which could leave a part of a secret
    return [replace(one, text=text[:MOST_TEXT])]


def _failure_of(line: Line) -> JobFailure | None:
    if XID in line.text:
        return JobFailure(line.number, "Xid", line.text, line.rank, line.node)
    if (match := NCCL_WARN.search(line.text)) and not LOST_PEER.search(line.text):
        return JobFailure(line.number, "NCCL warning", match["text"], line.rank, match["node"])
    for pattern in PATTERNS:
        if pattern.regex.search(line.text):
            return JobFailure(line.number, pattern.kind, line.text, line.rank, line.node, pattern.is_consequence)
    match = EXCEPTION.match(line.text.strip())
    return match and JobFailure(line.number, "exception", match["text"], line.rank, line.node)


def _ranks(text: str) -> list[int]:
    """ "3,5-7" -> [3, 5, 6, 7]; of a range that cannot be, the first."""
    ranks: list[int] = []
    for part in text.split(","):
        first, _, last = part.partition("-")
        if first.isdigit():
            end = int(last) if last.isdigit() else int(first)
            ranks += range(int(first), min(end, int(first) + 4096) + 1)
    return ranks


def _of_root(root: dict[str, str]) -> JobFailure:
    rank = re.match(r"\d+", root.get("rank", ""))
    code = root.get("exitcode", "?")
    text = f"torchrun: first failure is rank {root.get('rank', '?')} on {root['host']}, exit code {code}"
    return JobFailure(
        int(root["line"]), "first process that ended", text, int(rank.group()) if rank else None, root["host"],
        source="torchrun",
    )  # fmt: skip


def _with_nodes(failures: Sequence[JobFailure]) -> list[JobFailure]:
    """Add the node of a rank where a report of srun or torchrun names both."""
    nodes = {one.rank: one.node for one in failures if one.source != "line" and one.node}
    return [one if one.node or one.rank is None else replace(one, node=nodes.get(one.rank, "")) for one in failures]
