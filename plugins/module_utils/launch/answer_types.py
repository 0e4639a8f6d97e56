"""Types of the answers of this folder's programs; the controller holds every answer against them.

A node imports none of this.
"""

from __future__ import annotations

from typing import Literal, TypedDict, Union

from ..gpuhost.bounds import Count, ExitStatus, Signal


class Remaining(TypedDict):
    """A process that could not be ended; see `process_tree.describe`."""

    pid: Count
    name: str
    state: str
    rank: Count | None


class Observed(Remaining):
    """See `process_tree.observe`."""

    still: bool


class Look(TypedDict):
    """Answer of process_tree.py."""

    processes: list[Observed]


class End(TypedDict):
    """Answer of process_tree.py to `end`."""

    left: list[Remaining]


class Unreadable(TypedDict):
    """A process whose environment cannot be read."""

    pid: Count
    name: str


class GpuProcess(Unreadable):
    """A process that holds a GPU or has a rank."""

    rank: Count | None


class GpuProcesses(TypedDict):
    """Answer of gpu_processes.py."""

    processes: list[GpuProcess]
    hidden: list[Unreadable]


class Exited(TypedDict):
    """The program ended by itself."""

    code: ExitStatus


class Signalled(TypedDict):
    """A signal ended the program."""

    signal: Signal


class Missing(TypedDict):
    """The first folder or program that does not exist."""

    missing: str


Start = Union[Exited, Signalled, Missing]


class _Run(TypedDict):
    do: Literal["run"]


class TestRun(_Run, total=False):
    """Result of the module nccl_test with `do=run`; in check mode nothing was run."""

    text: str
    code: ExitStatus
    signal: Signal
    late: Literal[True]
    excess: Literal[True]
    missing: str


class TestLook(Look):
    """Result of the module nccl_test with `do=look`."""

    do: Literal["look"]


class TestEnd(End):
    """Result of the module nccl_test with `do=end`."""

    do: Literal["end"]


Test = Union[TestRun, TestLook, TestEnd]
