"""Lines around the table: settings, devices, versions, summary."""

from __future__ import annotations

import re
from collections.abc import Iterator

from gpuctl.nccl.model import Rank
from gpuctl.nccl.parsing.lines import COUNT, DECIMAL

# The "#" is optional everywhere: pages that show markdown eat it.
SETTINGS = re.compile(
    rf"^[#\s]*nThread \d+ nGpus \d+ minBytes ({COUNT}) maxBytes ({COUNT}) step: ({COUNT}) ?\((factor|bytes)\)"
)
REDUCED = re.compile(rf"^[#\s]*Reducing maxBytes to ({COUNT}) due to memory limitation")
STARTING = re.compile(r"^[#\s]*Collective test starting: (\S+)")
CONCLUDED = re.compile(r"^[#\s]*Collective test concluded: (\S+)")
DEVICES = re.compile(r"^[#\s]*Using devices\s*$")
OUT_OF_BOUNDS = re.compile(r"^[#\s]*Out of bounds values\s*: (\d+) (OK|FAILED)\b")
AVERAGE = re.compile(rf"^[#\s]*Avg bus bandwidth\s*: *({DECIMAL})(?: +(OK|FAILED))?\s*$")
TESTS_VERSION = re.compile(rf"^[#\s]*nccl-tests version (\S+)(?: nccl-headers=\d+ nccl-library=({COUNT}))?")
RCCL_TESTS = re.compile(r"^[#\s]*rc+l-tests: Version (\S+)")
NCCL_VERSION = re.compile(r"\b(?:R?NCCL) version (\d+(?:\.\d+)+)(?:\+(?:cuda|hip)(\d+(?:\.\d+)*)?)?")
PROGRAM = re.compile(r"\b([a-z]+(?:_[a-z]+)*)_perf(?:_mpi)?\b")
_RANK = re.compile(
    rf"^[#\s]*Rank +({COUNT}) +(?:Group +\d+ +)?Pid +({COUNT}) +(?:on +(\S+) +)?device +({COUNT}) *"
    r"(?:\[([^\]]*)\])? *(.*)$"
)
# What stands in an excerpt for lines that are not in it.
LEFT_OUT = re.compile(
    r"^[#\s]*+(?:[\[(<]\s*+)?(?:\.{3,}|\u2026|(?:\.\s+){2,}\.|snip(?:ped)?)\s*+(?:[\])>]\s*+)?$", re.IGNORECASE
)
EXACT_DIGITS = 6  # nccl-tests prints the average with %g


def rank(line: str) -> Rank | None:
    """Rank in a line of the list "Using devices"; None for any other line. A host that is not printed is ""."""
    match = _RANK.match(line)
    if match is None:
        return None
    number, pid, host, device, bus, gpu = match.groups()
    return Rank(int(number), host or "", int(pid), int(device), gpu.strip() or None, bus_id(bus))


def bus_id(text: str | None) -> str | None:
    """PCI address of a GPU ("0000:19:00"); None for the bus alone ("0x10"), which two GPUs may share."""
    return text if text and ":" in text else None


def collective(program: str) -> str:
    """all_reduce for "/opt/nccl-tests/build/all_reduce_perf_mpi"."""
    name = program.rpartition("/")[2]
    match = PROGRAM.match(name)
    return match[1] if match else name


def version(code: int) -> str:
    """2.22.3 for NCCL's 22203; before 2.9 one digit less was used: 2.8.4 is 2804, and 20804 in some reports."""
    if code < 10_000:
        return f"{code // 1000}.{code % 1000 // 100}.{code % 100}"
    return f"{code // 10_000}.{code % 10_000 // 100}.{code % 100}"


def sizes(least: int, most: int, step: int, by_factor: bool) -> int | None:
    """Number of sizes in a sweep; None if it cannot be computed."""
    if by_factor:
        return sum(1 for _ in _multiplied(least, most, step)) if least > 0 and step > 1 else None
    return (most - least) // step + 1 if step > 0 and most >= least else None


def _multiplied(size: int, most: int, step: int) -> Iterator[int]:
    while size <= most:
        yield size
        size *= step
