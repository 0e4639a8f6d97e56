"""Result of a launch: the parsed run combined with how the surrounding programs ended."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from gpuctl.domain import ranks as hang
from gpuctl.edges.ssh import Failure
from gpuctl.nccl.launch import error_messages, host_names
from gpuctl.nccl.launch.host_names import Names
from gpuctl.nccl.messages import flag, size
from gpuctl.nccl.model import Launch, LaunchResult, Outcome, Run

# Size, count, type and both halves; a row cut by a hang has only the first cells, and does not match.
_ROW = re.compile(r"^\s*(\d{1,18})\s+\d+\s+(?:u?int|float|double|half|bfloat|fp8|f8)\w*(?:\s+\S+){8,}\s*$")
_BUILD = (
    "build it on every node in the same place (make MPI=1 MPI_HOME=… in github.com/NVIDIA/nccl-tests), "
    "or name its folder with --search-path"
)
MISSING = {
    "mpirun": "Open MPI is not installed there (no mpirun on the PATH or in the usual folders): install openmpi-bin or "
    "the EFA installer's, or name its folder with --search-path",
}


@dataclass(frozen=True)
class ProgramEnd:
    """End of the programs around a test.

    `stop`: why gpuctl ended it ("limit", "broken off"), "" if it ended by itself. `answer`: the starter's final
    record (code, signal or missing), None if there was none; then `ssh` has the reason. `last`: the last lines that
    are not rows. `unknown`: why nothing can be concluded about the nodes, for example after losing the connection.
    """

    stop: str
    answer: Mapping[str, Any] | None
    ssh: Failure | None
    last: Sequence[str]
    looks: hang.Looks
    lost: tuple[str, ...]
    done_size: str
    hosts: tuple[str, ...]
    unknown: str = ""


def settle(launch: Launch, runs: Sequence[Run], end: ProgramEnd, seconds: float) -> LaunchResult:
    """Build the result; failures printed by the test take precedence over those of mpirun."""
    last = runs[-1] if runs else _EMPTY
    if end.unknown:
        # Without ranks and rows, which would make it a test that began and failed.
        return LaunchResult(launch, replace(_EMPTY, cause=f"not known: {end.unknown}"), seconds, end.lost)
    names = host_names.names(last, launch, end.hosts)
    run = _with_our_names(last, names)
    outcome, cause = _outcome_and_cause(launch, run, end, names)
    ranks = launch.sweep.gpus_per_node if len(launch.nodes) > 1 else 1
    waiting = hang.waiting(end.looks, ranks) if end.stop == "limit" else {}
    return LaunchResult(launch, replace(run, outcome=outcome, cause=cause), seconds, end.lost, waiting)


_EMPTY = Run(Outcome.EMPTY, None, None, (), None, None)


def _outcome_and_cause(launch: Launch, run: Run, end: ProgramEnd, names: Names) -> tuple[Outcome, str | None]:
    """Outcome and cause, with inventory node names throughout."""
    if end.stop == "limit":
        ranks = launch.sweep.gpus_per_node if len(launch.nodes) > 1 else 1
        story = hang.story(end.looks, ranks, launch.sweep.limit_s, end.done_size)
        known = None if run.rows or run.ranks else names.text(error_messages.cause(end.last))  # why it never began
        known = known or run.warning
        return Outcome.HUNG, f"{story} ({known})" if known else story
    if end.stop:
        return Outcome.KILLED, end.stop
    if end.answer is None:
        why = end.ssh.wrong if end.ssh else "it ended without output"
        return Outcome.FAILED, f"{launch.nodes[0]}: {why}"
    if "missing" in end.answer:
        missing = str(end.answer["missing"])
        why = f"it has no folder {missing}" if "/" in missing else f"{missing} is not installed there: {_BUILD}"
        return Outcome.FAILED, f"{launch.nodes[0]}: {MISSING.get(missing, why)}"
    if "excess" in end.answer:
        return Outcome.FAILED, f"{launch.nodes[0]}: it printed too much and was stopped: is NCCL_DEBUG=TRACE set?"
    return _by_itself(run, end.answer, end.last, names)


def _by_itself(run: Run, answer: Mapping[str, Any], last: Sequence[str], names: Names) -> tuple[Outcome, str | None]:
    """It ended by itself: combine its output with the exit status of mpirun or the test."""
    ended_well = answer.get("code") == 0
    if ended_well or run.outcome is Outcome.CORRUPT:
        return run.outcome, run.cause
    status = f"signal {answer['signal']}" if "signal" in answer else f"exit status {answer.get('code')}"
    cause = _cause(run, last, names) or f"it ended with {status}"
    outcome = run.outcome if run.outcome in (Outcome.FAILED, Outcome.KILLED) else Outcome.FAILED
    return outcome, cause


def _cause(run: Run, last: Sequence[str], names: Names) -> str | None:
    """First reason: before a test started, mpirun, ssh and the shell know why it failed."""
    theirs = names.text(error_messages.cause(last))
    if run.rows or run.ranks:
        return run.warning or run.cause or theirs
    from_test = None if run.outcome is Outcome.EMPTY else run.cause
    return theirs or from_test or run.warning or names.text(error_messages.first_error(last)) or run.cause


def _with_our_names(run: Run, names: Names) -> Run:
    ranks = tuple(replace(rank, host=names.of_number(rank.rank) or names.word(rank.host)) for rank in run.ranks)
    transports = tuple(replace(one, host=names.name_of(one.rank, one.host)) for one in run.transports)
    return replace(
        run, ranks=ranks, transports=transports, cause=names.text(run.cause), warning=names.text(run.warning)
    )


def size_of_row(line: str) -> str | None:
    """Message size of a result row, formatted ("64M"); None for any other line."""
    match = _ROW.match(line)
    return flag(int(match[1])) if match else None


def summary_line(result: LaunchResult) -> str:
    """One-line summary of how a launch ended."""
    run = result.run
    halves = (
        (half.busbw_gbs, -row.size_bytes) for row in run.rows for half in (row.out_of_place, row.in_place) if half
    )
    peak = max(halves, default=None)
    best = f", best {peak[0]:.1f} GB/s at {size(-peak[1])}" if peak is not None else ""
    why = f": {run.cause}" if run.cause else ""
    return f"{run.outcome} after {result.seconds:.1f} s{best}{why}"
