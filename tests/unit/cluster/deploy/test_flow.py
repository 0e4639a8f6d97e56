"""What a plan may do, and what its parts are read from."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from typing import Any, cast

import pytest

from gpuctl.cluster.deploy import deployed_state, flow, prune, via_ansible
from gpuctl.cluster.deploy.model import Change, Field, ObjectState, Plan, digest
from gpuctl.cluster.deploy.module_main import difference
from gpuctl.cluster.environment import Environment, Object
from gpuctl.cluster.manifests import everything
from gpuctl.core.errors import GpuctlError, InvalidInput
from gpuctl.domain.findings import Finding, Verdict
from gpuctl.domain.quantity import amount, at_least
from gpuctl.edges.kube.cluster import Cluster, Kind
from tests.rig.cluster.files import ROCE
from tests.rig.cluster.snapshots import env_of

REPLICAS = Change("StatefulSet", "lab", "change", (Field("spec.replicas", 2, 4),))
HOSTS = Change("ConfigMap", "lab-hosts", "change", (Field("data.hostfile", "a", "b"),))


def plan(folder: Path, *changes: Change, findings: tuple[Finding, ...] = (), deployed: bool = True) -> Plan:
    env = env_of(folder)
    standing = [ObjectState(each, each if deployed else None) for each in everything(env)]
    return Plan(env, findings, changes, standing)


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        ("https://api.example.org:6443", "https://api.example.org:6443/", True),
        ("https://api.example.org", "https://api.example.org:443", True),
        ("https://api.example.org:6443", "https://api.example.org", False),
        ("https://API.example.org", "https://api.example.org", True),
        ("https://api.example.org:6443", "https://api.example.com:6443", False),
    ],
)
def test_a_server_is_the_same_by_host_and_port(one: str, other: str, same: bool) -> None:
    assert flow.same_server(one, other) is same


def test_a_plan_that_failed_is_refused_with_the_first_reason_and_the_count(tmp_path: Path) -> None:
    bad = tuple(Finding("gpus", "nvidia.com/gpu", Verdict.FAIL, f"wrong {n}", hint="try this") for n in range(3))
    unknown = Finding("image", "x", Verdict.UNKNOWN, "who knows")
    with pytest.raises(GpuctlError, match=r"gpus: nvidia\.com/gpu: wrong 0; and 2 more of the preflight") as error:
        flow.refuse(plan(tmp_path, findings=(unknown, *bad)))
    assert error.value.hint == "try this"
    flow.refuse(plan(tmp_path, REPLICAS, findings=(unknown,)))


def test_fields_of_others_are_set_back_only_with_consent(tmp_path: Path) -> None:
    patched = Change("StatefulSet", "lab", "take-over", REPLICAS.fields, "spec.replicas was set by kubectl-patch")
    with pytest.raises(GpuctlError, match=r"StatefulSet lab: spec\.replicas was set by kubectl-patch") as error:
        flow.refuse(plan(tmp_path, patched))
    assert "--take-over" in error.value.hint
    flow.refuse(replace(flow.scaling(plan(tmp_path, patched)), take_over=True))


def test_a_scale_changes_nothing_but_how_many(tmp_path: Path) -> None:
    by = Change("Service", "lab", "change", (Field(flow.DEPLOYED_BY, "a", "b"),))
    same = Change("Secret", "lab", "same")
    flow.scaling(plan(tmp_path, REPLICAS, HOSTS, by, same))
    image = Change("StatefulSet", "lab", "change", (*REPLICAS.fields, Field("spec.template.x", 1, 2)))
    for other in (image, Change("Route", "lab", "create"), Change("Role", "lab", "remove")):
        with pytest.raises(InvalidInput, match=f"more would change than the number of pods: {other.subject}"):
            flow.scaling(plan(tmp_path, REPLICAS, other))
    with pytest.raises(InvalidInput, match="it is not deployed"):
        flow.scaling(plan(tmp_path, REPLICAS, deployed=False))


def test_the_mode_is_read_from_what_pods_start_with(tmp_path: Path) -> None:
    for mode in ("rdma", "tcp"):
        env = env_of(tmp_path, {"network": {"rdma": ROCE}}, mode=mode)
        (start,) = (each for each in everything(env) if each["metadata"]["name"] == "lab-start")
        assert deployed_state.mode_of(start) == mode
    assert deployed_state.mode_of({"data": {}}) is None


class Standing:
    """A cluster with this StatefulSet, if any, and these pods."""

    def __init__(self, stateful_set: Object | None, pods: list[Object]) -> None:
        self.stateful_set, self.pods = stateful_set, pods

    def serves(self, api_version: str, kind: str) -> bool:
        return kind in ("StatefulSet", "Pod")

    def kind(self, api_version: str, kind: str) -> Kind:
        return Kind(api_version, kind, f"{kind.lower()}s", namespaced=True)

    def get(self, kind: Kind, name: str) -> Object | None:
        return self.stateful_set if kind.kind == "StatefulSet" else None

    def find(self, kind: Kind, labels: Mapping[str, str]) -> list[Object]:
        found = self.pods if kind.kind == "Pod" else []
        return [pod for pod in found if labels.items() <= pod["metadata"]["labels"].items()]


def orphan(env: Environment, name: str, **meta: Any) -> Object:
    labels = {**env.labels, **env.selector}
    return {"kind": "Pod", "metadata": {"name": name, "uid": name, "labels": labels, **meta}}


def test_pods_whose_statefulset_is_gone_are_counted_and_never_removed(tmp_path: Path) -> None:
    """A larger volume replaces it without its pods: the replacement may be interrupted."""
    env = env_of(tmp_path, nodes=5)
    left = [orphan(env, f"lab-{rank}") for rank in range(5)]
    left += [orphan(env, "lab-8", deletionTimestamp="2026-01-01T00:00:00Z"), orphan(env, "lab-debug")]
    found = cast(Cluster, Standing(None, left))
    assert deployed_state.nodes(found, env) == 5
    for nodes, more in ((5, []), (3, ["lab-3", "lab-4"])):
        removed, _ = prune.unwanted(found, replace(env, nodes=nodes), everything(env))
        assert [obj["metadata"]["name"] for obj in removed] == [*more, "lab-8", "lab-debug"]
    assert deployed_state.nodes(cast(Cluster, Standing(None, [])), env) is None
    controlled = orphan(env, "lab-0", ownerReferences=[{"controller": True}])
    assert deployed_state.nodes(cast(Cluster, Standing(None, [controlled])), env) is None


@pytest.mark.parametrize(("replicas", "planned"), [(0, 2), (1, 1), (4, 4)])
def test_an_environment_that_was_scaled_to_no_pod_is_planned_with_the_files_default(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, replicas: int, planned: int
) -> None:
    env = env_of(tmp_path)
    live = {"kind": "StatefulSet", "metadata": {"name": "lab", "labels": env.labels}, "spec": {"replicas": replicas}}
    env = flow._environment(cast(Cluster, Standing(live, [])), env.cluster, flow.PlanRequest())
    assert (env.nodes, env.cluster.gpus.default_nodes) == (planned, 2)


def test_only_what_we_made_ourselves_is_ours_to_remove(tmp_path: Path) -> None:
    env = env_of(tmp_path)
    pods, constraints = Kind("v1", "Pod", "pods", True), Kind("x/v1", "SecurityContextConstraints", "sccs", False)
    mine = {"metadata": {"name": "lab-0", "labels": env.labels}}
    assert prune.belongs_to(env, pods, mine)
    assert not prune.belongs_to(
        env, pods, {"metadata": {**mine["metadata"], "ownerReferences": [{"controller": True}]}}
    )
    others = {**env.labels, "gpuctl/cluster": "other"}
    assert not prune.belongs_to(env, pods, {"metadata": {"name": "lab-0", "labels": others}})
    for name, own in (("gpuctl-team-lab", True), ("gpuctl-elsewhere-lab", False)):
        assert prune.belongs_to(env, constraints, {"metadata": {"name": name, "labels": env.labels}}) is own


@pytest.mark.parametrize(
    ("text", "number"),
    [("500m", "0.5"), ("128Gi", str(128 * 2**30)), ("1e3", "1000"), ("8", "8"), ("2k", "2000"), ("1.5", "1.5")],
)
def test_quantities(text: str, number: str) -> None:
    assert amount(text) == Decimal(number)


def test_what_is_no_quantity_is_never_enough() -> None:
    assert amount("much") is None
    assert amount("inf") is None
    assert not at_least("much", "1")
    assert at_least("1Gi", "1024Mi")


def test_the_playbook_is_given_exactly_what_was_planned(tmp_path: Path) -> None:
    recreate = Change("Pod", "lab-b-single", "recreate")
    env = env_of(tmp_path, {"network": {"rdma": ROCE}}, mode="tcp", name="lab-b", single=True, actor="me")
    order = via_ansible.DeployRequest(tmp_path / "lab.yaml", Plan(env, (), (recreate,), ()), "prod", 60)
    assert via_ansible.play(order).variables == {
        "cluster_plan": digest(order.plan),
        "cluster_file": str(tmp_path / "lab.yaml"),
        "cluster_mode": "tcp",
        "cluster_nodes": 1,
        "cluster_environment": "lab-b",
        "cluster_single": True,
        "cluster_take_over": False,
        "cluster_recreate": True,
        "cluster_timeout": 60,
        "cluster_context": "prod",
        "cluster_actor": "me",
    }


def test_a_change_is_shown_as_ansible_shows_differences() -> None:
    assert difference(REPLICAS) == {
        "before": "spec.replicas: 2\n",
        "after": "spec.replicas: 4\n",
        "before_header": "StatefulSet lab (change)",
        "after_header": "StatefulSet lab (change)",
    }
    assert difference(Change("Service", "lab", "create"))["after"] == "Service lab\n"
