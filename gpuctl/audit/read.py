"""Read kernel logs from files: plain or gzipped text, and standard input."""

from __future__ import annotations

from pathlib import Path

from gpuctl.core.text_files import open_text
from gpuctl.domain.xid_lines import KernelLog, parse_lines

HINT = "name a text file, such as the output of `journalctl -k` or `dmesg`, or - for standard input"


def read(path: Path) -> KernelLog:
    """Events of a file, or of standard input for "-"; raises InvalidInput if it cannot be read or is no text."""
    with open_text(path, HINT) as lines:
        return parse_lines(lines)
