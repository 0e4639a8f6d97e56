"""gpuctl nodes --context on a real control plane: real controllers own the pods; kubelets are stand-ins."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from gpuctl.cli.nodes import command
from gpuctl.cli.nodes.drain import undrain
from gpuctl.core import run_history
from gpuctl.core.errors import InvalidInput
from gpuctl.nodes.acts.model import Consent
from gpuctl.workflows import nodes_drain, nodes_kill
from tests.rig.kube.kubelet import deployment, pod
from tests.rig.kube.plane import Plane, for_tests


def with_gpus(made: dict[str, Any], count: int) -> dict[str, Any]:
    """The same object, whose first container asks for GPUs."""
    spec = made["spec"].get("template", made)["spec"]
    spec["containers"][0]["resources"] = {"limits": {"nvidia.com/gpu": str(count)}}
    return made


@pytest.fixture(scope="module")
def cluster() -> Iterator[Plane]:
    for started in for_tests():
        started.apply(with_gpus(deployment("web", 2), 4), with_gpus(pod("bare"), 3), pod("without"))
        job = {"spec": {"containers": [{"name": "main", "image": "example/main:1"}], "restartPolicy": "Never"}}
        night = {"schedule": "0 0 1 1 *", "jobTemplate": {"spec": {"template": with_gpus(job, 1)}}}
        old = "batch/v1beta1" in started.kubectl("api-versions").split()
        started.apply(
            {
                "apiVersion": "batch/v1beta1" if old else "batch/v1",
                "kind": "CronJob",
                "metadata": {"name": "night"},
                "spec": night,
            }
        )
        started.kubectl("create", "job", "night-1", "--from=cronjob/night")
        started.pods_ready(5)
        yield started


@pytest.fixture
def run(cluster: Plane, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    config = tmp_path / "config"
    config.write_text(json.dumps(cluster.context("dev-eu")))
    monkeypatch.setenv("KUBECONFIG", str(config))

    def run(*words: str) -> Result:
        return CliRunner().invoke(command.nodes, list(words))

    return run


def test_pods_with_gpus_are_shown_with_their_owners(run: Any) -> None:
    result = run("--context", "dev-eu", "-o", "json")
    assert result.exit_code == 1, result.output  # what computes is UNKNOWN
    report = json.loads(result.stdout)
    users = {user["who"].rpartition("-")[0] or user["who"]: user for node in report["nodes"] for user in node["users"]}
    counts = {node["node"]: node["counts"] for node in report["nodes"]}
    assert sum(one["reserved"] for one in counts.values()) == 12
    assert sum(one["unknown"] for one in counts.values()) == 4
    assert {one["idle"] for one in counts.values()} == {0}
    whats = sorted((user["what"] or "", user["gpu_count"]) for node in report["nodes"] for user in node["users"])
    assert whats == [("", 3), ("CronJob night", 1), ("Deployment web", 4), ("Deployment web", 4)]
    assert all(user["since"] for user in users.values())


def test_the_table_has_a_line_for_each_pod_and_says_what_it_cannot_see(run: Any) -> None:
    result = run("--context", "dev-eu", "--sort", "idle")
    assert "default/bare" in result.stdout
    assert "3 GPUs" in result.stdout
    assert "12 reserved; 4 unknown" in result.stdout
    assert "the API shows which pods have GPUs, but no process" in result.stdout


def test_a_context_that_no_kubeconfig_has_is_refused(run: Any) -> None:
    result = run("--context", "none")
    assert isinstance(result.exception, InvalidInput)


def test_without_the_right_to_make_pods_a_probe_says_so_and_makes_none(
    cluster: Plane, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rules = [{"apiGroups": [""], "resources": ["nodes", "pods"], "verbs": ["get", "list"]}]
    subject = {"kind": "ServiceAccount", "name": "default", "namespace": "default"}
    role = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "reads"}
    cluster.apply(
        {
            "apiVersion": "rbac.authorization.k8s.io/v1",
            "kind": "ClusterRole",
            "metadata": {"name": "reads"},
            "rules": rules,
        },
        {
            "apiVersion": "rbac.authorization.k8s.io/v1",
            "kind": "ClusterRoleBinding",
            "metadata": {"name": "reads"},
            "roleRef": role,
            "subjects": [subject],
        },
    )
    config = cluster.as_account(tmp_path)
    config.write_text(json.dumps({**cluster.context("dev-eu"), "users": json.loads(config.read_text())["users"]}))
    monkeypatch.setenv("KUBECONFIG", str(config))
    before = cluster.kubectl("get", "pods", "-A", "-o", "name")
    result = CliRunner().invoke(command.nodes, ["--context", "dev-eu", "--probe"])
    assert result.exit_code == 1, result.output
    assert (
        "you have no permission to create pods, delete pods, exec into pods in the namespace default" in result.output
    )
    assert "12 reserved; 4 unknown" in result.output
    assert cluster.kubectl("get", "pods", "-A", "-o", "name") == before


FORCE = Consent(force=True, reason="it blocks the release", bare_pods=True)


@pytest.fixture
def acting(run: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """The context is set, and records go to a folder of the test."""
    monkeypatch.setenv("GPUCTL_STATE_DIR", str(tmp_path / "state"))
    return run


def object_of(cluster: Plane, *what: str) -> dict[str, Any]:
    plain: dict[str, Any] = json.loads(cluster.kubectl("get", *what, "-o", "json"))
    return plain


def test_a_pod_is_deleted_through_its_owner_and_one_that_was_replaced_is_not(cluster: Plane, acting: Any) -> None:
    cluster.apply(pod("victim"))
    cluster.kubectl("wait", "--for=condition=Ready", "pod/victim", "--timeout=60s")
    shown = object_of(cluster, "pod", "victim")
    node = shown["spec"]["nodeName"]
    refused = nodes_kill.read_api("dev-eu", node, "victim", Consent(), 30)
    assert any("no controller" in reason for reason in refused.plan.refusals)
    assert any("is not yours" in reason for reason in refused.plan.refusals)
    with pytest.raises(InvalidInput):
        nodes_kill.carry_out(refused, ["nodes", "kill"], Consent(), 1)
    kill = nodes_kill.read_api("dev-eu", node, "pod:default/victim", FORCE, 30)
    cluster.kubectl("delete", "pod", "victim", "--grace-period=0", "--force")
    cluster.apply(pod("victim"))
    successor = object_of(cluster, "pod", "victim")["metadata"]["uid"]
    [outcome], name = nodes_kill.carry_out(kill, ["nodes", "kill"], FORCE, 1)
    assert outcome.state == "changed", outcome
    assert object_of(cluster, "pod", "victim")["metadata"]["uid"] == successor
    assert "deletionTimestamp" not in object_of(cluster, "pod", "victim")["metadata"]
    assert run_history.load(name).hosts[node]["status"] == "changed"
    cluster.kubectl("wait", "--for=condition=Ready", "pod/victim", "--timeout=60s")
    node = object_of(cluster, "pod", "victim")["spec"]["nodeName"]
    again = nodes_kill.read_api("dev-eu", node, "victim", FORCE, 30)
    [outcome], name = nodes_kill.carry_out(again, ["nodes", "kill"], FORCE, 1)
    assert outcome.state == "ended", outcome
    assert cluster.kubectl("get", "pod", "victim", "--ignore-not-found").strip() == ""
    assert run_history.load(name).hosts[node]["shown"][0]["pod_uid"] == successor


def test_a_node_is_drained_once_and_taken_back_if_it_was_ours(cluster: Plane, acting: Any) -> None:
    [name, *_] = [item["metadata"]["name"] for item in object_of(cluster, "nodes")["items"]]
    before = object_of(cluster, "node", name)["spec"]
    nodes = nodes_drain.Nodes([], "dev-eu", 30)
    [due] = nodes.read({name: "xid GPU 0: fallen off the bus"}, undo=False)
    [done], run = nodes_drain.carry_out(nodes, [due], ["audit", "--act", "drain"], undo=False)
    assert (done.state, done.text) == ("done", "")
    live = object_of(cluster, "node", name)
    assert live["spec"]["unschedulable"] is True
    [condition] = [one for one in live["status"]["conditions"] if one["type"] == "GpuctlDrained"]
    assert (condition["status"], condition["message"]) == ("True", "xid GPU 0: fallen off the bus")
    assert json.loads(live["metadata"]["annotations"]["gpuctl/drain"])["run"] == run
    assert [one.state for one in nodes.read({name: "x"}, undo=False)] == ["done"]
    [back] = nodes.read({name: "taken back"}, undo=True)
    [done], _ = nodes_drain.carry_out(nodes, [back], ["nodes", "undrain"], undo=True)
    assert (done.state, done.text) == ("done", "")
    after = object_of(cluster, "node", name)
    assert after["spec"] == before
    assert "gpuctl/drain" not in (after["metadata"].get("annotations") or {})
    assert all(one["type"] != "GpuctlDrained" for one in after["status"]["conditions"])


def test_a_cordon_of_others_stays(cluster: Plane, acting: Any) -> None:
    [*_, name] = [item["metadata"]["name"] for item in object_of(cluster, "nodes")["items"]]
    nodes = nodes_drain.Nodes([], "dev-eu", 30)
    [due] = nodes.read({name: "x"}, undo=False)
    cluster.kubectl("cordon", name)
    try:
        [late], _ = nodes_drain.carry_out(nodes, [due], ["audit", "--act", "drain"], undo=False)
        assert late.state == "failed"
        assert "changed since it was shown" in late.text
        for undo in (False, True):
            assert [one.state for one in nodes.read({name: "x"}, undo=undo)] == ["others"]
        refused = CliRunner().invoke(undrain, [name, "--context", "dev-eu", "--yes"])
        assert isinstance(refused.exception, InvalidInput)
    finally:
        cluster.kubectl("uncordon", name)
