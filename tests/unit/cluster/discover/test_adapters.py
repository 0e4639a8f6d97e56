"""Drafting a cluster file: networks, and what pods may do."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from gpuctl.cluster.deploy.cluster_snapshot import Maybe
from gpuctl.cluster.discover.facts import Facts
from tests.rig.cluster.discovered import attachment, document, drafted, facts, left, node, nodes, openshift


def with_network(*networks: Any, **has: str) -> Facts:
    given = {name.replace("__", "/"): count for name, count in has.items()}
    return facts(**nodes(node("a", has=given)), multus=True, attachments=Maybe(list(networks)))


def test_the_plugin_of_attachments_tells_the_fabric() -> None:
    read = document(with_network(attachment("ib", "rdma/ib0", "ib-sriov"), rdma__ib0="8"))["network"]["rdma"]
    assert read == {"enabled": True, "fabric": "infiniband", "resources": {"rdma/ib0": 1}, "attachments": ["ib"]}


def test_a_list_of_plugins_goes_by_its_first() -> None:
    listed = attachment("n", "rdma/a")
    listed["spec"]["config"] = '{"plugins": [{"type": "sriov"}, {"type": "rdma"}]}'
    assert document(with_network(listed, rdma__a="1"))["network"]["rdma"]["fabric"] == "roce"


@pytest.mark.parametrize("config", ["", "{", "[]", '{"plugins": {}}', '{"plugins": [1]}', '"x"'])
def test_a_configuration_that_cannot_be_read_tells_no_fabric(config: str) -> None:
    broken = attachment("n", "rdma/a")
    broken["spec"]["config"] = config
    found = with_network(broken, rdma__a="1")
    assert left(found) == ["network.rdma.fabric"]
    assert "n (plugin UNKNOWN, rdma/a)" in drafted(found).text


def test_several_networks_of_one_resource_are_left_to_choose() -> None:
    found = with_network(attachment("n1", "rdma/a"), attachment("n2", "rdma/a"), rdma__a="1")
    assert "attachments" not in document(found)["network"]["rdma"]
    assert "several networks use one resource: n1 (plugin sriov, rdma/a), n2" in " ".join(
        drafted(found).text.replace("# ", "").split()
    )


def test_gpus_in_all_their_forms_are_no_adapters() -> None:
    has = {"nvidia__gpu": "1"} and {
        "nvidia.com/gpu.shared": "4",
        "nvidia.com/GH100_H100_SXM5": "8",
        "example.com/x": "1",
    }
    found = facts(**nodes(node("a", has=has)))
    assert document(found)["network"]["rdma"] == {"enabled": False}


def test_adapters_that_not_every_node_has_are_not_asked_for() -> None:
    found = facts(**nodes(node("a", has={"rdma/a": "1"}), node("b")))
    assert document(found)["network"]["rdma"] == {"enabled": False}


def test_attachments_that_may_not_be_read_are_reported() -> None:
    found = replace(with_network(rdma__a="1"), attachments=Maybe([], "no right"))
    assert "Network attachments of team cannot be read: no right." in drafted(found).text


def test_security_constraints_are_reported_and_none_is_taken() -> None:
    found = openshift(usable=("privileged", "restricted-v2"), constraints_why="", may_make=True)
    text = drafted(found).text
    assert "security" not in document(found)
    assert "that you may use: privileged, restricted-v2." in text
    assert "You may create constraints" in text
    assert "You may use privileged, which is more than RDMA needs." in text
