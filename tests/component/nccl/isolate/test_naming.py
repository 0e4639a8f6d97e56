"""What an isolation names, and in how many runs."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import pytest

from gpuctl.domain.findings import Verdict
from gpuctl.nccl.isolate.confirmation import REPEATS
from gpuctl.nccl.isolate.model import Fleet, Policy
from tests.rig.nccl.simulated import CALM, known, net, play, play_fleet, play_rails, seeded, slow
from tests.rig.nccl_fleet.faults import Fault
from tests.rig.nccl_fleet.runner import SimulatedFleet


def test_a_slow_node_is_named_within_the_budget_and_the_rest_is_confirmed() -> None:
    played = play(net(64, rack=8), [slow(13)])
    assert played.named == ["node-13"]
    controls = 3
    assert played.sizes == [32, 2 + controls, *[1] * REPEATS]
    assert played.end.used == played.end.budget == 34 + REPEATS
    assert set(played.simulated.rounds[-1][0].nodes) == set(played.fleet.nodes) - {"node-13"}


@pytest.mark.parametrize("kind", ["hang", "crash", "corrupt"])
def test_a_node_whose_runs_end_badly_is_named_within_the_budget(kind: str) -> None:
    played = play(net(64, rack=8), [Fault(kind, "node", ("node-5",))])
    assert played.named == ["node-5"]
    assert played.end.used <= played.end.budget


def test_a_node_that_vanishes_is_named_without_being_run_again_and_its_partner_is_looked_at() -> None:
    played = play(net(64, rack=8), [Fault("vanish", "node", ("node-5",))])
    assert played.named == ["node-5"]
    assert played.end.faults[0].lost
    assert sum("node-5" in launch.nodes for launches in played.simulated.rounds for launch in launches) == 1
    partner = next(n for n in played.simulated.rounds[0] if "node-5" in n.nodes).nodes
    assert any(set(partner) & set(launch.nodes) for launch in played.simulated.rounds[1])


def test_a_path_between_two_nodes_is_told_from_the_nodes() -> None:
    played = play(net(64, rack=8), [Fault("hang", "link", ())])
    (fault,) = played.simulated.faults
    assert played.named == [f"the path between {' and '.join(sorted(fault.what))}"]


def test_a_slow_uplink_is_told_from_the_nodes_behind_it() -> None:
    played = play(net(128, rack=16, across=0.9), [Fault("slow", "uplink", ("rack-3",), 0.3)])
    assert played.named == ["the uplink of rack rack-3"]
    assert played.end.used <= played.end.budget


def test_a_whole_slow_rack_is_named_instead_of_its_nodes() -> None:
    played = play(net(128, rack=16), [slow(node, 0.3) for node in range(32, 48)])
    assert played.named == ["rack rack-2"]


@pytest.mark.parametrize("pair", [(20, 21), (20, 40), (21, 22)])
def test_two_bad_nodes_are_both_named_even_as_a_pair(pair: tuple[int, int]) -> None:
    played = play(net(64, rack=8), [slow(pair[0], 0.2), slow(pair[1], 0.3)])
    assert sorted(played.named) == sorted(f"node-{node}" for node in pair)


def test_a_bad_node_behind_a_bad_uplink_is_found_too() -> None:
    first = play(net(128, rack=16)).simulated.rounds[0]
    network = net(128, rack=16)
    across = next(launch for launch in first if len(network.racks(launch.nodes)) > 1)
    node = across.nodes[0]
    faults = [Fault("slow", "uplink", (network.rack_of[node],), 0.5), Fault("slow", "node", (node,), 0.3)]
    assert sorted(play(network, faults).named) == sorted([node, f"the uplink of rack {network.rack_of[node]}"])


def test_a_slow_adapter_is_named_by_runs_on_one_at_a_time() -> None:
    played = play_rails(net(64, rack=8), Fault("slow", "rail", ("node-9", "mlx5_2"), 0.5))
    assert played.named == ["node-9"]
    assert played.end.faults[0].rail == "mlx5_2"


def test_a_node_slow_over_every_adapter_is_not_blamed_on_one() -> None:
    played = play_rails(net(64, rack=8), slow(9, 0.3))
    assert played.end.faults[0].rail == ""
    assert "not an adapter" in played.end.faults[0].rail_summary


def test_a_node_that_hangs_is_not_run_over_each_adapter() -> None:
    assert play_rails(net(64, rack=8), Fault("hang", "node", ("node-5",))).end.rails == 0


def test_a_fault_that_comes_and_goes_is_repeated_until_it_is_sure() -> None:
    played = play(net(64, rack=8), [slow(13, 0.3, chance=0.6)], Policy(pairs_per_node=4), seed=4)
    assert played.named == ["node-13"]
    assert played.end.faults[0].intermittent


def test_an_odd_node_is_tested_with_one_that_ran_well() -> None:
    played = play(net(15), [slow(14)])
    assert played.named == ["node-14"]
    assert played.sizes[0] == 7


def test_racks_that_are_slower_among_each_other_accuse_nobody() -> None:
    played = play(net(128, rack=16, across=0.6))
    assert played.named == []
    assert played.end.unresolved == ()


def test_the_findings_carry_numbers_and_what_else_it_could_be() -> None:
    finding = play(net(64, rack=8), [slow(13)]).end.findings[0]
    assert (finding.subject, finding.verdict) == ("node-13", Verdict.FAIL)
    assert finding.numbers["bad_runs"] == finding.numbers["runs"] == 2
    assert 18 < float(finding.numbers["slower_percent"] or 0) < 22
    assert "other explanations" in finding.hint


def test_looking_into_uplinks_never_loads_one_with_more_than_two_pairs() -> None:
    network = net(128, rack=16, across=0.9)
    played = play(network, [Fault("slow", "uplink", (f"rack-{rack}",), 0.1) for rack in (2, 3)])
    for launches in played.simulated.rounds:
        leaving = Counter(
            rack for launch in launches for rack in network.racks(launch.nodes) if len(network.racks(launch.nodes)) > 1
        )
        assert max(leaving.values(), default=0) <= 2


def test_an_uplink_that_comes_and_goes_does_not_pass_for_the_path_it_was_seen_on() -> None:
    class Partly(SimulatedFleet):
        """The second pair over the uplink is spared in the first round."""

        def _shows(self, fault: Fault) -> bool:
            self.met = getattr(self, "met", 0) + 1
            return self.met != 2

    network = net(128, rack=16, across=0.9)
    played = play_fleet(known(network), Partly(network, CALM, seeded(1), [Fault("slow", "uplink", ("rack-3",), 0.2)]))
    assert played.named == ["the uplink of rack rack-3"]


def test_a_node_alone_in_its_rack_is_named_itself() -> None:
    assert play(net(129, rack=16), [slow(128, 0.4)]).named == ["node-128"]


@pytest.mark.parametrize(
    ("kind", "node", "racks_known", "mentioned"),
    [
        ("slow", 3, False, True),
        ("hang", 3, False, True),
        ("slow", 16, True, True),  # alone in its rack
        ("slow", 3, True, False),
        ("corrupt", 3, False, False),  # no cable causes wrong values
    ],
)
def test_a_node_whose_leaf_switch_no_other_node_shares_may_have_a_bad_port_or_cable(
    kind: str, node: int, racks_known: bool, mentioned: bool
) -> None:
    network = net(17, rack=8)
    simulated = SimulatedFleet(network, CALM, seeded(1), [Fault(kind, "node", (f"node-{node}",), 0.4)])
    played = play_fleet(known(network) if racks_known else Fleet(network.nodes), simulated)
    accusation = next(finding for finding in played.end.findings if finding.subject == f"node-{node}")
    assert ("or its switch port or cable" in accusation.message) is mentioned


def test_an_uplink_of_a_small_rack_is_not_crowded_by_the_odd_node_out() -> None:
    network = net(35, rack=16)
    narrow = replace(network, uplinks={**network.uplinks, "rack-2": 740.0})
    assert play(narrow, [slow(32, 0.5)]).named == ["node-32"]


def test_a_chance_slow_run_of_one_end_does_not_put_a_dead_path_on_it() -> None:
    class Gust(SimulatedFleet):
        def _shows(self, fault: Fault) -> bool:
            return fault.kind != "slow" or len(self.rounds) == 2

    network = net(64, rack=8)
    faults = [Fault("hang", "link", ("node-13", "node-14")), slow(13, 0.25)]
    played = play_fleet(known(network), Gust(network, CALM, seeded(1), faults))
    assert played.named == ["the path between node-13 and node-14"]


def test_a_small_slowness_that_comes_back_is_not_put_down_to_chance_in_a_small_fleet() -> None:
    played = play(net(12), [slow(2, 0.057)])
    assert played.named == ["node-2"]


@pytest.mark.parametrize("known_racks", [True, False], ids=["racks known", "racks not known"])
def test_one_dead_adapter_of_sixteen_is_found_whatever_way_the_scatter_falls(known_racks: bool) -> None:
    network = net(12)
    fleet = Fleet(network.nodes, network.rack_of if known_racks else {})
    for seed in range(40):
        fault = slow(2, 1 / 16)
        assert play_fleet(fleet, SimulatedFleet(network, CALM, seeded(seed), [fault])).named == ["node-2"], seed
