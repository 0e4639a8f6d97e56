"""Drains in Kubernetes: which node is the host, whose cordon it is, and when a node is empty."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from gpuctl.core.errors import GpuctlError, Unreachable
from gpuctl.domain import node_drain
from gpuctl.domain.kube_errors import NotFound, NotLoggedIn
from gpuctl.hosts.model import Target
from gpuctl.workflows import nodes_empty
from gpuctl.workflows.nodes_drain import Drain, Nodes
from gpuctl.workflows.nodes_empty import Patience
from tests.rig.standin_nodes import StandinCluster

Connect = Callable[..., Nodes]
TEXTS = {"n1": node_drain.ROLLOUT}


@pytest.fixture
def connect(monkeypatch: pytest.MonkeyPatch) -> Connect:
    monkeypatch.setattr(nodes_empty, "POLL_S", 0)

    def connect(cluster: StandinCluster, *hosts: Target, ours: str = node_drain.ROLLOUT) -> Nodes:
        monkeypatch.setattr("gpuctl.edges.kube.cluster.connect", lambda _: cluster)
        return Nodes(hosts or (Target("n1"),), "prod-eu", 1, ours=ours)

    return connect


def drained(nodes: Nodes) -> list[Drain]:
    return nodes.change(nodes.read(TEXTS, undo=False), "1", undo=False)


def state(nodes: Nodes, *, undo: bool = True) -> str:
    [one] = nodes.read(TEXTS, undo=undo)
    return one.state


def test_a_cordon_of_ours_is_taken_back(connect: Connect) -> None:
    cluster = StandinCluster({"n1": "boot-1"})
    nodes = connect(cluster)
    assert [one.state for one in drained(nodes)] == ["done"]
    assert (state(nodes), state(nodes, undo=False)) == ("due", "done")
    nodes.change(nodes.read(TEXTS, undo=True), "1", undo=True)
    assert "unschedulable" not in cluster.nodes["n1"]["spec"]


def test_a_cordon_that_others_set_after_ours_was_taken_back_is_theirs(connect: Connect) -> None:
    cluster = StandinCluster({"n1": "boot-1"})
    nodes = connect(cluster)
    drained(nodes)
    cluster.patch("n1", {"spec": {"unschedulable": None}}, "kubectl-uncordon")
    assert (state(nodes), state(nodes, undo=False)) == ("done", "due")
    cluster.patch("n1", {"spec": {"unschedulable": True}}, "kubectl-cordon")
    assert (state(nodes), state(nodes, undo=False)) == ("others", "others")


def test_an_audit_replaces_the_reason_of_a_roll_out(connect: Connect) -> None:
    cluster = StandinCluster({"n1": "boot-1"})
    rollout, audit = connect(cluster), connect(cluster, ours="")
    drained(rollout)
    [due] = audit.read({"n1": "xid 79"}, undo=False)
    assert due.state == "due"
    audit.change([due], "2", undo=False)
    assert (state(rollout), state(rollout, undo=False)) == ("others", "others")
    assert state(audit) == "due"


@pytest.mark.parametrize(
    ("shown", "told", "state", "text"),
    [
        ("boot-1", "boot-1", "due", ""),
        ("boot-7", "boot-1", "unknown", "has the boot boot-7, the host boot-1: is it another cluster"),
        ("", "boot-1", "unknown", "shows no boot"),
        ("boot-1", "", "unknown", "the host's boot_id cannot be read"),
    ],
)
def test_a_node_is_the_host_only_if_both_tell_the_same_boot(
    shown: str, told: str, state: str, text: str, connect: Connect
) -> None:
    nodes = connect(StandinCluster({"n1": shown}))
    [one] = nodes.prove(nodes.read(TEXTS, undo=False), {"n1": told} if told else {})
    assert one.state == state
    assert text in one.text


def test_once_proven_a_node_is_known_by_its_uid(connect: Connect) -> None:
    cluster = StandinCluster({"n1": "boot-1"})
    nodes = connect(cluster)
    nodes.prove(nodes.read(TEXTS, undo=False), {"n1": "boot-1"})
    cluster.nodes["n1"]["status"]["nodeInfo"]["bootID"] = "boot-2"
    assert state(nodes, undo=False) == "due"
    cluster.nodes["n1"]["metadata"]["uid"] = "other"
    assert state(nodes, undo=False) == "unknown"


def test_two_hosts_that_are_one_node_are_refused(connect: Connect) -> None:
    nodes = connect(StandinCluster({"n1": "boot-1"}), Target("n1"), Target("login", address="ip-n1"))
    rows = nodes.read(dict.fromkeys(("n1", "login"), "x"), undo=False)
    assert [one.state for one in rows] == ["unknown", "unknown"]
    assert rows[0].text == "n1 and login are the same node of the cluster"


def empty(nodes: Nodes, limit_s: float = 10.0, **more: Any) -> str:
    ends = nodes_empty.empty(nodes, nodes.read(TEXTS, undo=False), Patience(limit_s, **more), lambda *_: None)
    return ends["n1"]


def busy(cluster: StandinCluster, connect: Connect) -> Nodes:
    cluster.run("web-1", "n1")
    nodes = connect(cluster)
    drained(nodes)
    return nodes


def test_pods_are_evicted(connect: Connect) -> None:
    cluster = StandinCluster({"n1": "boot-1"})
    assert empty(busy(cluster, connect)) == ""
    assert cluster.evicted == ["web-1"]


def test_a_node_that_is_uncordoned_meanwhile_is_not_empty(connect: Connect) -> None:
    cluster = StandinCluster({"n1": "boot-1"})
    nodes = busy(cluster, connect)
    cluster.patch("n1", {"spec": {"unschedulable": None}}, "kubectl-uncordon")
    assert empty(nodes) == "somebody has taken back its drain meanwhile"
    assert cluster.evicted == []
    assert nodes_empty.occupied(nodes, ["n1"]) == {"n1": "somebody has taken back its drain meanwhile"}


def test_a_node_that_is_gone_is_not_empty(connect: Connect) -> None:
    cluster = StandinCluster({"n1": "boot-1"})
    nodes = busy(cluster, connect)
    cluster.nodes["n2"] = cluster.nodes.pop("n1")
    cluster.nodes["n2"]["metadata"]["name"] = "n2"
    cluster.nodes["n2"]["status"]["addresses"] = []
    assert "its drain is unknown: the cluster has no node" in empty(nodes)
    assert "its drain is unknown" in nodes_empty.occupied(nodes, ["n1"])["n1"]


@pytest.mark.parametrize(
    "error", [NotFound("evict Pod web-1", "not found"), Unreachable("evict Pod web-1", "too many requests")]
)
def test_a_node_is_empty_only_by_a_list_without_pods(error: GpuctlError, connect: Connect) -> None:
    cluster = StandinCluster({"n1": "boot-1"})
    cluster.evict_errors = [error]
    assert empty(busy(cluster, connect)) == ""
    assert cluster.evicted == ["web-1"]
    for _ in range(2):
        cluster.run("web-2", "n1")
        cluster.evict_errors = [error]
        assert "pod team-a/web-2" in empty(connect(cluster), limit_s=-1)
        cluster.pods.clear()


def test_an_error_that_no_time_heals_is_the_nodes(connect: Connect) -> None:
    cluster = StandinCluster({"n1": "boot-1"})
    cluster.evict_errors = [NotLoggedIn("evict Pod web-1", "the cluster does not know who you are")]
    assert empty(busy(cluster, connect)) == "evict Pod web-1: the cluster does not know who you are"


def test_a_pod_that_comes_back_to_the_node_fails_it(connect: Connect) -> None:
    cluster = StandinCluster({"n1": "boot-1"})
    cluster.comes_back = True
    assert "it tolerates the cordon" in empty(busy(cluster, connect))
    assert len(cluster.evicted) <= 3


def test_pods_that_run_again_keep_a_node_from_its_reboot(connect: Connect) -> None:
    cluster = StandinCluster({"n1": "boot-1"})
    nodes = busy(cluster, connect)
    assert nodes_empty.occupied(nodes, ["n1"]) == {"n1": "pod team-a/web-1 runs there"}
    cluster.pods.clear()
    assert nodes_empty.occupied(nodes, ["n1"]) == {"n1": ""}


def test_an_error_of_one_node_does_not_keep_the_others_from_their_change(connect: Connect) -> None:
    cluster = StandinCluster({"n1": "boot-1", "n2": "boot-2"})
    cluster.broken["n1"] = Unreachable("drain the node n1", "no answer")
    nodes = connect(cluster, Target("n1"), Target("n2"))
    rows = nodes.change(nodes.read(dict.fromkeys(("n1", "n2"), "x"), undo=False), "1", undo=False)
    assert [(one.node, one.state) for one in rows] == [("n1", "failed"), ("n2", "done")]
    assert rows[0].text == "drain the node n1: no answer"
