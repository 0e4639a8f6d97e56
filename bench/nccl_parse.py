"""python -m bench.nccl_parse: how fast a large debug log of nccl-tests is read, and in how much memory.

The log is made by repeating what ranks print (tests/data/nccl), as 1,024 ranks on 128 hosts, with the rows of
one run among the lines, each broken in two by one of them. Beside our parser, in the same run: a loop in Python that
only reads the lines, and one that tries three expressions on every line, as scripts do. Seconds are of the processor,
so that what else this machine does counts for no side.
"""

from __future__ import annotations

import argparse
import re
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from gpuctl.nccl.model import Outcome
from gpuctl.nccl.parsing import parse

DATA = Path(__file__).parents[1] / "tests" / "data" / "nccl"
LOG, TABLE = "h100_2n8g_sendrecv_roce_info.log", "h100_1n8g_allreduce.log"
SPOKEN = re.compile(r"^fir-a05:88655:(\d+) \[(\d)\] (NCCL INFO .*)$", re.MULTILINE)
HOSTS, GPUS = 128, 8
MIB = 1 << 20
NAIVE = (
    re.compile(
        r"^\s*(\d+)\s+(\d+)\s+(\w+)\s+(\w+)\s+(-?\d+)\s+([\d.]+)\s+([\d.]+)\s+([\d.]+)\s+(\S+)\s+([\d.]+)\s+([\d.]+)"
    ),
    re.compile(r"# Avg bus bandwidth\s*:\s*([\d.]+)"),
    re.compile(r"# Out of bounds values\s*:\s*(\d+)"),
)


def write(path: Path, size: int) -> int:
    """A log of about `size` bytes; returns how many rows of the table it holds."""
    messages = [match.groups() for match in SPOKEN.finditer((DATA / LOG).read_text())]
    table = (DATA / TABLE).read_text().splitlines()
    rows = [i for i, line in enumerate(table) if " float " in line]
    with path.open("w") as log:
        log.write("\n".join(table[: rows[0]]) + "\n")
        for at, row in enumerate(rows, 1):
            line, cut = table[row], 7 * at % len(table[row])
            speech = _speech(messages, size * at // len(rows) - log.tell())
            log.write(line[:cut] + next(speech) + "\n" + line[cut:] + "\n")
            log.writelines(one + "\n" for one in speech)
        log.write("\n".join(table[rows[-1] + 1 :]) + "\n")
    return len(rows)


def _speech(messages: list[tuple[str, ...]], size: int) -> Iterator[str]:
    """Lines of all ranks in turn, up to this many bytes."""
    at = 0
    while size > 0 or at == 0:
        host, gpu = at // GPUS % HOSTS, at % GPUS
        thread, _, message = messages[(at // (HOSTS * GPUS) + at) % len(messages)]
        line = f"node-{host}:{50_000 + gpu}:{60_000 + int(thread) % 6} [{gpu}] {message}"
        yield line
        size, at = size - len(line) - 1, at + 1


def ours(path: Path) -> int:
    """Read it with our parser; returns how many rows it found."""
    with path.open(errors="replace", newline="\n") as file:
        (run,) = parse.runs(file)
    if run.outcome is not Outcome.COMPLETE:
        raise SystemExit(f"the log was read as {run.outcome}: {run.cause}")
    return len(run.rows)


def lines(path: Path) -> int:
    """Only read its lines."""
    with path.open(errors="replace", newline="\n") as file:
        for _ in file:
            pass
    return 0


def naive(path: Path) -> int:
    """Try every expression on every line, as scripts do; returns how many rows that finds."""
    rows = 0
    with path.open(errors="replace", newline="\n") as file:
        for line in file:
            rows += bool(NAIVE[0].match(line))
            NAIVE[1].search(line)
            NAIVE[2].search(line)
    return rows


SIDES: dict[str, Callable[[Path], int]] = {"lines": lines, "naive": naive, "ours": ours}


def main() -> int:
    """Measure every side, each in its own process, three times, and print the table."""
    parser = argparse.ArgumentParser(prog="python -m bench.nccl_parse", description=__doc__)
    parser.add_argument("--mib", type=int, nargs="*", default=[20, 200], help="sizes of the log")
    parser.add_argument("--side", nargs=2, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.side:
        return _one(*options.side)
    sys.stdout.write("| log MiB | side | CPU s | MB/s | times the lines alone | peak MiB | rows found |\n")
    sys.stdout.write("|--:|--|--:|--:|--:|--:|--:|\n")
    for mib in options.mib:
        with tempfile.TemporaryDirectory() as folder:
            _measure(Path(folder) / "nccl.log", mib)
    return 0


def _measure(path: Path, mib: int) -> None:
    rows = write(path, mib * MIB)
    size, floor = path.stat().st_size, 0.0
    for side in SIDES:
        argv = [sys.executable, "-m", "bench.nccl_parse", "--side", side, str(path)]
        outputs = [subprocess.run(argv, check=True, capture_output=True, text=True).stdout.split() for _ in range(3)]
        seconds, peak, rows_read = min(float(t[0]) for t in outputs), float(outputs[0][1]), outputs[0][2]
        floor = floor or seconds
        cells = f"{seconds:.2f} | {size / seconds / 1e6:.0f} | {seconds / floor:.1f} | {peak:.0f}"
        sys.stdout.write(f"| {mib} | {side} | {cells} | {rows_read} of {rows} |\n")
        sys.stdout.flush()


def _one(side: str, path: str) -> int:
    """One side, in this process: seconds, peak MiB, rows."""
    begun = time.process_time()
    rows = SIDES[side](Path(path))
    seconds = time.process_time() - begun
    sys.stdout.write(f"{seconds} {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024} {rows}\n")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
