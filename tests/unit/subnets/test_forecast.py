"""Demand of nodes, and the nodes that fit into a subnet."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest

from gpuctl.core.errors import InvalidInput
from gpuctl.domain.findings import Verdict
from gpuctl.subnets.blocks import space
from gpuctl.subnets.demand import Cni, Demand, Pool, demand, settings
from gpuctl.subnets.forecast import CNI_TAG, MOST_NODES, NO_ADDRESS, NO_INTERFACE, NO_PREFIX, fit, shared_pools
from gpuctl.subnets.judge_forecast import Plan, judge, rows
from gpuctl.subnets.model import Subnet
from gpuctl.subnets.node_type import EFA, EFA_ONLY, PLAIN, Card, Layout, NodeType, interfaces
from tests.rig.subnet_model import counted, first_nodes_that_do_not_fit, random_subnet, subnet

HUGE = "MAX_ENI=" + "9" * 5000
ALL = frozenset({PLAIN, EFA, EFA_ONLY})
P5 = NodeType("p5.48xlarge", [Card(index, 2, ALL) for index in range(32)], 0, 50, 32)
P5EN = NodeType("p5en.48xlarge", [Card(index, 4, ALL) for index in range(16)], 0, 50, 16)
P6_B300 = NodeType(
    "p6-b300.48xlarge", [Card(0, 4, frozenset({PLAIN})), *(Card(n, 4, ALL) for n in range(1, 17))], 0, 50, 16
)
P3DN = NodeType("p3dn.24xlarge", [Card(0, 15, ALL)], 0, 50, 1)
G4DN = NodeType("g4dn.xlarge", [Card(0, 3, frozenset({PLAIN}))], 0, 10, 0)


def kinds(node: NodeType, layout: Layout) -> dict[str, int]:
    planned = interfaces(node, layout)
    assert (planned[0].card, planned[0].device) == (0, 0)
    assert planned[0].kind != EFA_ONLY
    assert len({(one.card, one.device) for one in planned}) == len(planned)
    return {kind: sum(one.kind == kind for one in planned) for kind in (PLAIN, EFA, EFA_ONLY)}


@pytest.mark.parametrize(
    ("node", "layout", "expected"),
    [
        (P5, Layout.EFA_ONLY, (1, 0, 32)),
        (P5, Layout.BANDWIDTH, (8, 0, 32)),
        (P5, Layout.EFA, (0, 32, 0)),
        (P5EN, Layout.EFA_ONLY, (1, 0, 16)),
        (P5EN, Layout.BANDWIDTH, (16, 0, 16)),
        (P6_B300, Layout.EFA_ONLY, (1, 0, 16)),
        (P6_B300, Layout.EFA, (1, 16, 0)),
        (G4DN, Layout.EFA_ONLY, (1, 0, 0)),
        (P5, Layout.PLAIN, (1, 0, 0)),
    ],
)
def test_interfaces_of_a_node(node: NodeType, layout: Layout, expected: tuple[int, int, int]) -> None:
    assert tuple(kinds(node, layout).values()) == expected


def test_a_card_for_one_interface_has_its_efa_at_device_0() -> None:
    single = NodeType("one-slot", [Card(0, 2, ALL), Card(1, 1, frozenset({EFA_ONLY, EFA}))], 0, 50, 2)
    assert [(one.card, one.device, one.kind) for one in interfaces(single, Layout.EFA)] == [(0, 0, EFA), (1, 0, EFA)]
    assert [(one.card, one.device) for one in interfaces(single, Layout.EFA_ONLY)] == [(0, 0), (0, 1), (1, 0)]


def of(node: NodeType, cni: Cni, pods: int, layout: Layout = Layout.PLAIN) -> Demand:
    return demand(node, interfaces(node, layout), cni, pods)


def test_demand_as_the_cni_documents_it() -> None:
    # docs/eni-and-ip-target.md: an idle p3dn holds 49 secondary addresses, with 3 pods 98.
    assert sum(pool.addresses for pool in of(P3DN, Cni(), 0).pools) == 49
    assert sum(pool.addresses for pool in of(P3DN, Cni(), 3).pools) == 98
    assert of(P3DN, Cni(), 3).addresses == 100
    assert of(P3DN, Cni(warm_ip_target=2, minimum_ip_target=10), 3) == Demand(1, [Pool(10, 0)], 15 * 49)
    # docs/prefix-and-ip-target.md: one whole prefix beyond those in use.
    assert of(P3DN, Cni(prefix_delegation=True), 0).prefixes == 1
    assert of(P3DN, Cni(prefix_delegation=True), 16).prefixes == 2
    assert of(P3DN, Cni(prefix_delegation=True), 17).prefixes == 3
    assert of(P3DN, Cni(prefix_delegation=True, warm_ip_target=5), 17).prefixes == 2


def test_efa_only_on_the_default_card_takes_the_place_of_an_interface_for_pods() -> None:
    """Karpenter, designs/efa-for-static-capacity.md: p5 has 51 pods with their own network and host ones, not 100."""
    assert of(P5, Cni(), 10).most_pods == 2 * 49
    assert of(P5, Cni(), 10, Layout.EFA_ONLY).most_pods == 49
    assert of(P5EN, Cni(), 10, Layout.EFA_ONLY).most_pods == 3 * 49


def test_efa_with_addresses_costs_one_each() -> None:
    lean = Cni(warm_ip_target=1)
    assert of(P5, lean, 3, Layout.EFA).addresses == of(P5, lean, 3, Layout.EFA_ONLY).addresses + 31


@pytest.mark.parametrize(
    "word",
    ["WARM=1", "WARM_IP_TARGET=x", "WARM_IP_TARGET=-1", "ENABLE_PREFIX_DELEGATION=1", "=1", HUGE],
)
def test_settings_that_the_cni_does_not_have(word: str) -> None:
    with pytest.raises(InvalidInput):
        settings([word])


def test_settings_by_the_names_of_the_cni() -> None:
    words = ["ENABLE_PREFIX_DELEGATION=true", "WARM_IP_TARGET=5", "MINIMUM_IP_TARGET=0", "WARM_ENI_TARGET=0"]
    assert settings(words) == Cni(prefix_delegation=True, warm_ip_target=5, warm_eni_target=0)


def test_single_addresses_fill_a_subnet_to_the_last_one() -> None:
    small = subnet("10.0.0.0/26")  # 59 free
    assert fit([small], [], Demand(1, [Pool(9, 0)], 9)).certain == 5
    found = fit([small], [], Demand(1, [Pool(9, 0)], 9))
    assert found.breaks
    assert (found.breaks.launches, found.breaks.error) == (True, NO_ADDRESS)
    assert (found.certain, found.possible) == (5, 5)
    full = fit([subnet("10.0.0.0/28", addresses=[f"10.0.0.{n}" for n in range(4, 15)])], [], Demand(1, [Pool(0, 0)], 9))
    assert full.breaks
    assert (full.certain, full.breaks.launches) == (0, False)


def test_prefixes_run_out_while_addresses_are_free() -> None:
    found = fit([subnet("10.0.0.0/26")], [], Demand(1, [Pool(0, 1)], 16))  # two whole /28s, 27 loose addresses
    assert (found.certain, found.possible) == (1, 2)
    assert found.breaks
    assert found.breaks.error == NO_PREFIX
    second = fit([subnet("10.0.0.0/26")], [], Demand(1, [Pool(0, 0), Pool(0, 1)], 16))
    assert second.breaks
    assert second.breaks.error == NO_INTERFACE


def test_interfaces_that_the_cni_adds_go_to_tagged_subnets_of_the_zone() -> None:
    home = replace(subnet("10.0.0.0/28"), name="home")
    tagged = replace(subnet("10.0.1.0/24"), name="pods", tags={CNI_TAG: "1"})
    elsewhere = replace(tagged, name="other-zone", zone_id="use1-az1")
    need = Demand(1, [Pool(1, 0), Pool(9, 0)], 100)
    assert shared_pools(home, [home, tagged, elsewhere]) == [tagged]
    assert fit([home], [], need).certain == 0
    assert fit([home], [tagged], need).certain == 5


def test_both_counts_hold_against_placing_address_by_address() -> None:
    source = random.Random(7)  # noqa: S311 - not for secrets
    for _ in range(300):
        made = random_subnet(source)
        room = space(made)
        assert room
        need = Demand(source.choice([1, 1, 2, 8]), [Pool(*source.choice([(9, 0), (0, 1), (0, 3)]))], 1000)
        found = fit([made], [], need)
        assert found.certain <= found.possible
        for seed in range(3):
            fitted = first_nodes_that_do_not_fit(made, need, random.Random(seed))  # noqa: S311
            assert found.certain <= fitted <= found.possible, (made, need)


def plan(nodes: int, pods: int = 10, layout: Layout = Layout.EFA_ONLY, cni: Cni | None = None) -> Plan:
    return Plan(P5, nodes, pods, layout, cni or Cni(), frozenset({"use1-az6"}))


def verdict(asked: Plan, *subnets: Subnet) -> tuple[Verdict, str, str]:
    finding = judge(asked, rows(asked, subnets, subnets), subnets)
    return finding.verdict, finding.message, finding.hint


def test_the_roomiest_subnet_that_holds_all_is_named() -> None:
    small, large = subnet("10.0.0.0/24"), replace(subnet("10.0.4.0/22"), name="subnet-1")
    assert verdict(plan(16), small, large)[:2] == (
        Verdict.OK,
        "they fit in subnet-1, which holds 20 of them; addresses for each: 50",
    )


def test_a_setting_with_which_they_would_fit_is_named() -> None:
    state, message, hint = verdict(plan(16), subnet("10.0.0.0/24"))
    assert state is Verdict.FAIL
    assert message == (
        "they fit in no subnet; subnet-0 has the most room, for 5 of them; addresses for each: 50; pods of node 6 get "
        f"no address: {NO_ADDRESS} in subnet-0"
    )
    assert hint == "with WARM_IP_TARGET=2 and MINIMUM_IP_TARGET=10 they fit in subnet-0"


def test_a_new_subnet_is_named_where_no_setting_helps() -> None:
    _, _, hint = verdict(plan(40), subnet("10.0.0.0/26"))
    assert hint == "a new subnet of /21 holds them: `gpuctl subnets add --vpc vpc-0 --cidr /21 --az use1-az6`"


def test_several_subnets_of_a_zone_hold_them_together() -> None:
    first, second = subnet("10.0.0.0/24"), replace(subnet("10.0.1.0/24"), name="subnet-1")
    state, message, _ = verdict(plan(10), first, second)
    assert state is Verdict.OK
    assert message.startswith("they fit in no subnet alone, but in subnet-0, subnet-1 of use1-az6 together")


def test_luck_with_fragments_is_a_warning() -> None:
    by_prefix = Cni(prefix_delegation=True)
    state, message, _ = verdict(plan(6, 10, cni=by_prefix), subnet("10.0.0.0/24"))
    assert state is Verdict.WARN
    assert "only if EC2 takes single addresses from broken /28s" in message


def test_addresses_of_hidden_interfaces_are_counted_where_they_harm_most() -> None:
    by_prefix = Demand(1, [Pool(0, 1)], 16)
    assert fit([subnet("10.0.0.0/25")], [], by_prefix).certain == 3
    assert fit([counted(subnet("10.0.0.0/25"), hidden=2)], [], by_prefix).certain == 2


def test_unknown_reservations_make_the_answer_unknown() -> None:
    state, message, _ = verdict(plan(3), replace(subnet("10.0.0.0/24"), reservations=None))
    assert (state, "unless CIDR reservations take the room" in message) == (Verdict.UNKNOWN, True)


def test_unknown_reservations_of_a_subnet_for_the_pods_count_too() -> None:
    home = replace(subnet("10.0.0.0/26"), name="home")
    pods = replace(subnet("10.0.4.0/22"), name="pods", tags={CNI_TAG: "1"}, reservations=None)
    asked = replace(plan(1), node=P5EN)
    finding = judge(asked, rows(asked, [home], [home, pods]), [home, pods])
    assert finding.verdict is Verdict.UNKNOWN


def test_the_subnet_that_may_hold_all_decides() -> None:
    by_prefix = Cni(prefix_delegation=True)
    sure = replace(subnet("10.0.0.0/24"), name="sure")
    asked = plan(6, cni=by_prefix)
    other = replace(subnet("10.0.2.0/25"), name="small")
    finding = judge(asked, rows(asked, [other, sure], [other, sure]), [])
    assert (finding.verdict, "only if EC2" in finding.message) == (Verdict.WARN, True)
    unsure = replace(sure, reservations=None)
    assert judge(asked, rows(asked, [unsure], [unsure]), []).verdict is Verdict.UNKNOWN


def test_a_zone_that_does_not_offer_the_type_holds_none() -> None:
    elsewhere = replace(subnet("10.0.0.0/16"), zone_id="use1-az3")
    assert verdict(plan(1), elsewhere)[:2] == (
        Verdict.FAIL,
        "no subnet lies in a zone that offers p5.48xlarge: use1-az6 does",
    )


def test_more_pods_than_the_type_has_addresses_for() -> None:
    assert verdict(plan(1, pods=50), subnet("10.0.0.0/16"))[:2] == (
        Verdict.FAIL,
        "p5.48xlarge gives at most 49 pods an address with these settings, not 50",
    )


def test_a_forecast_ends_in_a_subnet_of_any_size() -> None:
    assert fit([subnet("10.0.0.0/16")], [], Demand(1, [Pool(0, 0)], 1)).certain == MOST_NODES
