"""Launches that stop beginning in the middle of an isolation: it ends soon all the same, and tells of it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpuctl.domain.findings import Verdict
from gpuctl.nccl.isolate.launch_failures import excluded_nodes
from gpuctl.nccl.isolate.model import Fleet
from gpuctl.nccl.model import Launch, LaunchResult, Outcome, Run
from tests.rig.nccl.simulated import CALM, Played, known, net, play_fleet, seeded, slow
from tests.rig.nccl_fleet.faults import Fault
from tests.rig.nccl_fleet.network import Network
from tests.rig.nccl_fleet.runner import SimulatedFleet

WHY = "0/8 nodes are available: 1 Insufficient nvidia.com/gpu"
FAULTS = st.sampled_from(["none", "slow", "hang", "crash", "intermittent", "uplink", "half"])
IDLE = 8  # rounds in which nothing begins, at most
ROUNDS = 120


@dataclass
class Stopping(SimulatedFleet):
    """`begins`: node -> after how many launches none begins with it; `since`: the round after which nothing begins."""

    begins: Mapping[str, int] = field(default_factory=dict)
    since: int = ROUNDS
    launched: Counter[str] = field(default_factory=Counter)
    idle: int = 0

    def run(
        self, launches: Sequence[Launch], told: Callable[[Launch, str], None], broken_off: Callable[[], bool]
    ) -> list[LaunchResult]:
        assert len(self.rounds) < ROUNDS
        ended = super().run(launches, told, broken_off)
        self.idle += all(not end.run.ranks for end in ended)
        return ended

    def _run(self, launch: Launch, leaving: Mapping[str, int]) -> LaunchResult:
        over = any(self.launched[node] >= self.begins.get(node, ROUNDS) for node in launch.nodes)
        self.launched.update(launch.nodes)
        if over or len(self.rounds) > self.since:
            return LaunchResult(launch, Run(Outcome.FAILED, WHY, None, (), None, None), 1.0)
        return super()._run(launch, leaving)


def some(fault: str, network: Network) -> list[Fault]:
    """Faults around the second node."""
    node, rack = network.nodes[1], network.rack_of[network.nodes[1]]
    return {
        "none": [],
        "slow": [slow(1, 0.3)],
        "hang": [Fault("hang", "node", (node,))],
        "crash": [Fault("crash", "node", (node,))],
        "intermittent": [slow(1, 0.3, 0.5), Fault("crash", "node", (network.nodes[0],), chance=0.5)],
        "uplink": [Fault("slow", "uplink", (rack,), 0.4)],
        "half": [slow(number, 0.4) for number in range(len(network.nodes) // 2)],
    }[fault]


def stopping(
    network: Network, faults: Sequence[Fault], fleet: Fleet | None = None, since: int = ROUNDS, **begins: int
) -> tuple[Played, Stopping]:
    """Isolated to its end; node_1=3: the fourth launch with node-1 never begins."""
    names = {name.replace("_", "-"): count for name, count in begins.items()}
    simulated = Stopping(network, CALM, seeded(1), faults, begins=names, since=since)
    return play_fleet(fleet or known(network), simulated), simulated


def fleets(network: Network) -> list[Fleet]:
    """With what can be known of it, and without."""
    return [known(network), Fleet(network.nodes, network.rack_of, network.rails), Fleet(network.nodes, {}, ())]


@settings(max_examples=30, deadline=None)
@given(st.sampled_from([2, 3, 4, 6, 8, 13, 16, 40]), st.sampled_from([0, 2, 4]), FAULTS, st.integers(0, 9), st.data())
def test_an_isolation_ends_soon_whenever_launches_with_a_node_stop_beginning(
    count: int, rack: int, fault: str, begins: int, data: st.DataObject
) -> None:
    network = net(count, rack, 0.8)
    node, fleet = data.draw(st.sampled_from(network.nodes)), data.draw(st.sampled_from(fleets(network)))
    _, simulated = stopping(network, some(fault, network), fleet, **{node.replace("-", "_"): begins})
    assert simulated.idle <= IDLE


@settings(max_examples=30, deadline=None)
@given(st.sampled_from([2, 3, 4, 6, 8, 13, 16, 40]), st.sampled_from([0, 2, 4]), FAULTS, st.integers(0, 9), st.data())
def test_an_isolation_ends_soon_whenever_launches_stop_beginning_on_the_whole_fleet(
    count: int, rack: int, fault: str, since: int, data: st.DataObject
) -> None:
    network = net(count, rack, 0.8)
    fleet = data.draw(st.sampled_from(fleets(network)))
    _, simulated = stopping(network, some(fault, network), fleet, since)
    assert simulated.idle <= IDLE


@pytest.mark.parametrize("fault", ["crash", "slow"])
def test_a_node_that_is_bad_once_and_then_never_begins_is_named_and_the_others_are_confirmed(fault: str) -> None:
    played, simulated = stopping(net(80, 8), [Fault(fault, "node", ("node-4",), 0.3)], node_4=1)
    unknown = {finding.subject: finding for finding in played.end.findings if finding.verdict is Verdict.UNKNOWN}
    assert (played.named, set(unknown)) == ([], {"node-3 and node-4", "node-4"})
    assert "launches to settle it no longer started" in unknown["node-3 and node-4"].message
    assert unknown["node-4"].message == f"could not be tested any more, its last 2 launches never started: {WHY}"
    assert simulated.launched["node-4"] == 3
    assert "the other 78 nodes together" in {f.subject for f in played.end.findings if f.verdict is Verdict.OK}


def test_pairs_that_are_faster_are_not_run_again_for_ever_where_they_do_not_begin() -> None:
    class OneFast(Stopping):
        def _speed(self, launch: Launch, leaving: Mapping[str, int]) -> float:
            return 400.0 if set(launch.nodes) == {"node-0", "node-1"} else 250.0

    for since in range(1, 9):
        network = net(6)
        simulated = OneFast(network, CALM, seeded(1), since=since)
        play_fleet(Fleet(network.nodes, {}, ()), simulated)
        assert simulated.idle <= IDLE


@pytest.mark.parametrize("begins", [2, 3, 4])
@pytest.mark.parametrize(("count", "rack"), [(8, 4), (12, 4), (12, 6)])
def test_two_speeds_accuse_nobody_where_a_node_stops_beginning(count: int, rack: int, begins: int) -> None:
    network = net(count, rack, across=0.7)
    played, _ = stopping(network, [], Fleet(network.nodes, {}, ()), node_5=begins)
    assert played.named == []


def test_a_partner_that_was_lent_to_such_nodes_is_not_held_for_one() -> None:
    begun = [(("p", "q"), True), (("x", "y"), True)]
    assert excluded_nodes([*begun, (("x", "p"), False), (("x", "q"), False)]) == {"x"}
    assert excluded_nodes([*begun, (("x", "p"), False)]) == frozenset()
    assert excluded_nodes([*begun, (("x", "p"), False), (("x", "q"), False), (("x", "r"), True)]) == frozenset()
    assert excluded_nodes([*begun, (("x", "y"), False), (("x", "y"), False)]) == {"x", "y"}
