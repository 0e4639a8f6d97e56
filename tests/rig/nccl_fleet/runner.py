"""A runner that runs launches on a fleet in memory."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import log10
from random import Random

from gpuctl.core.errors import InvalidInput
from gpuctl.nccl.model import Launch, LaunchResult, Outcome, Rank, Row, Run, Sweep, Timing, Transport
from gpuctl.nccl.runner import ProgressListener
from tests.rig.nccl_fleet.faults import Fault
from tests.rig.nccl_fleet.network import Network
from tests.rig.nccl_fleet.scatter import Scatter

MADE_WORSE = {"hang": Outcome.HUNG, "crash": Outcome.FAILED, "vanish": Outcome.HUNG, "corrupt": Outcome.CORRUPT}


@dataclass
class SimulatedFleet:
    """A Runner that records its rounds. `rows`: the number of sizes that a run prints.

    `speaks`: node -> the network it prints, "" for none; nodes without an entry print InfiniBand. `nics`: the adapters
    that every node prints. `closed`: node on which launches never start -> why. `drift`: a factor for the speed of the
    whole fabric, by round; the last value stays.
    """

    network: Network
    scatter: Scatter
    random: Random
    faults: Sequence[Fault] = ()
    rows: int = 1
    speaks: Mapping[str, str] = field(default_factory=dict)
    nics: tuple[str, ...] = ()
    closed: Mapping[str, str] = field(default_factory=dict)
    drift: Sequence[float] = (1.0,)
    gone: set[str] = field(default_factory=set)
    shown: set[tuple[str, ...]] = field(default_factory=set)  # names of the faults that affected a run
    rounds: list[list[Launch]] = field(default_factory=list)
    times_shown: Counter[Fault] = field(default_factory=Counter)

    def run(
        self, launches: Sequence[Launch], listener: ProgressListener, broken_off: Callable[[], bool]
    ) -> list[LaunchResult]:
        """Run all launches at the same time; one that hangs is ended by an interruption."""
        busy = Counter(node for launch in launches for node in launch.nodes)
        if clash := [node for node, count in busy.items() if count > 1]:
            raise InvalidInput(f"run a test on {clash[0]}", "it is in two launches of a round")
        if not launches:
            return []
        if not self.rounds:
            self.faults = [fault if fault.what else self._somewhere(fault, launches) for fault in self.faults]
        self.rounds.append(list(launches))
        leaving = Counter(rack for launch in launches for rack in self._racks_left(launch))
        for launch in launches:
            listener(launch, "started")
        results = [self._run(launch, leaving) for launch in launches]
        return [
            _interrupted(result) if result.run.outcome is Outcome.HUNG and broken_off() else result
            for result in results
        ]

    def _somewhere(self, fault: Fault, launches: Sequence[Launch]) -> Fault:
        """A link without names is one that the first round uses."""
        return replace(fault, what=self.random.choice(launches).nodes)

    def _racks_left(self, launch: Launch) -> set[str]:
        racks = self.network.racks(launch.nodes)
        return racks if len(racks) > 1 else set()

    def _run(self, launch: Launch, leaving: Mapping[str, int]) -> LaunchResult:
        racks = self.network.racks(launch.nodes)
        if missing := [node for node in launch.nodes if node in self.gone]:
            return _ended(launch, Outcome.FAILED, f"cannot reach {missing[0]}", lost=tuple(missing))
        if closed := [node for node in launch.nodes if node in self.closed]:
            return _ended(launch, Outcome.FAILED, self.closed[closed[0]])
        met = [f for f in self.faults if f.meets(launch.nodes, launch.rail, racks) and self._shows(f)]
        self.shown |= {fault.what for fault in met}
        self.times_shown.update(met)
        for fault in met:
            if fault.kind != "slow":
                return self._spoken(self._spoilt(launch, fault, leaving))
        speed = self._speed(launch, leaving) * self.scatter.factor(self.random)
        speed *= self.drift[min(len(self.rounds), len(self.drift)) - 1]
        speed *= 1 - max((fault.share for fault in met), default=0.0)  # the narrowest place alone counts
        return self._spoken(LaunchResult(launch, _complete(launch, speed, self.rows), 20.0))

    def _spoken(self, ended: LaunchResult) -> LaunchResult:
        """Add the ranks, one of each node, and the network that they print."""
        nodes = ended.launch.nodes
        ranks = tuple(Rank(number, node, None, None, None) for number, node in enumerate(nodes))
        networks = [(node, self.speaks.get(node, "IB")) for node in nodes]
        told = tuple(Transport(None, node, word, nics=self.nics) for node, word in networks if word)
        return replace(ended, run=replace(ended.run, ranks=ranks, transports=told))

    def _shows(self, fault: Fault) -> bool:
        if fault.times is not None and self.times_shown[fault] >= fault.times:
            return False
        return fault.chance >= 1 or self.random.random() < fault.chance

    def _speed(self, launch: Launch, leaving: Mapping[str, int]) -> float:
        """The speed of the slowest node, limited across racks by the network between these and by their uplinks."""
        speed = min(self.network.own[node] for node in launch.nodes)
        racks = self._racks_left(launch)
        if racks:
            uplinks = min(self.network.uplinks[rack] / leaving[rack] for rack in racks)
            speed = min(speed * self.network.across, uplinks)
        if launch.rail:
            speed /= len(self.network.rails)
        return speed * (1 - 0.02 * log10(len(launch.nodes) / 2))

    def _spoilt(self, launch: Launch, fault: Fault, leaving: Mapping[str, int]) -> LaunchResult:
        node = fault.what[0]
        if fault.kind == "vanish":
            self.gone.add(node)
            return _ended(launch, Outcome.HUNG, "no output", lost=(node,))
        if fault.kind == "corrupt":
            return LaunchResult(launch, _complete(launch, self._speed(launch, leaving), self.rows, wrong=17.0), 20.0)
        if fault.kind == "crash":
            return _ended(launch, Outcome.FAILED, f"rank 0 on {node}: unhandled system error")
        waiting = {other: "gone" if other == node else "waiting" for other in launch.nodes}
        return _ended(launch, Outcome.HUNG, "no output", waiting=waiting if fault.where == "node" else {})


def _interrupted(result: LaunchResult) -> LaunchResult:
    run = replace(result.run, outcome=Outcome.KILLED, cause="broken off")
    return replace(result, run=run, seconds=0.0, waiting={})


def _ended(
    launch: Launch, outcome: Outcome, cause: str, lost: tuple[str, ...] = (), waiting: Mapping[str, str] | None = None
) -> LaunchResult:
    run = Run(outcome, cause, launch.sweep.collective, (), None, None)
    return LaunchResult(launch, run, launch.sweep.limit_s, lost, waiting or {})


def _complete(launch: Launch, gbs: float, rows: int, wrong: float = 0.0) -> Run:
    """Sizes from the largest downwards, the smaller the slower, as they are printed: to a hundredth of a GB/s."""
    found = tuple(_row(launch.sweep, step, gbs) for step in range(rows - 1, -1, -1))
    if wrong:
        spoilt = Timing(1.0, gbs, gbs, wrong)
        return Run(
            Outcome.CORRUPT, "wrong values", launch.sweep.collective, (*found[:-1], _with(found[-1], spoilt)), None, 1
        )
    return Run(Outcome.COMPLETE, None, launch.sweep.collective, found, None, 0)


def _row(sweep: Sweep, step: int, gbs: float) -> Row:
    size = sweep.end_bytes >> step
    busbw = round(gbs * (1 - 0.005 * step), 2)
    half = Timing(size / (busbw * 1e3) if busbw else 0.0, busbw, busbw, 0.0)
    return Row(size, size // 4, "float", "sum", -1, half, half)


def _with(row: Row, half: Timing) -> Row:
    return Row(row.size_bytes, row.count, row.type, row.redop, row.root, half, half)
