"""Read kernel logs from files: plain or gzipped text, and standard input."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path

from gpuctl.core.text_files import open_text
from gpuctl.domain import kernel_faults
from gpuctl.domain.xid_lines import KernelLog, parse_lines

HINT = "name a text file, such as the output of `journalctl -k` or `dmesg`, or - for standard input"


def read(path: Path) -> tuple[KernelLog, list[str]]:
    """Events of GPUs in a file, or in standard input for "-", and its lines about other faults.

    Raises InvalidInput if it cannot be read or is no text.
    """
    faults: list[str] = []
    with open_text(path, HINT) as lines:
        return parse_lines(_noting(lines, faults)), faults


def _noting(lines: Iterable[str], faults: list[str]) -> Iterator[str]:
    """The same lines; those about other faults are noted in passing, as a log may be larger than the memory."""
    for line in lines:
        if kernel_faults.ANY.search(line):
            faults.append(line)
        yield line
