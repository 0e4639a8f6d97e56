"""python -m bench.nccl_scorecard: whether isolation finds what is bad in hard cases, and accuses nothing healthy."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field
from itertools import chain, combinations, product
from random import Random
from statistics import median
from typing import Any

from gpuctl.domain.findings import Verdict
from gpuctl.nccl.isolate import pair_outliers
from gpuctl.nccl.isolate.flow import isolate
from gpuctl.nccl.isolate.model import Conclusion, Fleet, Policy
from gpuctl.nccl.model import Launch
from tests.rig.nccl_fleet.faults import Fault
from tests.rig.nccl_fleet.network import Network
from tests.rig.nccl_fleet.runner import SimulatedFleet
from tests.rig.nccl_fleet.scatter import Scatter

OPEN = {Verdict.FAIL, Verdict.UNKNOWN}
ROOT_HALF = 0.5**0.5  # scale of a Laplace distribution of standard deviation one


@dataclass(frozen=True)
class Scenario:
    """One simulated fleet.

    `bad`: the nodes with a fault; `racks`: nodes in each rack, 0 for one rack; `known`: whether isolation is told the
    racks. `noise`: standard deviation of a healthy run, relative. `shuffled`: the order of nodes does not follow racks.
    """

    nodes: int
    faults: tuple[Fault, ...] = ()
    racks: int = 0
    known: bool = False
    across: float = 1.0
    noise: float = 0.005
    drift: tuple[float, ...] = (1.0,)
    shape: str = "laplace"
    shuffled: bool = False
    bad: frozenset[str] = frozenset()


@dataclass(frozen=True)
class Result:
    """What isolation made of one fleet."""

    named: bool
    exit_1: bool
    accused: tuple[str, ...]  # healthy
    runs: int


Judge = Callable[[Scenario, Conclusion], bool]


@dataclass(frozen=True)
class Case:
    """One row of the table: a scenario made by a seed, and when it counts as found."""

    name: str
    make: Callable[[Random], Scenario]
    counts_as: str = "all named"
    group: str = ""
    options: dict[str, bool] = field(default_factory=dict)


def all_named(scenario: Scenario, end: Conclusion) -> bool:
    """Every bad node is named."""
    return scenario.bad <= named(end)


def raised(scenario: Scenario, end: Conclusion) -> bool:
    """Something is not OK: the command exits with 1."""
    return any(finding.verdict in OPEN for finding in end.findings)


def quiet(scenario: Scenario, end: Conclusion) -> bool:
    """Nothing is accused."""
    return not end.faults


def pair_failed(scenario: Scenario, end: Conclusion) -> bool:
    """A FAIL names every bad node, by itself or in a pair."""
    return _mentioned(scenario, end, {Verdict.FAIL})


def pair_warned(scenario: Scenario, end: Conclusion) -> bool:
    """A finding that is not OK names every bad node, by itself or in a pair."""
    return _mentioned(scenario, end, {Verdict.WARN, *OPEN})


def _mentioned(scenario: Scenario, end: Conclusion, verdicts: set[Verdict]) -> bool:
    subjects = {name for f in end.findings if f.verdict in verdicts for name in f.subject.split(" and ")}
    return scenario.bad <= subjects


def named(end: Conclusion) -> set[str]:
    """The names of everything accused."""
    return {str(fault.cause) for fault in end.faults}


FOUND: dict[str, Judge] = {
    "all named": all_named,
    "exit 1": raised,
    "none accused": quiet,
    "FAIL names both": pair_failed,
    "both named": pair_warned,
}


def slow(count: int, bad: int, share: float, **options: Any) -> Callable[[Random], Scenario]:
    """So many nodes slower by a share; a tuple of two shares is a range to draw from."""

    def make(random: Random) -> Scenario:
        names = [f"node-{number}" for number in random.sample(range(count), bad)]
        return Scenario(
            count,
            tuple(Fault("slow", "node", (name,), share) for name in names),
            bad=frozenset(names),
            **options,
        )

    return make


def faulty(count: int, kind: str, bad: int = 1, **options: Any) -> Callable[[Random], Scenario]:
    """So many nodes with a fault of a kind; `share`, `chance` and `times` are the fault's."""
    of_fault = {key: options.pop(key) for key in ("share", "chance", "times") if key in options}

    def make(random: Random) -> Scenario:
        names = [f"node-{number}" for number in random.sample(range(count), bad)]
        faults = tuple(Fault(kind, "node", (name,), **of_fault) for name in names)
        return Scenario(count, faults, bad=frozenset(names), **options)

    return make


def slow_at_times(count: int, share: float, **options: Any) -> Callable[[Random], Scenario]:
    """One node that is slow in half of its runs."""
    return faulty(count, "slow", share=share, chance=0.5, **options)


def corrupt_beside(count: int, kind: str, chance: float, **options: Any) -> Callable[[Random], Scenario]:
    """A node that prints wrong values in this share of its runs, and another with a fault of another kind."""

    def make(random: Random) -> Scenario:
        wrong, other = (f"node-{number}" for number in random.sample(range(count), 2))
        faults = Fault("corrupt", "node", (wrong,), chance=chance), Fault(kind, "node", (other,))
        return Scenario(count, faults, bad=frozenset((wrong, other)), **options)

    return make


def steady_beside_flapping(count: int, **options: Any) -> Callable[[Random], Scenario]:
    """A node that is always slower by 6 %, and another that is slower by 40 % in half of its runs."""

    def make(random: Random) -> Scenario:
        steady, flapping = (f"node-{number}" for number in random.sample(range(count), 2))
        faults = Fault("slow", "node", (steady,), 0.06), Fault("slow", "node", (flapping,), 0.4, chance=0.5)
        return Scenario(count, faults, bad=frozenset((steady, flapping)), **options)

    return make


def gust(count: int, share: float, **options: Any) -> Callable[[Random], Scenario]:
    """A healthy fleet of which one run of the first round is slow once, so that two nodes are tested again."""

    def make(random: Random) -> Scenario:
        node = f"node-{random.randrange(count)}"
        fault = Fault("slow", "node", (node,), share, times=1)
        return Scenario(count, (fault,), **options)

    return make


def healthy(sizes: Sequence[int], **options: Any) -> Callable[[Random], Scenario]:
    """A fleet without a fault."""

    def make(random: Random) -> Scenario:
        return Scenario(random.choice(sizes), **options)

    return make


SMALL = ((6, 2), (6, 3), (8, 3), (8, 4), (10, 3), (12, 4), (16, 3), (16, 5))
SHARES = (0.08, 0.10)


def cases() -> Iterable[Case]:
    """Every row."""
    return chain(
        once(), small(), half(), hang(), drift(), rough(), many(), mixed(), flapping(), no_fault(), shuffled(), single()
    )


def where(size: int, known: bool) -> tuple[str, dict[str, Any]]:
    """A fleet in words, and its options: racks of eight where they are known."""
    text = f"{size} nodes, racks {'known' if known else 'not known'}"
    return text, {"racks": 8 if known else 0, "known": known}


def once() -> Iterable[Case]:
    """A fault that shows in one run alone."""
    for size, known in ((12, False), (16, True), (64, True), (64, False)):
        text, rack = where(size, known)
        for kind, counts_as in (("corrupt", "FAIL names both"), ("hang", "both named"), ("crash", "both named")):
            yield Case(f"{kind} once: {text}", faulty(size, kind, times=1, **rack), counts_as, "once")


def small() -> Iterable[Case]:
    """Several nodes a little slow among a few, isolated and by the rule over every pair."""
    for count, bad in SMALL:
        for share in SHARES:
            text = f"{bad} of {count} slow by {100 * share:.0f} %"
            yield Case(text, slow(count, bad, share), group="small")
            every = f"{text}, every pair measured"
            yield Case(every, slow(count, bad, share), group="pairs", options={"pairs": True})


def half() -> Iterable[Case]:
    """About half of 64 nodes a little slow."""
    for bad in (24, 32, 40):
        for share in (0.06, 0.08, 0.10):
            counts_as = "all named" if bad <= 24 else "exit 1"
            text = f"{bad} of 64 slow by {100 * share:.0f} %"
            yield Case(text, slow(64, bad, share), counts_as, "half")
            yield Case(f"{text}, racks known", slow(64, bad, share, racks=8, known=True), counts_as, "half")


def hang() -> Iterable[Case]:
    """Many of a few nodes fail."""
    for bad in (5, 7, 8, 11):
        yield Case(f"{bad} of 12 hang", faulty(12, "hang", bad), "exit 1", "hang")
        yield Case(f"{bad} of 12 crash, racks known", faulty(12, "crash", bad, racks=4, known=True), "exit 1", "hang")


def drift() -> Iterable[Case]:
    """The whole fabric becomes slower or faster while the isolation goes on."""
    changes = (0.94, "6 % slower"), (0.92, "8 % slower"), (1.07, "7 % faster")
    for (size, known), (factor, change), first in product(((16, False), (64, True), (64, False)), changes, (2, 3)):
        text, rack = where(size, known)
        later: dict[str, Any] = {"drift": (*[1.0] * (first - 1), factor), **rack}
        name = f"fabric {change} from round {first}"
        yield Case(f"{name}, one slow run: {text}", gust(size, 0.2, **later), "none accused", "drift")
        yield Case(f"{name}, one node 10 % slow: {text}", slow(size, 1, 0.1, **later), group="drift")


def rough() -> Iterable[Case]:
    """The fabric changes, and healthy runs scatter by much, beside one slow run or one slow node."""
    changes = ((1.0, 0.93), "7 % slower"), ((1.0, 1.07), "7 % faster"), ((1.0, 0.95, 0.9), "10 % slower in two steps")
    for (steps, change), shape, known in product(changes, ("laplace", "student"), (False, True)):
        text, rack = where(24, known)
        options: dict[str, Any] = {"noise": 0.02, "shape": shape, "drift": steps, **rack}
        name = f"noise 2 % ({shape}), fabric {change}"
        yield Case(f"{name}, one slow run: {text}", gust(24, 0.2, **options), "none accused", "rough")
        yield Case(f"{name}, one node 20 % slow: {text}", slow(24, 1, 0.2, **options), group="rough")


def many() -> Iterable[Case]:
    """Many bad nodes of 64."""
    for kind in ("hang", "crash"):
        yield Case(f"13 of 64 {kind}, racks not known", faulty(64, kind, 13), group="many")
    for bad in (8, 13):
        text = f"{bad} of 64 slow by 20 %, racks"
        yield Case(f"{text} known", slow(64, bad, 0.2, racks=8, known=True), group="many")
        yield Case(f"{text} not known", slow(64, bad, 0.2), group="many")
        unknown = f"{text} not known, 10 % slower across"
        yield Case(unknown, slow(64, bad, 0.2, racks=16, across=0.9), "exit 1", group="many")


def mixed() -> Iterable[Case]:
    """Wrong values of one node beside another that hangs or crashes."""
    for kind, chance in product(("hang", "crash"), (1.0, 0.5)):
        for size, known in ((6, False), (12, False), (64, True), (64, False)):
            text, rack = where(size, known)
            name = f"corrupt in {100 * chance:.0f} % beside {kind}: {text}"
            yield Case(name, corrupt_beside(size, kind, chance, **rack), group="mixed")


def flapping() -> Iterable[Case]:
    """One node is bad in half of its runs."""
    for size, known in ((12, False), (64, True), (64, False)):
        text, rack = where(size, known)
        yield Case(f"slow by 10 % in half of its runs: {text}", slow_at_times(size, 0.1, **rack), group="flapping")
    for kind, share in (("slow", 0.3), ("hang", 0.0), ("crash", 0.0)):
        for size, known in ((12, False), (64, True), (64, False)):
            text, rack = where(size, known)
            make = faulty(size, kind, share=share, chance=0.5, **rack)
            yield Case(f"{kind} in half of its runs: {text}", make, group="flapping")
    for size, known in ((24, False), (24, True), (40, False), (40, True)):
        text, rack = where(size, known)
        make = steady_beside_flapping(size, **rack)
        yield Case(f"6 % slow beside one slow by 40 % in half of its runs: {text}", make, group="flapping")


def no_fault() -> Iterable[Case]:
    """Healthy fleets."""
    for shape, noise in product(("laplace", "student"), (0.005, 0.01, 0.03)):
        text = f"healthy, 3 to 16 nodes, noise {100 * noise:g} % ({shape})"
        yield Case(text, healthy(range(3, 17), noise=noise, shape=shape), "none accused", "healthy")
    for across in (0.95, 0.9, 0.8):
        text = f"healthy, racks not known, {100 * (1 - across):.0f} % slower across"
        yield Case(f"{text}, 8 to 16 nodes", healthy((8, 12, 16), racks=4, across=across), "none accused", "healthy")
        yield Case(f"{text}, 64 nodes", healthy((64,), racks=8, across=across), "none accused", "healthy")


def shuffled() -> Iterable[Case]:
    """Racks of unlike sizes that neither isolation nor the order of the nodes knows of."""
    for across, (size, text) in product((0.9, 0.8), ((32, "two racks of 32"), (48, "racks of 48 and 16"))):
        name = f"{text} in no order, not known, {100 * (1 - across):.0f} % slower across"
        options: dict[str, Any] = {"racks": size, "across": across, "shuffled": True}
        yield Case(f"healthy, {name}", healthy((64,), **options), "none accused", "shuffled")
        yield Case(f"13 of 64 slow by 20 %, {name}", slow(64, 13, 0.2, **options), "exit 1", "shuffled")


def single() -> Iterable[Case]:
    """One slow node."""
    yield Case("one of 16 slow by 5 %", slow(16, 1, 0.05), group="single")
    yield Case("one of 64 slow by 5 %, racks known", slow(64, 1, 0.05, racks=8, known=True), group="single")
    yield Case("one of 64 slow by 20 %, racks known", slow(64, 1, 0.2, racks=8, known=True), group="single")


def play(request: tuple[Case, str]) -> Result:
    """Make the fleet, isolate, compare with what is truly wrong."""
    case, seed = request
    random = Random(f"{seed} {case.name}")  # noqa: S311
    scenario = case.make(random)
    nodes = tuple(f"node-{number}" for number in range(scenario.nodes))
    rack_of = {node: f"rack-{number // (scenario.racks or scenario.nodes)}" for number, node in enumerate(nodes)}
    uplinks = dict.fromkeys(rack_of.values(), 370.0 * 4)
    speeds = {node: 370.0 * random.gauss(1.0, 0.001) for node in nodes}
    network = Network(nodes, rack_of, (), speeds, scenario.across, uplinks)
    spread = scenario.noise * (ROOT_HALF if scenario.shape == "laplace" else 0.65)
    scatter = Scatter(scenario.shape, spread, 0.0)
    simulated = SimulatedFleet(network, scatter, random, list(scenario.faults), drift=scenario.drift)
    if case.options.get("pairs"):
        return _all_pairs(scenario, simulated)
    order = tuple(random.sample(nodes, len(nodes))) if scenario.shuffled else nodes
    history, end = isolate(Fleet(order, rack_of if scenario.known else {}, ()), simulated, Policy())
    if end is None:
        raise RuntimeError(f"{case.name} {seed} was interrupted")
    accused = tuple(sorted(named(end) - scenario.bad))
    return Result(FOUND[case.counts_as](scenario, end), raised(scenario, end), accused, len(history))


def _all_pairs(scenario: Scenario, simulated: SimulatedFleet) -> Result:
    """The rule `pairs` over one run of every pair."""
    launches = [Launch(pair, Policy().sweep) for pair in combinations(simulated.network.nodes, 2)]
    results = [end for launch in launches for end in simulated.run([launch], lambda *_: None, lambda: False)]
    findings = pair_outliers.similar(results)
    failed = {finding.subject for finding in findings if finding.verdict is Verdict.FAIL}
    exit_1 = any(finding.verdict in OPEN for finding in findings)
    return Result(scenario.bad <= failed, exit_1, tuple(sorted(failed - scenario.bad)), len(results))


def row(case: Case, results: Sequence[Result]) -> str:
    """One line of the table."""
    runs = [result.runs for result in results]
    return (
        f"| {case.name} | {case.counts_as} | {sum(r.named for r in results)} of {len(results)} "
        f"| {sum(r.exit_1 for r in results)} | {sum(bool(r.accused) for r in results)} "
        f"| {median(runs):.0f} ({max(runs)}) |"
    )


def main() -> int:
    """Play the cases and print the table."""
    parser = argparse.ArgumentParser(prog="python -m bench.nccl_scorecard", description=__doc__)
    parser.add_argument("--each", type=int, default=20, help="fleets of each case")
    parser.add_argument("--only", default="", help="cases whose name or group contains this")
    parser.add_argument("--seeds", default="final", help="another word gives other fleets")
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--show", action="store_true", help="name the fleets that went wrong")
    options = parser.parse_args()
    heads = "case", "counts as found", "found", "exit 1", "a healthy one accused", "runs (most)"
    sys.stdout.write(f"| {' | '.join(heads)} |\n|---|---|--:|--:|--:|--:|\n")
    chosen = [(n, case) for n, case in enumerate(cases()) if options.only in case.name or options.only == case.group]
    with ProcessPoolExecutor(options.processes) as pool:
        for number, case in chosen:
            requests = [(number, f"{options.seeds} {seed}") for seed in range(options.each)]
            results = list(pool.map(_play, requests, chunksize=2))
            sys.stdout.write(row(case, results) + "\n")
            for seed, result in enumerate(results) if options.show else ():
                if result.accused or not result.named:
                    sys.stdout.write(f"  {options.seeds} {seed}: {result}\n")
            sys.stdout.flush()
    return 0


def _play(request: tuple[int, str]) -> Result:
    number, seed = request
    return play((list(cases())[number], seed))


if __name__ == "__main__":
    sys.exit(main())
