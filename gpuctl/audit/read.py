"""Read kernel logs, line by line: a log may be larger than the memory."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from gpuctl.domain import kernel_faults
from gpuctl.domain.xid_lines import KernelLog, parse_lines


def read_lines(lines: Iterable[str]) -> tuple[KernelLog, list[str]]:
    """Events of GPUs in the lines of a log, and its lines about other faults."""
    faults: list[str] = []
    return parse_lines(_noting(lines, faults)), faults


def _noting(lines: Iterable[str], faults: list[str]) -> Iterator[str]:
    """The same lines; those about other faults are noted in passing."""
    for line in lines:
        if kernel_faults.ANY.search(line):
            faults.append(line)
        yield line
