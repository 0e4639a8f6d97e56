"""Nobody said which rack each node is in, and pairs across racks are slower: then neighbours of a bad node stay out."""

from __future__ import annotations

import pytest

from gpuctl.nccl.isolate.model import Fleet
from tests.rig.nccl.simulated import CALM, Played, net, play_fleet, seeded, slow
from tests.rig.nccl_fleet.faults import Fault
from tests.rig.nccl_fleet.runner import SimulatedFleet


def unplaced(count: int, rack: int, across: float, *faults: Fault, seed: int = 1) -> Played:
    made = net(count, rack=rack, across=across)
    return play_fleet(Fleet(made.nodes, {}), SimulatedFleet(made, CALM, seeded(seed), faults))


@pytest.mark.parametrize("across", [0.95, 0.85, 0.6])
@pytest.mark.parametrize("kind", ["hang", "crash", "slow"])
@pytest.mark.parametrize("bad", [9, 10, 15])
def test_the_bad_node_is_named_and_nobody_beside_it(bad: int, kind: str, across: float) -> None:
    fault = Fault(kind, "node", (f"node-{bad}",), 0.4)
    assert unplaced(24, 4, across, fault).named == [f"node-{bad}"]
    assert unplaced(32, 8, across, fault).named == [f"node-{bad}"]


@pytest.mark.parametrize("seed", range(12))
def test_of_few_nodes_nobody_healthy_is_accused_where_one_hangs_now_and_then(seed: int) -> None:
    played = unplaced(12, 4, 0.6, Fault("hang", "node", ("node-6",), chance=0.5), seed=seed)
    others = {name for name in played.named if "node-6" not in name}
    assert not others, [(each.subject, each.message) for each in played.end.findings]


def test_a_node_that_may_only_stand_in_another_rack_is_told_beside_the_two_speeds() -> None:
    played = unplaced(40, 7, 0.6, slow(9, 0.5), slow(29, 0.5), seed=31)
    assert sorted(played.named) == ["node-29", "node-9"]
    two_speeds, *others = played.end.unresolved
    assert "two speeds" in two_speeds.why
    assert "node-7" in {str(cause) for other in others for cause in other.may_be}
    assert all("fast with others" in other.why for other in others)


@pytest.mark.parametrize(("rack", "across", "seed"), [(48, 0.8, 3), (48, 0.9, 4), (32, 0.9, 7)])
def test_racks_that_the_order_of_nodes_does_not_follow_accuse_nobody(rack: int, across: float, seed: int) -> None:
    made, random = net(64, rack=rack, across=across), seeded(seed)
    order = tuple(random.sample(made.nodes, 64))
    assert play_fleet(Fleet(order, {}), SimulatedFleet(made, CALM, random)).named == []
