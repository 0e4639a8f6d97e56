"""python -m bench.nccl_few: results of isolation in small fleets with several bad nodes."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from random import Random
from statistics import median

from gpuctl.nccl.isolate.flow import isolate
from gpuctl.nccl.isolate.model import Fleet, Policy
from tests.rig.nccl_fleet.faults import Fault
from tests.rig.nccl_fleet.network import Network
from tests.rig.nccl_fleet.runner import SimulatedFleet
from tests.rig.nccl_fleet.scatter import Scatter

SIZES = ((3, 1), (4, 1), (4, 2), (6, 2), (6, 3), (8, 3), (8, 4), (12, 3), (12, 4), (16, 4), (16, 5), (5, 3), (8, 5))
SHARES = (0.2, 0.55)
NOISE = Scatter("laplace", 0.007, 0.0)  # 1 % standard deviation
OPEN = {"FAIL", "UNKNOWN"}


@dataclass(frozen=True)
class FleetResult:
    """The result for one fleet: all bad nodes named, number of healthy ones accused, exit code 0, runs used."""

    all_named: bool
    accused: int
    passed: bool
    runs: int


def play(request: tuple[int, int, float, str]) -> FleetResult:
    """Isolate a simulated fleet (nodes, slow ones, share, seed) without racks and baseline."""
    count, bad, share, seed = request
    random = Random(f"{seed} {count} {bad} {share}")  # noqa: S311
    nodes = tuple(f"node-{number}" for number in range(count))
    network = Network(nodes, dict.fromkeys(nodes, "rack"), (), dict.fromkeys(nodes, 370.0), 1.0, {"rack": 4000.0})
    truly = set(random.sample(nodes, bad))
    simulated = SimulatedFleet(network, NOISE, random, [Fault("slow", "node", (node,), share) for node in truly])
    history, end = isolate(Fleet(nodes, {}, ()), simulated, Policy())
    if end is None:
        raise RuntimeError(f"{request} was broken off")
    named = {str(fault.cause) for fault in end.faults}
    passed = not any(finding.verdict in OPEN for finding in end.findings)
    return FleetResult(named == truly, len(named - truly), passed, len(history))


def row(count: int, bad: int, share: float, came: Sequence[FleetResult]) -> str:
    """One line of the table."""
    runs = [one.runs for one in came]
    return (
        f"| {count} | {bad} | {100 * share:.0f} | {len(came)} | {sum(one.all_named for one in came)} "
        f"| {sum(one.passed for one in came)} | {sum(bool(one.accused) for one in came)} "
        f"| {median(runs):.0f} ({max(runs)}) |"
    )


def main() -> int:
    """Play all of them and print the table."""
    parser = argparse.ArgumentParser(prog="python -m bench.nccl_few", description=__doc__)
    parser.add_argument("--seeds", default="final", help="seed of the random fleets")
    parser.add_argument("--each", type=int, default=50, help="fleets per row")
    parser.add_argument("--processes", type=int, default=2)
    options = parser.parse_args()
    heads = "nodes", "bad", "slower %", "fleets", "all bad ones named", "exit 0", "a healthy one accused", "runs (most)"
    sys.stdout.write(f"| {' | '.join(heads)} |\n{'|--:' * len(heads)}|\n")
    with ProcessPoolExecutor(options.processes) as pool:
        for count, bad in SIZES:
            for share in SHARES:
                requests = [(count, bad, share, f"{options.seeds} {number}") for number in range(options.each)]
                sys.stdout.write(row(count, bad, share, list(pool.map(play, requests, chunksize=5))) + "\n")
                sys.stdout.flush()
    return 0


if __name__ == "__main__":
    sys.exit(main())
