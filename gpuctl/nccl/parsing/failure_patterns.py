"""Messages by which ranks, launchers, schedulers and kernels report failures."""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import IntEnum

from gpuctl.nccl.model import Outcome
from gpuctl.nccl.parsing.lines import COUNT


class Weight(IntEnum):
    """Rank of a line by how directly it states the reason; the cause is the first line of the greatest weight."""

    AFTER = 1  # what follows from something else: exit codes, closed connections, banners
    WARNING = 2  # NCCL warns; runs survive many of these
    SYMPTOM = 3  # a rank noticed another one, or its network, failing
    HARD = 4  # the reason itself


@dataclass(frozen=True)
class Known:
    """One such message. Named groups `host` and `rank` tell its origin; `message` is filled with all named groups.

    If `message` contains {signal}, the signal is searched for behind it, and in the next line.
    """

    pattern: re.Pattern[str]
    message: str
    weight: Weight
    outcome: Outcome


def _hard(pattern: str, message: str = "{what}", outcome: Outcome = Outcome.FAILED) -> Known:
    return Known(re.compile(pattern), message, Weight.HARD, outcome)


def _killed(pattern: str, message: str = "{what}") -> Known:
    return _hard(pattern, message, Outcome.KILLED)


def _soft(weight: Weight, pattern: str, message: str = "{what}", outcome: Outcome = Outcome.FAILED) -> Known:
    return Known(re.compile(pattern), message, weight, outcome)


AFTER, WARNING, SYMPTOM = Weight.AFTER, Weight.WARNING, Weight.SYMPTOM
_GONE = r"remote process exited|Connection closed by|Connection reset|Broken pipe|socketPollConnect|unexpected closure"
_HOST, _RANK = r"(?<![\w.-])(?P<host>[\w.-]+)", rf"(?P<rank>{COUNT})"
_ERROR = r"(?P<what>[^'/(]*[^'/( ])(?: \([^)]*\))?(?: / (?P<more>[^']*))?"
_SRUN = r"^srun: error: (?P<host>[\w.\[\],-]+): "
_STEP = rf"(?:STEP|JOB) \S+ ON {_HOST} CANCELLED AT \S+ DUE TO "
_SHELL = r"^(?:\S*sh: (?:line )?\d+: +\d+ +)?"  # "bash: line 1: 4711 Killed …"
_CRASH = "Segmentation fault|Bus error|Aborted"

# Messages of the test, its launcher, the scheduler, the kernel or the shell; the first match counts.
# A run with one of them cannot have ended well.
LINES = (
    # nccl-tests (common.h: NCCLCHECK, CUDACHECK, TESTCHECK; common.cu: testStreamSynchronize) and PyTorch
    _soft(AFTER, rf"{_HOST}: Test NCCL failure \S+ '(?P<what>(?:{_GONE})[^'/]*)"),
    _hard(rf"(?:{_HOST}: )?Test NCCL failure \S+ '{_ERROR}", "{what}, {more}"),
    _hard(rf"(?:{_HOST}: )?Test CUDA failure \S+ '(?P<what>[^']*)'", "CUDA: {what}"),
    _hard(rf"{_HOST}: Test timeout \((?P<s>\d+)s\)", "no end within {s} s (Test timeout)", Outcome.HUNG),
    _soft(AFTER, rf"^\s*\.\. {_HOST} pid \d+: Test failure (?P<at>\S+)", "Test failure {at}"),
    _hard(r"^Invalid number of GPUs: (?P<what>.+)", "invalid number of GPUs: {what}"),
    _hard(r"^invalid option '(?P<what>.)'", "this build of nccl-tests does not know the option -{what}"),
    # It goes on with its default: not the test that was requested.
    _hard(
        r"^invalid (?P<kind>type|op) (?P<what>\S+), defaulting to (?P<other>\w+)",
        "this build of nccl-tests has no {kind} {what}, and used {other}",
    ),
    _hard(rf"^\[Rank {_RANK}\] RCCL FATAL: (?P<what>.+)"),
    _hard(rf"^\s*\[{_RANK}\] (?P<what>(?:finished|joined) .*didn't join .*)", outcome=Outcome.HUNG),
    _soft(
        SYMPTOM,
        rf"\[[Rr]ank ?{_RANK}\].*Watchdog caught collective operation timeout: "
        r"(?P<what>WorkNCCL\(.*?\) ran for \d+ \w+)?",
        "the watchdog caught a collective that did not end: {what}",
        Outcome.HUNG,
    ),
    # Open MPI and PRRTE
    _killed(rf"noticed that process rank {_RANK} with PID \d+ on node {_HOST} exited", "ended by {signal}"),
    _hard(rf"^\s*Remote daemon: .* on node {_HOST}", "the node was lost while the test ran"),
    _soft(WARNING, r"\*\*\* Process received signal \*\*\*|^\s*Signal: [^(]+\(\d+\)", "a rank crashed"),
    _soft(AFTER, rf"MPI_ABORT was invoked on rank {_RANK}", "it called MPI_ABORT"),
    _soft(AFTER, rf"Process name: \[\[?[\w.@,-]+\]?,{_RANK}\]", "it was the first to exit with an error"),
    _soft(AFTER, r"^Primary job\s+terminated normally, but 1 process returned", "a process returned an error"),
    _soft(
        AFTER, r"(?:mpirun|prterun) (?:detected that one or more|has exited due to)", "a process ended with an error"
    ),
    # Slurm
    _killed(
        rf"error: Detected \d+ oom.kill event.*?(?: on node {_HOST}|$)", "out of memory: the kernel killed a process"
    ),
    _killed(rf"{_SRUN}task {_RANK}: (?P<what>Killed|Out Of Memory|Terminated)"),
    _killed(rf"{_SRUN}tasks? (?P<what>[\d,\[\]-]+: (?:Killed|Out Of Memory|Terminated))", "task {what}"),
    _hard(rf"{_SRUN}task {_RANK}: (?P<what>{_CRASH})"),
    _soft(AFTER, rf"{_SRUN}tasks? (?P<what>[\d,\[\]-]+: Exited with exit code \d+)", "task {what}"),
    _hard(rf"{_STEP}(?P<what>NODE FAILURE)", "cancelled by Slurm: {what}"),
    _killed(rf"{_STEP}(?P<what>[A-Z ]+[A-Z])", "cancelled by Slurm: {what}"),
    _soft(WARNING, r"(?:STEP|JOB) \S+ ON \S+ CANCELLED AT", "cancelled by Slurm", Outcome.KILLED),
    _hard(rf"^srun: error: Node failure on {_HOST}", "Slurm lost the node"),
    # the kernel, Kubernetes, the shell
    _killed(r"Out of memory: Killed process \d+ \((?P<what>[^)]*)\)", "out of memory: the kernel killed {what}"),
    _killed(r"Memory cgroup out of memory|\bOOMKilled\b", "out of memory: the kernel killed a process"),
    _killed(r"command terminated with exit code 137", "killed (exit code 137): out of memory, or from outside"),
    _killed(rf"{_SHELL}Killed(?:\s|$)", "killed by signal 9: out of memory, or from outside"),
    _hard(rf"{_SHELL}(?P<what>{_CRASH})\b"),
    _hard(r"^(?P<what>\S+: error while loading shared libraries: .+)"),
)

# What follows "NCCL WARN". Those of weight WARNING alone say nothing about how a run ended, none of them proves it.
WARNINGS = (
    _soft(AFTER, rf"(?P<what>.*(?:{_GONE}).*)"),
    # Where the line was wrapped it ends in the middle of its list.
    _soft(SYMPTOM, r"(?P<what>NET/\S+ ?: Got completion .*?)(?:, (?:opcode|len|vendor err))?$"),
    _hard(r"(?P<what>.*\bibv_\w+ failed.*)"),
    _soft(SYMPTOM, r"(?P<what>Cuda failure .*)"),
    _soft(SYMPTOM, r"(?P<what>.*(?:timed? ?out|timeout).*)"),
    _soft(WARNING, rf"\[Rank {_RANK}\] (?P<what>.*)"),
    _soft(
        SYMPTOM, r"(?P<what>.*(?:[Uu]nhandled|[Ff]ailed to (?:initialize|allocate|register|create)|No space left).*)"
    ),
    _soft(WARNING, r"(?P<what>.*)"),
)
ERRORS = (_hard(r"^(?:\S+\.\w+:\d+ )?(?P<what>.*)"),)  # what follows "NCCL ERROR" (RCCL)
# A line that holds none of these words is none of the above; told in one search, before any pattern is tried.
HINTS = re.compile(
    r"failure|Watchdog|Invalid number|invalid (?:option|type|op) |FATAL|[Kk]illed|KILLED|didn't join|noticed that"
    r"|Remote daemon"
    r"|eceived signal|Signal:|MPI_ABORT|Process name|Primary job|terminated|mpirun|prterun|oom|srun: error"
    r"|CANCELLED|[Oo]ut of memory|Segmentation|Bus error|Aborted|shared libraries|Test timeout|NCCL (?:WARN|ERROR)"
)
