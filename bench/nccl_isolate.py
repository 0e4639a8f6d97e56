"""python -m bench.nccl_isolate: faults that isolation finds in a simulated fleet of 1,024 nodes, and its runs."""

from __future__ import annotations

import argparse
import math
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, replace
from random import Random
from statistics import median

from gpuctl.nccl.isolate.attribution import attribute
from gpuctl.nccl.isolate.flow import isolate
from gpuctl.nccl.isolate.model import Cause, Conclusion, Fleet, Kind, Policy
from gpuctl.nccl.isolate.observations import observe
from gpuctl.nccl.model import Launch, LaunchResult
from gpuctl.nccl.runner import ProgressListener
from tests.rig.nccl_fleet.faults import SLOW, Fault, hard
from tests.rig.nccl_fleet.network import network
from tests.rig.nccl_fleet.runner import SimulatedFleet
from tests.rig.nccl_fleet.scatter import scatter

NODES = 1024
CHANCES = (0.3, 0.5, 0.7, 0.9)
# Name, faults in each, whether they come and go, how many pairs every node is seen in, scenarios.
GROUPS = (
    ("no fault", 0, False, 1, 1000),
    ("one hard fault", 1, False, 1, 1000),
    ("two hard faults", 2, False, 1, 300),
    ("three hard faults", 3, False, 1, 300),
    ("one that comes and goes", 1, True, 1, 300),
    ("the same, every node in five pairs", 1, True, 5, 100),
)


@dataclass(frozen=True)
class ScenarioRequest:
    """One scenario: its seed, number of faults, whether they are intermittent, and pairs per node in the screening."""

    seed: str
    faults: int
    flaky: bool
    screens: int
    rails: bool  # whether the adapters are known, and so run one at a time


@dataclass(frozen=True)
class ScenarioResult:
    """The result of a scenario. `named`: per fault, whether it was named; `named_rail`: likewise for one adapter's.

    `false`: accused causes without a fault. `in_time`: every fault was certain after the pairs and two runs per suspect
    pair. `seconds`: processor time of all decisions.
    """

    faults: tuple[Fault, ...]
    named: tuple[bool, ...]
    named_rail: tuple[bool | None, ...]
    showed: tuple[bool, ...]
    accused: int
    false: tuple[str, ...]
    unresolved: int
    in_time: bool
    used: int
    budget: int
    rails: int
    rounds: int
    seconds: float
    odd_rack: bool  # the first fault is the uplink of a rack with an odd number of nodes


class Timed:
    """A runner that measures the time of the simulation separately."""

    def __init__(self, inner: SimulatedFleet) -> None:
        self.inner, self.seconds = inner, 0.0

    def run(
        self, launches: Sequence[Launch], listener: ProgressListener, broken_off: Callable[[], bool]
    ) -> list[LaunchResult]:
        started = time.process_time()
        results = self.inner.run(launches, listener, broken_off)
        self.seconds += time.process_time() - started
        return results


def play(request: ScenarioRequest) -> ScenarioResult:
    """Simulate the fleet, isolate, and compare with the true faults."""
    random = Random(request.seed)  # noqa: S311
    net, noise = network(random, NODES), scatter(random)
    faults = [hard(random, net.nodes, net.rack_of, net.rails) for _ in range(request.faults)]
    if request.flaky:
        faults = [replace(fault, chance=random.choice(CHANCES)) for fault in faults]
    simulated = SimulatedFleet(net, noise, random, faults)
    runner, policy = Timed(simulated), Policy(pairs_per_node=request.screens)
    fleet = Fleet(net.nodes, net.rack_of, net.rails if request.rails else ())
    started = time.process_time()  # of this process alone: others may use the machine, too
    history, end = isolate(fleet, runner, policy)
    seconds = time.process_time() - started - runner.seconds
    if end is None:
        raise RuntimeError(f"{request.seed} was broken off")
    return _compare(simulated, fleet, history, end, seconds)


def _compare(
    simulated: SimulatedFleet, fleet: Fleet, history: Sequence[LaunchResult], end: Conclusion, seconds: float
) -> ScenarioResult:
    true = [_cause(fault) for fault in simulated.faults]
    named = {fault.cause: fault for fault in end.faults}
    early = sum(len(launches) for launches in simulated.rounds[:2])
    return ScenarioResult(
        tuple(simulated.faults),
        tuple(cause in named for cause in true),
        tuple(
            _rail(fault, named[c].rail) if fleet.rails and c in named else None
            for fault, c in zip(simulated.faults, true, strict=True)
        ),
        tuple(fault.what in simulated.shown for fault in simulated.faults),
        len(end.faults),
        tuple(str(cause) for cause in named if cause not in true),
        len(end.unresolved),
        _sure_after(fleet, history[:early], true),
        end.used,
        end.budget,
        end.rails,
        len(simulated.rounds),
        seconds,
        any(
            sum(rack == name for rack in fleet.racks.values()) % 2 == 1 for f in simulated.faults[:1] for name in f.what
        ),
    )


def _sure_after(fleet: Fleet, early: Sequence[LaunchResult], true: Sequence[Cause]) -> bool:
    """True if the first two rounds identify every fault, so that only confirmations follow."""
    return set(true) <= {fault.cause for fault in attribute(observe(fleet, early), Policy()).faults}


def _cause(fault: Fault) -> Cause:
    kind = {"node": Kind.NODE, "rail": Kind.NODE, "link": Kind.LINK, "uplink": Kind.UPLINK}[fault.where]
    return Cause(kind, fault.what[:1] if fault.where != "link" else tuple(sorted(fault.what)))


def _rail(fault: Fault, named: str) -> bool | None:
    """True if the right adapter was named; None if the fault is not an adapter's and none was named."""
    if fault.where == "rail":
        return named == fault.what[1]
    return False if named else None


def wilson(hits: int, of: int) -> str:
    """A share with its 95 % interval (Wilson), in percent."""
    if not of:
        return "-"
    z, share = 1.959964, hits / of
    middle = (share + z * z / (2 * of)) / (1 + z * z / of)
    half = z * math.sqrt(share * (1 - share) / of + z * z / (4 * of * of)) / (1 + z * z / of)
    return f"{100 * share:.1f} ({100 * max(0.0, middle - half):.1f} to {100 * min(1.0, middle + half):.1f})"


def severity(fault: Fault) -> str:
    """The row of a fault in the tables."""
    if fault.kind != "slow":
        return f"{fault.kind} ({fault.where})"
    where = {"node": "node", "rail": "one adapter", "uplink": "uplink"}[fault.where]
    return f"{100 * fault.share:>2.0f} % slower, {where}"


def dead(fault: Fault) -> bool:
    """True if its runs fail, False if they are only slow."""
    return fault.kind != "slow"


def tables(results: Sequence[tuple[str, Sequence[ScenarioResult]]]) -> str:
    """All tables as Markdown."""
    by_group = dict(results)
    return "\n".join([*_overview(results), "", *_by_severity(by_group), "", *_flaky(by_group), ""])


def _overview(results: Sequence[tuple[str, Sequence[ScenarioResult]]]) -> Iterable[str]:
    yield (
        "| scenarios | | with a healthy one accused | left undecided | precision % | found % "
        "| runs, median (95 % of them, most) | rounds | decisions, CPU s |"
    )
    yield "|---|---:|---:|---:|---:|---:|---:|---:|---:|"
    for name, came in results:
        accused, false = sum(c.accused for c in came), sum(len(c.false) for c in came)
        hits = [hit for c in came for hit in c.named]
        used, rounds, seconds = ([getattr(c, key) for c in came] for key in ("used", "rounds", "seconds"))
        yield (
            f"| {name} | {len(came)} | {sum(bool(c.false) for c in came)} | {sum(bool(c.unresolved) for c in came)} "
            f"| {wilson(accused - false, accused)} "
            f"| {wilson(sum(hits), len(hits))} | {_spread(used)} | {_spread(rounds)} | {_spread(seconds, 2)} |"
        )


def _spread(values: Sequence[float], digits: int = 0) -> str:
    ordered = sorted(values)
    high = ordered[min(len(ordered) - 1, int(0.95 * len(ordered)))]
    return f"{median(ordered):.{digits}f} ({high:.{digits}f}, {ordered[-1]:.{digits}f})"


def _by_severity(results: dict[str, Sequence[ScenarioResult]]) -> Iterable[str]:
    yield (
        "| one hard fault | scenarios | found % | named within N/2 pairs and two runs a suspect pair % "
        "| right adapter % | all runs in the budget % | runs, median (95 % of them, most) |"
    )
    yield "|---|---:|---:|---:|---:|---:|---:|"
    came = [c for c in results.get("one hard fault", ()) if c.faults]
    for kind in sorted({severity(c.faults[0]) for c in came}):
        yield _row(kind, [c for c in came if severity(c.faults[0]) == kind])
    for share in SLOW:
        yield _row(f"all {100 * share:.0f} % slower", [c for c in came if c.faults[0].share == share])
    yield _row("all dead", [c for c in came if dead(c.faults[0])])
    severe = [c for c in came if dead(c.faults[0]) or c.faults[0].share >= 0.2]
    yield _row("all of 20 % and more, and dead", severe)
    for where in ("node", "rail", "link"):
        yield _row(f"… of these: {where}", [c for c in severe if c.faults[0].where == where])
    uplinks = [c for c in severe if c.faults[0].where == "uplink"]
    yield _row("… of these: uplink, rack of even size", [c for c in uplinks if not c.odd_rack])
    yield _row("… of these: uplink, rack of odd size", [c for c in uplinks if c.odd_rack])


def _row(kind: str, came: Sequence[ScenarioResult]) -> str:
    if not came:
        return f"| {kind} | 0 | - | - | - | - | - |"
    rails = [c.named_rail[0] for c in came if c.named_rail[0] is not None]
    cells = (
        kind,
        str(len(came)),
        wilson(sum(c.named[0] for c in came), len(came)),
        wilson(sum(c.in_time for c in came), len(came)),
        wilson(sum(bool(r) for r in rails), len(rails)),
        wilson(sum(c.used <= c.budget for c in came), len(came)),
        _spread([c.used for c in came]),
    )
    return f"| {' | '.join(cells)} |"


def _flaky(results: dict[str, Sequence[ScenarioResult]]) -> Iterable[str]:
    names = [name for name, _, flaky, _, _ in GROUPS if flaky and name in results]
    if not names:
        return
    yield "| one that shows in … % of its runs | " + " | ".join(f"{n}: found %" for n in names) + " |"
    yield "|---|" + "---:|" * len(names)
    for chance in CHANCES:
        cells = [[c.named[0] for c in results[name] if c.faults[0].chance == chance] for name in names]
        yield f"| {100 * chance:.0f} | " + " | ".join(wilson(sum(cell), len(cell)) for cell in cells) + " |"


def main() -> int:
    """Play all scenarios and print the tables."""
    parser = argparse.ArgumentParser(prog="python -m bench.nccl_isolate", description=__doc__)
    parser.add_argument("--share", type=float, default=1.0, help="of the scenarios of each group")
    parser.add_argument("--seeds", default="final", help="seed of the random scenarios")
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--groups", type=int, default=len(GROUPS), help="number of groups to run")
    parser.add_argument("--show", action="store_true", help="print scenarios with a wrong result")
    options = parser.parse_args()
    results: list[tuple[str, Sequence[ScenarioResult]]] = []
    with ProcessPoolExecutor(options.processes) as pool:
        for name, faults, flaky, screens, count in GROUPS[: options.groups]:
            numbers = range(max(1, round(count * options.share)))
            requests = [
                ScenarioRequest(f"{options.seeds} {faults} {flaky} {n}", faults, flaky, screens, n % 4 == 0)
                for n in numbers
            ]
            came = list(pool.map(play, requests, chunksize=5))
            results.append((name, came))
            sys.stderr.write(f"\n{name} is done; so far:\n{tables(results)}\n")
            if options.show:
                sys.stderr.writelines(_odd(name, n, c) for n, c in enumerate(came))
    sys.stdout.write(tables(results))
    return 0


def _odd(name: str, number: int, came: ScenarioResult) -> str:
    wrong = came.false or came.unresolved or not all(came.named)
    return f"{name} {number}: {came}\n" if wrong else ""


if __name__ == "__main__":
    sys.exit(main())
