"""python -m bench.nccl_flapping: whether isolation names nodes that are bad in some of their runs."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterable
from concurrent.futures import ProcessPoolExecutor
from itertools import product

from bench.nccl_scorecard import Case, Result, faulty, healthy, play, row

SIZES = (8, 12, 16, 32, 64)
KINDS = {"hang": 0.0, "crash": 0.0, "slow": 0.2, "corrupt": 0.0}  # kind -> share of the speed that it costs
RATES = (0.3, 0.5, 0.7)


def cases() -> Iterable[Case]:
    """One and two nodes of each kind, and healthy fleets of the same sizes."""
    for size, known, bad, kind, rate in product(SIZES, (True, False), (1, 2), KINDS, RATES):
        rack = {"racks": 8 if size > 16 else 4, "known": True} if known else {}
        make = faulty(size, kind, bad, share=KINDS[kind], chance=rate, **rack)
        racks = "known" if known else "not known"
        yield Case(f"{bad} of {size}, {kind} in {100 * rate:.0f} % of runs, racks {racks}", make, group=kind)
    for size, noise in product(SIZES, (0.005, 0.01, 0.03)):
        text = f"healthy, {size} nodes, noise {100 * noise:g} %"
        yield Case(text, healthy((size,), noise=noise), "none accused", "healthy")


def main() -> int:
    """Play the cases and print the table."""
    parser = argparse.ArgumentParser(prog="python -m bench.nccl_flapping", description=__doc__)
    parser.add_argument("--each", type=int, default=20, help="fleets of each case")
    parser.add_argument("--only", default="", help="cases whose name contains this")
    parser.add_argument("--seeds", default="final", help="another word gives other fleets")
    parser.add_argument("--processes", type=int, default=2)
    options = parser.parse_args()
    heads = "case", "counts as found", "found", "exit 1", "a healthy one accused", "runs (most)"
    sys.stdout.write(f"| {' | '.join(heads)} |\n|---|---|--:|--:|--:|--:|\n")
    with ProcessPoolExecutor(options.processes) as pool:
        for case in cases():
            if options.only in case.name:
                seeds = [f"{options.seeds} {seed}" for seed in range(options.each)]
                results = list(pool.map(_play, [(case.name, seed) for seed in seeds], chunksize=4))
                sys.stdout.write(row(case, results) + "\n")
                sys.stdout.flush()
    return 0


def _play(request: tuple[str, str]) -> Result:
    name, seed = request
    return play((next(case for case in cases() if case.name == name), seed))


if __name__ == "__main__":
    sys.exit(main())
