"""Nodes that are bad in some of their runs: mostly named, never passed over in silence, and nobody beside them."""

from __future__ import annotations

import pytest

from gpuctl.domain.findings import Verdict
from gpuctl.nccl.isolate.model import Fleet
from tests.rig.nccl.simulated import Played, net, play_fleet, seeded
from tests.rig.nccl_fleet.faults import Fault
from tests.rig.nccl_fleet.runner import SimulatedFleet
from tests.rig.nccl_fleet.scatter import Scatter

NOISE = Scatter("laplace", 0.0035, 0.0)  # 0.5 % standard deviation
SEEDS = range(8)


def flap(count: int, kind: str, seed: int, rack: int = 0, flapping: tuple[str, ...] = ("node-1",)) -> Played:
    """An isolation of a fleet with nodes that are bad in half of their runs; racks are known if their size is given."""
    return isolate(count, [Fault(kind, "node", (node,), 0.2, 0.5) for node in flapping], seed, rack)


def isolate(count: int, faults: list[Fault], seed: int, rack: int) -> Played:
    network = net(count, rack)
    simulated = SimulatedFleet(network, NOISE, seeded(seed), faults)
    return play_fleet(Fleet(network.nodes, network.rack_of if rack else {}, ()), simulated)


@pytest.mark.parametrize(("kind", "least"), [("hang", 7), ("crash", 7), ("slow", 7), ("corrupt", 5)])
@pytest.mark.parametrize(("count", "rack"), [(8, 0), (8, 4), (12, 0), (16, 4)])
def test_a_node_that_is_bad_in_half_of_its_runs_is_named(count: int, rack: int, kind: str, least: int) -> None:
    played = [flap(count, kind, seed, rack) for seed in SEEDS]
    shown = [one for one in played if one.simulated.shown]
    assert all(one.named in ([], ["node-1"]) for one in played)
    assert len(shown) - sum(bool(one.named) for one in shown) <= len(SEEDS) - least


@pytest.mark.parametrize("kind", ["hang", "crash", "slow", "corrupt"])
@pytest.mark.parametrize(("count", "rack"), [(8, 4), (12, 0)])
def test_whatever_showed_is_in_the_findings(count: int, rack: int, kind: str) -> None:
    for seed in SEEDS:
        played = isolate(count, [Fault(kind, "node", ("node-1",), 0.2, 0.3)], seed, rack)
        reported = any(finding.verdict is not Verdict.OK for finding in played.end.findings)
        assert reported or not played.simulated.shown


@pytest.mark.parametrize("kind", ["hang", "crash", "slow"])
@pytest.mark.parametrize("rack", [0, 4])
def test_the_partner_of_two_flapping_nodes_is_not_accused(rack: int, kind: str) -> None:
    for seed in range(20):
        played = flap(8, kind, seed, rack, ("node-1", "node-4"))
        assert all({"node-1", "node-4"} & set(fault.cause.names) for fault in played.end.faults)


@pytest.mark.parametrize("kind", ["hang", "slow"])
@pytest.mark.parametrize("rack", [0, 8])
def test_a_fault_that_only_runs_of_all_nodes_showed_at_first_is_named_in_a_larger_fleet(rack: int, kind: str) -> None:
    played = [flap(32, kind, seed, rack) for seed in SEEDS]
    late = [one for one in played if len(one.history[0].launch.nodes) == 2 and _showed_late(one)]
    assert late
    assert [one.named for one in late].count(["node-1"]) >= len(late) - 1


def _showed_late(played: Played) -> bool:
    """True if no pair of the first round was bad, but a run of all nodes was."""
    first = [end for end in played.history[: played.sizes[0]] if "node-1" in end.launch.nodes]
    speeds = [end.run.rows[0].out_of_place.busbw_gbs for end in first if end.run.rows and end.run.rows[0].out_of_place]
    return bool(played.simulated.shown) and all((speed or 0) > 350 for speed in speeds) and bool(speeds)
