"""bootstrap gpu-node --drain kubernetes on a real control plane: budgets, DaemonSets, bare pods and cordons of others.

Hosts are values (tests/rig/living_fleet.py), and kubelets stand-ins; cordon, eviction and controllers are real.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from gpuctl.cli.gpu_node.bootstrap import bootstrap
from tests.rig.host import wait_until
from tests.rig.kube.kubelet import deployment, pod
from tests.rig.kube.plane import Plane, for_tests
from tests.rig.living_fleet import NEW, FleetHost, LivingFleet
from tests.rig.needs import need

Roll = Callable[..., dict[str, Any]]
CORDONED, FREE = "gpu-0", "gpu-1"
LABELS = {"app": "web"}


@pytest.fixture(scope="module")
def cluster() -> Iterator[Plane]:
    for started in for_tests():
        need("" if started.has_controllers else "real controllers act upon Deployments and DaemonSets")
        agent = deployment("agent")
        del agent["spec"]["replicas"]
        budget = {"selector": {"matchLabels": LABELS}, "minAvailable": 2}
        version = "policy/v1" if started.serves("policy/v1", "poddisruptionbudgets") else "policy/v1beta1"
        started.kubectl("cordon", FREE)
        started.apply(deployment("web", 2), {**agent, "kind": "DaemonSet"})
        started.apply(
            {
                "apiVersion": version,
                "kind": "PodDisruptionBudget",
                "metadata": {"name": "web"},
                "spec": budget,
            }
        )
        started.kubectl("rollout", "status", "deployment/web", "--timeout=60s")
        started.kubectl("rollout", "status", "daemonset/agent", "--timeout=60s")
        started.kubectl("uncordon", FREE)
        yield started


@pytest.fixture
def roll(cluster: Plane, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Roll:
    config = tmp_path / "config"
    config.write_text(json.dumps(cluster.context("dev-eu")))
    monkeypatch.setenv("KUBECONFIG", str(config))
    monkeypatch.setenv("GPUCTL_STATE_DIR", str(tmp_path / "state"))

    def roll(fleet: LivingFleet, *words: str) -> dict[str, Any]:
        fleet.connect(monkeypatch)
        monkeypatch.setattr("gpuctl.workflows.nodes_empty.POLL_S", 0.2)
        drain = ("--drain", "kubernetes", "--context", "dev-eu", "--drain-limit", "30s")
        result = CliRunner().invoke(bootstrap, ["-i", "prod", "--yes", "-o", "json", *drain, "--reboot", *words])
        assert result.stdout, result.exception
        return {row["host"]: row for row in json.loads(result.stdout)["hosts"]}

    return roll


def node(cluster: Plane, name: str) -> dict[str, Any]:
    plain: dict[str, Any] = json.loads(cluster.kubectl("get", "node", name, "-o", "json"))
    return plain


def pods(cluster: Plane, name: str, app: str) -> dict[str, str]:
    """Name -> uid of pods of an application on a node."""
    words = ("get", "pods", "-l", f"app={app}", f"--field-selector=spec.nodeName={name}", "-o", "json")
    return {row["metadata"]["name"]: row["metadata"]["uid"] for row in json.loads(cluster.kubectl(*words))["items"]}


def let_one_pod_go(cluster: Plane) -> None:
    """Have one pod more than the budget needs."""
    cluster.kubectl("scale", "deployment/web", "--replicas=3")
    cluster.kubectl("rollout", "status", "deployment/web", "--timeout=60s")


def test_a_budget_is_respected_and_the_next_run_goes_on(cluster: Plane, roll: Roll) -> None:
    before, agent = pods(cluster, CORDONED, "web"), pods(cluster, CORDONED, "agent")
    assert (len(before), len(agent)) == (2, 1)
    fleet = LivingFleet(**{CORDONED: FleetHost(), FREE: FleetHost(NEW, NEW)})
    row = roll(fleet, "--drain-limit", "1s")[CORDONED]
    assert (row["status"], row["step"], row["drain"]) == ("failed", "empty", "drained")
    assert "The disruption budget web needs 2 healthy pods and has 2 currently" in row["error"]["wrong"]
    assert fleet.acts[CORDONED] == []
    assert pods(cluster, CORDONED, "web") == before
    live = node(cluster, CORDONED)
    assert live["spec"]["unschedulable"] is True
    [condition] = [one for one in live["status"]["conditions"] if one["type"] == "GpuctlDrained"]
    assert (condition["reason"], condition["message"]) == ("StackRollout", f"bootstrap gpu-node: driver {NEW}")

    let_one_pod_go(cluster)
    rows = roll(fleet)
    assert {name: row["status"] for name, row in rows.items()} == {CORDONED: "done", FREE: "up to date"}
    assert rows[CORDONED]["drain"] == "undrained"
    assert fleet.acts == {CORDONED: ["install", "reboot"], FREE: []}
    assert not set(pods(cluster, CORDONED, "web").values()) & set(before.values())
    assert pods(cluster, CORDONED, "agent") == agent
    after = node(cluster, CORDONED)
    assert "unschedulable" not in after["spec"]
    assert "gpuctl/drain" not in (after["metadata"].get("annotations") or {})


def test_a_pod_without_a_controller_keeps_its_node_until_somebody_consents(cluster: Plane, roll: Roll) -> None:
    bare = pod("bare")
    bare["spec"]["nodeName"] = FREE
    cluster.apply(bare)
    cluster.kubectl("wait", "--for=condition=Ready", "pod/bare", "--timeout=60s")
    fleet = LivingFleet(**{FREE: FleetHost()})
    row = roll(fleet)[FREE]
    assert (row["status"], row["step"], row["drain"]) == ("failed", "drain", None)
    assert "pod default/bare has no controller" in row["error"]["wrong"]
    assert "unschedulable" not in node(cluster, FREE)["spec"]
    assert pods(cluster, FREE, "bare")
    assert roll(fleet, "--bare-pods")[FREE]["status"] == "done"
    wait_until(lambda: not pods(cluster, FREE, "bare"), 10, "the pod is not evicted")


def test_a_cordon_of_somebody_else_stays(cluster: Plane, roll: Roll) -> None:
    let_one_pod_go(cluster)
    stale = json.dumps({"by": "alice", "at": "2026-11-27T10:00:00Z", "reason": "bootstrap gpu-node: x", "run": "1"})
    cluster.kubectl("annotate", "node", CORDONED, f"gpuctl/drain={stale}")  # it outlived a `kubectl uncordon`
    cluster.kubectl("cordon", CORDONED)
    try:
        fleet = LivingFleet(**{CORDONED: FleetHost(), "gpu-9": FleetHost()})
        rows = roll(fleet)
        assert (rows[CORDONED]["status"], rows[CORDONED]["drain"]) == ("done", "others")
        assert fleet.acts[CORDONED] == ["install", "reboot"]
        live = node(cluster, CORDONED)
        assert live["spec"]["unschedulable"] is True
        assert (rows["gpu-9"]["status"], fleet.acts["gpu-9"]) == ("refused", [])
        assert "the cluster has no node" in rows["gpu-9"]["error"]["wrong"]
    finally:
        cluster.kubectl("uncordon", CORDONED)
        cluster.kubectl("annotate", "node", CORDONED, "gpuctl/drain-")


def test_a_node_that_shows_another_boot_than_the_host_is_refused(cluster: Plane, roll: Roll) -> None:
    fleet = LivingFleet(**{FREE: FleetHost(boots=7)})
    row = roll(fleet)[FREE]
    assert (row["status"], fleet.acts[FREE]) == ("refused", [])
    assert "is it another cluster" in row["error"]["wrong"]
    assert "unschedulable" not in node(cluster, FREE)["spec"]
