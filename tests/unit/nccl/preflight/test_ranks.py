"""The order of nodes, and where they stand."""

from __future__ import annotations

import itertools
import random
from pathlib import Path
from typing import Any

import pytest

from gpuctl.core.errors import InvalidInput
from gpuctl.nccl.topology import racks, ring_order
from tests.rig.nccl.fleets import efa, node, roce


def test_racks_come_together_and_a_ring_crosses_each_once() -> None:
    nodes = [f"n{i}" for i in range(12)]
    places = {node: (f"rack-{i % 3}",) for i, node in enumerate(nodes)}
    order = ring_order.order(nodes, places)
    assert order.crossings_before == 12
    assert order.crossings_after == 3
    assert order.after[:4] == ("n0", "n3", "n6", "n9")
    assert sorted(order.after) == sorted(nodes)


def test_no_order_crosses_less() -> None:
    """Held against every order there is, of small fleets."""
    dice = random.Random(4)  # noqa: S311
    for _ in range(30):
        nodes = [f"n{i}" for i in range(6)]
        places = {node: (dice.choice("ab"), dice.choice("cd")) for node in nodes}
        best = min(ring_order.crossings(each, places) for each in itertools.permutations(nodes))
        assert ring_order.order(nodes, places).crossings_after == best


def test_racks_of_one_spine_stand_together() -> None:
    places = {"a": ("s1", "r1"), "b": ("s2", "r2"), "c": ("s1", "r3"), "d": ("s2", "r2"), "e": ("s1", "r1")}
    assert ring_order.order("abcde", places).after == ("a", "e", "c", "b", "d")


def test_one_rack_is_never_crossed_and_order_is_kept() -> None:
    order = ring_order.order(["c", "a", "b"], dict.fromkeys("abc", ("r",)))
    assert (order.after, order.crossings_before, order.crossings_after) == (("c", "a", "b"), 0, 0)


def test_nodes_of_unknown_rack_stand_last_and_are_named() -> None:
    order = ring_order.order(["a", "x", "b"], {"a": ("r",), "b": ("r",)})
    assert order.after == ("a", "b", "x")
    assert order.unplaced == ("x",)
    assert order.crossings_after == 2


def test_reads_slurms_topology(tmp_path: Path) -> None:
    file = tmp_path / "topology.conf"
    file.write_text(
        "# fat tree\nSwitchName=top Switches=s[1-2]\nSwitchName=s1 Nodes=n[01-03],m1\nswitchname=s2 nodes=n04\n"
    )
    found = racks.read(file)
    assert found["n02"] == ("top", "s1")
    assert found["m1"] == ("top", "s1")
    assert found["n04"] == ("top", "s2")
    assert len(found) == 5


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("n[1-3]", ["n1", "n2", "n3"]),
        ("n[08-10],x", ["n08", "n09", "n10", "x"]),
        ("r[1-2]n[1,3]", ["r1n1", "r1n3", "r2n1", "r2n3"]),
        ("", []),
    ],
)
def test_expands_slurms_lists(text: str, names: list[str]) -> None:
    assert racks.expand(text) == names


def test_reads_ec2s_instance_topology_by_the_instances_of_nodes(tmp_path: Path) -> None:
    file = tmp_path / "topology.json"
    file.write_text(
        '{"Instances": [{"InstanceId": "i-1", "NetworkNodes": ["nn-1", "nn-2", "nn-3"]},'
        ' {"InstanceId": "i-2", "NetworkNodes": ["nn-1", "nn-2", "nn-4"]}]}'
    )
    found = racks.read(file, {"node-1": "i-1", "node-9": "i-9"})
    assert found["node-1"] == ("nn-1", "nn-2", "nn-3")
    assert found["i-2"] == ("nn-1", "nn-2", "nn-4")
    assert "node-9" not in found


@pytest.mark.parametrize("text", ["", "nothing of the kind", '{"Reservations": []}', '{"Instances": [{}]}', "\x00\xff"])
def test_refuses_what_places_no_node(tmp_path: Path, text: str) -> None:
    file = tmp_path / "file"
    file.write_bytes(text.encode("latin-1"))
    with pytest.raises(InvalidInput):
        racks.read(file)
    with pytest.raises(InvalidInput):
        racks.read(tmp_path / "absent")


def roce_at(*switches: str) -> dict[str, Any]:
    facts = roce(node())
    facts["names"]["switches"] = {f"rail{n}": name for n, name in enumerate(switches)}
    return facts


def test_nodes_whose_fabric_ends_at_the_same_switches_stand_together() -> None:
    nodes = {
        "a": roce_at("l1", "l2", "l3", "l4"),
        "b": roce_at("l5", "l6", "l7", "l8"),
        "c": roce_at("l1", "l2", "l3", "l4"),
        "d": roce_at("l1", "l2", "l3"),  # of one port it is not known
    }
    assert racks.of_facts(nodes) == (
        {"a": ("l1+l2+l3+l4",), "b": ("l5+l6+l7+l8",), "c": ("l1+l2+l3+l4",)},
        "leaf switches, from LLDP",
    )


def test_a_switch_of_the_management_network_places_nobody() -> None:
    facts = node()
    facts["names"]["switches"] = {"eth0": "top-of-rack-1"}
    assert racks.of_facts({"a": facts}) == ({}, "")
    assert racks.of_facts({"a": efa(facts)}) == ({}, "")


def test_gpus_of_two_nvlink_domains_in_one_node_place_it_nowhere() -> None:
    facts = node()
    for number, gpu in enumerate(facts["gpu"]["gpus"]):
        gpu["nvlink_domain"] = f"5b5e4d3c-0000-4000-8000-000000000001.{number % 2}"
    assert racks.of_facts({"a": facts}) == ({}, "")


def test_switches_in_a_loop_come_to_an_end(tmp_path: Path) -> None:
    file = tmp_path / "topology.conf"
    file.write_text("SwitchName=a Switches=b\nSwitchName=b Switches=a Nodes=n1\n")
    assert racks.read(file) == {"n1": ("a", "b")}
