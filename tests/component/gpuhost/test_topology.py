"""Processors, nodes and devices from a host's files, and the affinities that follow."""

from __future__ import annotations

from pathlib import Path

import pytest
from ansible_collections.gpuctl.fleet.plugins.module_utils.gpuhost import pinning, topology
from ansible_collections.gpuctl.fleet.plugins.module_utils.gpuhost.host import Host
from hypothesis import given
from hypothesis import strategies as st

from tests.rig.machines import write_tree
from tests.rig.trees.hardware import CPU, GPU, NIC, NODE, Card, cards, metal
from tests.rig.trees.host import put


@given(st.sets(st.integers(0, 500)))
def test_a_kernel_list_reads_back_what_was_written(numbers: set[int]) -> None:
    assert topology.cpus_of(topology.as_list(numbers)) == sorted(numbers)


def test_a_kernel_list_is_written_as_the_kernel_writes_it() -> None:
    assert topology.as_list([8, 0, 1, 2, 3, 10, 11]) == "0-3,8,10-11"


def test_nodes_may_have_gaps_and_a_node_of_memory_alone_has_no_processor(tmp_path: Path) -> None:
    for node, cpus in {"0": "0-3", "8": "4-7", "252": ""}.items():
        put(tmp_path, f"{NODE}/node{node}/cpulist", f"{cpus}\n")
    assert topology.nodes(Host(tmp_path)) == {0: [0, 1, 2, 3], 8: [4, 5, 6, 7], 252: []}


def test_a_kernel_without_nodes_has_one_that_holds_everything(tmp_path: Path) -> None:
    put(tmp_path, f"{CPU}/online", "0-2\n")
    assert topology.nodes(Host(tmp_path)) == {0: [0, 1, 2]}


def test_an_offline_processor_differs_from_a_possible_one(tmp_path: Path) -> None:
    put(tmp_path, f"{CPU}/present", "0-7\n")
    put(tmp_path, f"{CPU}/online", "0-5,7\n")
    put(tmp_path, f"{CPU}/offline", "6,8-239\n")
    assert topology.offline(Host(tmp_path)) == [6]


def test_isolated_processors_are_the_kernels_own_list(tmp_path: Path) -> None:
    put(tmp_path, f"{CPU}/isolated", "2-3\n")
    put(tmp_path, f"{CPU}/nohz_full", " (null)\n")
    assert topology.isolated(Host(tmp_path)) == {2, 3}


@pytest.mark.parametrize(
    ("node", "on", "expected"),
    [
        (1, {0: [0], 1: [1]}, 1),
        (None, {0: [0], 1: [1]}, None),
        (None, {0: [0, 1]}, 0),
        (None, {0: [0, 1], 250: []}, 0),
        (250, {0: [0], 1: [1], 250: []}, None),
    ],
)
def test_the_home_of_a_device_is_known_only_where_it_is_certain(
    node: int | None, on: dict[int, list[int]], expected: int | None
) -> None:
    assert topology.home(node, on) == expected


def test_only_nvidia_gpus_and_nics_count_as_devices(tmp_path: Path) -> None:
    server_vga, bridge = ("0x030000", "0x1a03", "0x2000"), ("0x060400", "0x1000", "0xc030")
    cards(
        tmp_path,
        Card("0000:02:00.0", server_vga, 0, (9,)),
        Card("0000:03:00.0", bridge, 0, (10,)),
        Card("0000:1b:00.0", GPU, 1, (11,)),
        Card("0000:1c:00.0", NIC, -1, (12, 13)),
    )
    devices = topology.devices(Host(tmp_path))
    assert [(d.address, d.kind, d.node) for d in devices] == [("0000:1b:00.0", "gpu", 1), ("0000:1c:00.0", "nic", None)]


def test_interrupts_go_to_the_devices_own_node(tmp_path: Path) -> None:
    root = cards(metal(tmp_path), Card("0000:1b:00.0", GPU, 1, (11,)), Card("0000:1c:00.0", NIC, 0, (12, 13)))
    pinned = pinning.read_pinning(Host(root), "node")
    assert {v.irq: v.desired for v in pinned.vectors} == {11: "2-3", 12: "0-1", 13: "0-1"}


def test_spread_gives_each_interrupt_one_processor_in_turn_over_all_devices_of_a_node(tmp_path: Path) -> None:
    root = cards(metal(tmp_path), Card("0000:1b:00.0", NIC, 1, (11, 12, 13)), Card("0000:1c:00.0", NIC, 1, (14,)))
    pinned = pinning.read_pinning(Host(root), "spread")
    assert [v.desired for v in pinned.vectors] == ["2", "3", "2", "3"]


def test_interrupts_keep_off_isolated_processors_unless_the_node_has_no_others(tmp_path: Path) -> None:
    root = cards(metal(tmp_path), Card("0000:1b:00.0", NIC, 0, (11,)), Card("0000:1c:00.0", NIC, 1, (12,)))
    put(root, f"{CPU}/isolated", "0,2-3\n")
    assert [v.desired for v in pinning.read_pinning(Host(root), "node").vectors] == ["1", "2-3"]


def test_the_gpus_and_efa_devices_of_a_p5_are_found_on_both_sides(tmp_path: Path) -> None:
    write_tree("p5", tmp_path)
    pinned = pinning.read_pinning(Host(tmp_path), "node")
    assert len({v.address for v in pinned.vectors}) == 8 + 32
    assert {v.desired for v in pinned.vectors} == {"0-47,96-143", "48-95,144-191"}
    assert not pinned.lost


def test_gpus_whose_memory_is_a_node_of_its_own_belong_to_the_processors_they_name(tmp_path: Path) -> None:
    write_tree("power9", tmp_path)
    host = Host(tmp_path)
    on = topology.nodes(host)
    homes = {d.address: topology.home(d.node, on) for d in topology.devices(host) if d.kind == "gpu"}
    assert sorted(set(homes.values()), key=str) == [0, 8]
