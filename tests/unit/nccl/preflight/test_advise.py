"""The environment that is derived from what nodes are."""

from __future__ import annotations

import re

import pytest

from gpuctl.domain.findings import Verdict
from gpuctl.nccl.advise import advise
from gpuctl.nccl.topology.adapters import adapters, rails
from tests.rig.nccl.fleets import DATA, Facts, efa, fleet, node, port, roce
from tests.rig.recordings import recording


def why(facts: Facts, name: str) -> str:
    (setting,) = [s for s in advise({"node-1": facts}).settings if s.name == name]
    return setting.why


def test_infiniband_gets_its_ports_by_exact_name_in_the_order_of_their_numbers() -> None:
    told = advise(fleet(3))
    assert told.environment == {
        "NCCL_NET": "IB",
        "NCCL_IB_HCA": "=mlx5_0,mlx5_3,mlx5_4,mlx5_5,mlx5_6,mlx5_9,mlx5_10,mlx5_11",
        "NCCL_SOCKET_IFNAME": "=eth0",
    }
    assert told.findings == ()


def test_a_net_plugin_is_not_shut_out_by_pinning_nccls_own_network() -> None:
    """HPC-X brings nccl-rdma-sharp-plugins, whose network is called IBext: NCCL_NET=IB would leave it unused."""
    nodes = fleet(2)
    plugin = "/opt/hpcx/nccl_rdma_sharp_plugin/lib/libnccl-net.so"
    nodes["node-2"]["programs"]["net_plugins"] = [plugin]
    for facts in nodes.values():
        assert "IBext" in why(facts, "NCCL_NET")
    told = advise({"node-2": nodes["node-2"]})
    assert "NCCL_NET" not in told.environment
    assert plugin in why(nodes["node-2"], "NCCL_NET")
    both = advise(nodes)
    assert "NCCL_NET" not in both.environment
    assert both.findings == ()


def test_where_plugins_were_not_looked_for_no_network_is_pinned() -> None:
    facts = node()
    del facts["programs"]["net_plugins"]
    assert "NCCL_NET" not in advise({"a": facts}).environment
    assert "not known" in why(facts, "NCCL_NET")


def test_the_rails_are_the_fabrics_adapters_that_every_node_has_in_order() -> None:
    nodes = fleet(3)
    every = ("mlx5_0", "mlx5_3", "mlx5_4", "mlx5_5", "mlx5_6", "mlx5_9", "mlx5_10", "mlx5_11")
    assert rails(nodes) == every
    nodes["node-2"]["rdma"]["ports"][1]["state"] = "DOWN"
    assert rails(nodes) == tuple(name for name in every if name != "mlx5_3")


def test_there_are_no_rails_on_efa_nor_where_a_node_did_not_tell_or_has_others() -> None:
    assert rails({f"node-{n}": efa(node(n)) for n in (1, 2)}) == ()
    assert rails({}) == ()
    nodes = fleet(3)
    nodes["node-3"]["rdma"] = {"unread": {"*": "lost"}}
    assert rails(nodes) == ()
    assert rails({"a": node(1), "b": roce(node(2))}) == ()  # alike in name, not in kind


def test_a_rail_of_a_card_with_several_ports_is_named_with_its_port() -> None:
    nodes = fleet(2)
    nodes["node-2"]["rdma"]["ports"].append({**port("mlx5_0", 25.0, "Ethernet"), "port": 2})
    assert rails(nodes)[0] == "mlx5_0:1"
    assert rails(nodes)[1] == "mlx5_3"


def test_storage_ports_are_left_out_and_told_with_the_reason() -> None:
    told = advise(fleet(1))
    assert [line.partition(":1: ")[0] for line in told.left_out["node-1"]] == ["mlx5_1", "mlx5_2"]
    assert "not of the fabric: the 8 InfiniBand ports have the highest total" in told.left_out["node-1"][0]


def test_a_machine_with_ports_that_are_down_gives_its_400_gigabit_ports() -> None:
    """ibstat of an H100 node: mlx5_1 and 2 are Ethernet, mlx5_2 and a fabric port, mlx5_6, are down."""
    _assert_fabric((DATA / "rdma/ibstat-28-h100-two-down.txt").read_text())


def test_a_recorded_machine_of_twelve_adapters_gives_its_eight_400_gigabit_ports() -> None:
    """ibstat of an H100 node: mlx5_1, 2, 7 and 8 are Ethernet of 100 Gb/s and less, three of them are down."""
    _assert_fabric(recording("host/gpud_ibstat.47.0.h100.some.down.0.txt").read_text())


def _assert_fabric(text: str) -> None:
    ports = []
    for block in re.split(r"^CA '", text, flags=re.MULTILINE)[1:]:
        said = dict(re.findall(r"^\s*([A-Z][\w ]+): (.+)$", block, re.MULTILINE))
        ports.append(port(block.split("'")[0], float(said["Rate"]), said["Link layer"], state=said["State"].upper()))
    facts = node()
    facts["rdma"]["ports"] = ports
    own = adapters(facts)
    assert own is not None
    assert own.kind == "infiniband"
    assert own.rate_gbps == 400
    down = {p["device"] for p in ports if p["state"] != "ACTIVE"}
    assert down
    assert {p["device"] for p in own.fabric} == {p["device"] for p in ports if p["rate_gbps"] == 400} - down
    assert {p["device"] for p, reason in own.others if "DOWN" in reason} == down


def test_one_fast_storage_port_is_not_taken_for_the_fabric() -> None:
    facts = node()
    facts["rdma"]["ports"] = [*(port(f"mlx5_{n}", 200.0) for n in range(8)), port("mlx5_8", 400.0, "Ethernet")]
    assert "mlx5_8" not in advise({"a": facts}).environment["NCCL_IB_HCA"]


def test_a_port_of_a_card_with_several_is_named_with_its_number() -> None:
    facts = node()
    facts["rdma"]["ports"] = [port("mlx5_0"), {**port("mlx5_0", 25.0, "Ethernet"), "port": 2}]
    assert advise({"a": facts}).environment["NCCL_IB_HCA"] == "=mlx5_0:1"


def test_the_port_of_the_default_route_is_management() -> None:
    facts = node()
    facts["rdma"]["ports"] = [port("mlx5_0", link="Ethernet", net="eth0"), port("mlx5_1", link="Ethernet", net="eth1")]
    told = advise({"a": facts})
    assert told.environment["NCCL_IB_HCA"] == "=mlx5_1"
    assert "carries the default route (eth0)" in told.left_out["a"][0]


def default(dev: str, table: str = "main", metric: int = 0) -> Facts:
    return {"dst": "default", "dev": dev, "gateway": "10.9.0.1", "table": table, "metric": metric}


def test_a_default_route_of_a_rails_own_table_makes_no_management() -> None:
    """Policy routing: each rail has a table with a default route, so that answers leave by the port they came in by."""
    facts = roce(node())
    facts["names"]["routes"] = [default("eth0"), *(default(f"rail{n}", str(100 + n)) for n in range(4))]
    told = advise({"a": facts})
    assert told.environment["NCCL_IB_HCA"] == "=mlx5_0,mlx5_1,mlx5_2,mlx5_3"
    assert told.environment["NCCL_SOCKET_IFNAME"] == "=eth0"


def test_of_several_default_routes_the_one_that_is_used_counts() -> None:
    facts = roce(node())
    facts["address"] = "not known"
    facts["names"]["routes"] = [default("rail0", metric=200), default("eth0", metric=100), default("rail1", metric=300)]
    told = advise({"a": facts})
    assert told.environment["NCCL_IB_HCA"] == "=mlx5_0,mlx5_1,mlx5_2,mlx5_3"
    assert told.environment["NCCL_SOCKET_IFNAME"] == "=eth0"


def test_the_only_port_is_the_fabric_though_it_carries_the_default_route() -> None:
    facts = roce(node())
    facts["rdma"]["ports"] = facts["rdma"]["ports"][:1]
    facts["names"]["routes"] = [default("rail0")]
    assert advise({"a": facts}).environment["NCCL_IB_HCA"] == "=mlx5_0"
    down = port("mlx5_9", link="Ethernet", net="rail9", state="DOWN")
    facts["rdma"]["ports"].append(down)
    told = advise({"a": facts})
    assert told.environment["NCCL_IB_HCA"] == "=mlx5_0"
    assert told.left_out["a"] == ("mlx5_9:1: its port is DOWN",)


def test_the_interface_a_login_came_to_is_taken_where_the_inventory_has_an_outer_address() -> None:
    facts = node()
    facts["address"] = "gpu-1.example.com"
    facts["names"]["interfaces"]["ens9"] = ["10.7.0.1/24"]
    facts["names"]["reached_at"] = "10.7.0.1"
    assert advise({"a": facts}).environment["NCCL_SOCKET_IFNAME"] == "=ens9"
    facts["address"] = "10.0.0.1"
    assert advise({"a": facts}).environment["NCCL_SOCKET_IFNAME"] == "=eth0"


def test_efa_gets_no_adapter_list_and_nothing_of_the_old_advice() -> None:
    told = advise({f"node-{n}": efa(node(n)) for n in (1, 2)})
    assert told.environment == {"NCCL_SOCKET_IFNAME": "=eth0"}
    unset = {s.name for s in told.settings if s.value is None}
    assert unset >= {"NCCL_IB_HCA", "FI_PROVIDER", "FI_EFA_USE_DEVICE_RDMA", "RDMAV_FORK_SAFE"}


@pytest.mark.parametrize(
    ("libfabric", "plugin", "expected"),
    [
        ("1.16.1amzn3.0", "1.5.0", {"FI_PROVIDER": "efa", "FI_EFA_USE_DEVICE_RDMA": "1"}),
        ("1.17.1", "1.6.0", {"FI_EFA_USE_DEVICE_RDMA": "1"}),
        ("1.18.0", "1.7.1", {}),
        ("2.7.0amzn2.0", "1.22.0", {}),
        (None, None, {}),
    ],
)
def test_libfabric_of_old_needs_more(libfabric: str | None, plugin: str | None, expected: dict[str, str]) -> None:
    told = advise({"a": efa(node(), libfabric=libfabric, plugin=plugin)})
    assert {name: value for name, value in told.environment.items() if name.startswith("FI_")} == expected


@pytest.mark.parametrize(("nccl", "index"), [("2.20.5", "3"), ("2.21.5", None), ("2.27.7", None), (None, None)])
def test_the_gid_index_is_set_only_where_nccl_does_not_choose(nccl: str | None, index: str | None) -> None:
    facts = roce(node())
    facts["programs"]["nccl"] = nccl
    assert advise({"a": facts}).environment.get("NCCL_IB_GID_INDEX") == index


def test_an_unknown_nccl_is_told_what_an_older_one_would_need() -> None:
    facts = roce(node())
    facts["programs"]["nccl"] = None
    assert "for an older one, set it to 3" in why(facts, "NCCL_IB_GID_INDEX")


def test_no_index_is_invented_where_ports_differ() -> None:
    facts = roce(node())
    facts["programs"]["nccl"] = "2.18.5"
    facts["rdma"]["ports"][2]["gids"][1]["index"] = 5
    assert "NCCL_IB_GID_INDEX" not in advise({"a": facts}).environment
    assert "no index is" in why(facts, "NCCL_IB_GID_INDEX")


def test_rails_that_cannot_reach_each_other_are_not_crossed() -> None:
    assert advise({"a": roce(node())}).environment["NCCL_CROSS_NIC"] == "0"
    assert "NCCL_CROSS_NIC" not in advise({"a": roce(node(), isolated=False)}).environment
    unread = roce(node())
    unread["names"]["routes"] = None
    assert "not known" in why(unread, "NCCL_CROSS_NIC")


def test_infiniband_rails_are_told_by_their_subnet_prefix() -> None:
    facts = node()
    for number, one in enumerate(facts["rdma"]["ports"]):
        one["gids"] = [
            {"index": 0, "gid": f"fec0:0000:0000:000{number}:0000:0000:0000:0001", "type": None, "net": None}
        ]
    assert advise({"a": facts}).environment["NCCL_CROSS_NIC"] == "0"
    for one in facts["rdma"]["ports"]:
        one["gids"][0]["gid"] = "fe80:0000:0000:0000:0000:0000:0000:0001"
    assert "NCCL_CROSS_NIC" not in advise({"a": facts}).environment


@pytest.mark.parametrize(
    ("open_module", "kernel", "modules", "words"),
    [
        (True, "6.8.0-45-generic", [], "NCCL takes it by itself"),
        (True, "5.4.0-190-generic", ["nvidia_peermem"], "NCCL takes nvidia_peermem"),
        (False, "6.8.0", ["nvidia_peermem"], "NCCL takes nvidia_peermem"),
        (False, "6.8.0", [], "modprobe nvidia_peermem"),
        (None, "6.8.0", [], "could not be read"),
    ],
)
def test_the_way_to_gpu_memory_is_explained(
    open_module: bool | None, kernel: str, modules: list[str], words: str
) -> None:
    facts = node()
    facts["gpu"]["open_module"] = open_module
    facts["peer_memory"].update(kernel=kernel, modules=modules)
    assert words in why(facts, "NCCL_DMABUF_ENABLE")


def test_names_that_differ_become_one_list_where_it_fits_all() -> None:
    nodes = fleet(2)
    for number, one in enumerate(nodes["node-2"]["rdma"]["ports"]):
        one["device"] = f"rocep{number}"
    told = advise(nodes)
    assert told.environment["NCCL_IB_HCA"].startswith("=mlx5_0,")
    assert "rocep0" in told.environment["NCCL_IB_HCA"]
    assert [f.verdict for f in told.findings] == [Verdict.WARN]


def test_a_port_that_is_down_on_one_node_leaves_the_list_of_the_others() -> None:
    """NCCL takes no port that is not active, so that the name of one that is down does no harm."""
    nodes = fleet(3)
    nodes["node-2"]["rdma"]["ports"][0]["state"] = "DOWN"
    told = advise(nodes)
    assert told.environment["NCCL_IB_HCA"] == advise(fleet(1)).environment["NCCL_IB_HCA"]
    assert [f.verdict for f in told.findings] == [Verdict.WARN]


def test_names_that_clash_are_a_conflict_and_no_common_value() -> None:
    nodes = fleet(3)
    for one in nodes["node-2"]["rdma"]["ports"]:  # there mlx5_0 is a storage port
        one["device"] = f"mlx5_{(int(one['device'][5:]) + 1) % 12}"
    told = advise(nodes)
    assert "NCCL_IB_HCA" not in told.environment
    (conflict,) = told.findings
    assert conflict.verdict is Verdict.FAIL
    assert "node-2" in conflict.message
    assert {s.nodes for s in told.settings if s.name == "NCCL_IB_HCA"} == {("node-1", "node-3"), ("node-2",)}


def test_what_the_hosts_own_file_sets_otherwise_is_told() -> None:
    nodes = fleet(2)
    nodes["node-2"]["programs"]["conf"] = {"NCCL_IB_HCA": "mlx5"}
    (found,) = advise(nodes).findings
    assert (found.subject, found.verdict) == ("node-2", Verdict.WARN)
    assert "/etc/nccl.conf sets NCCL_IB_HCA=mlx5" in found.message


def test_every_setting_has_a_reason_and_a_source() -> None:
    for facts in (node(), efa(node()), roce(node())):
        for setting in advise({"a": facts}).settings:
            assert len(setting.why) > 20
            assert setting.source


def test_of_what_was_not_read_nothing_is_advised_and_that_is_told() -> None:
    facts = {
        **{subject: {"unread": {"*": "lost"}} for subject in ("gpu", "rdma", "peer_memory", "programs", "names")},
        "address": "10.0.0.1",
    }
    told = advise({"a": facts, "b": node(2)})
    assert told.environment == advise({"b": node(2)}).environment
    assert [(f.subject, f.verdict) for f in told.findings] == [("a", Verdict.UNKNOWN)] * 3
    assert all("unknown: lost" in f.message for f in told.findings)
