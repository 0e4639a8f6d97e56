"""Deploying on a real control plane: both storage modes, both network modes, again, another image, and away."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from gpuctl.cluster.deploy import deployed_state, flow, status
from gpuctl.cluster.deploy import destroy as destroying
from gpuctl.cluster.deploy.apply import Applied
from gpuctl.cluster.deploy.flow import PlanRequest
from gpuctl.cluster.deploy.model import OPTIONAL_KINDS
from gpuctl.cluster.manifests import KINDS, everything
from gpuctl.core.errors import GpuctlError, InvalidInput
from tests.integration.cluster.deploy import lab as made
from tests.integration.cluster.deploy.lab import Lab
from tests.rig.cluster.files import BUILT, ON_OPENSHIFT, ROCE
from tests.rig.cluster.rendered import environments
from tests.rig.kube.plane import Plane

OWN_VOLUMES = {"storage": {"mode": "volumeClaimTemplates", "class_rwo": "rbd"}}
RDMA = {"network": {"rdma": ROCE}}
LOCKING = {"security": {"ipc_lock": True, "rdma_as_root": True}}
EXPOSED = {"ports": {"expose": ["vscode"]}}


@pytest.fixture(scope="module")
def plane() -> Iterator[Plane]:
    for started in made.for_tests():
        made.node(started, "cpu-0", devices={})
        yield started


def nodes_of(lab: Lab) -> list[str]:
    return [each["spec"]["nodeName"] for each in lab.get("pods")["items"]]


def destroy(lab: Lab, plan: Any, volumes: bool) -> None:
    cluster = lab.cluster()
    found = destroying.find(cluster, plan.env)
    assert found.unread == []
    destroying.remove(
        cluster, plan.env, destroying.EnvironmentObjects(found.objects, found.volumes if volumes else ()), lab.tell, 60
    )


# Every storage mode with every network mode; each of them, and each number of nodes, with both of the other.
@pytest.mark.parametrize(
    ("storage", "mode", "nodes"),
    [({}, "rdma", 2), ({}, "tcp", 8), (OWN_VOLUMES, "rdma", 8), (OWN_VOLUMES, "tcp", 2)],
    ids=["rwx-rdma-2", "rwx-tcp-8", "own-rdma-8", "own-tcp-2"],
)
def test_every_pod_is_ready_on_a_node_of_its_own_and_a_second_deploy_changes_nothing(
    lab: Lab, storage: Mapping[str, Any], mode: str, nodes: int
) -> None:
    others = lab.names()
    plan = lab.deploy(storage, RDMA, mode=mode, nodes=nodes)
    assert len(set(nodes_of(lab))) == nodes == len(nodes_of(lab))
    assert "cpu-0" not in nodes_of(lab)
    assert f"Pod lab-{nodes - 1}: is ready on" in " ".join(lab.said)
    before = lab.names()
    again = lab.deploy(storage, RDMA, mode=mode)
    assert [each for each in again.changes if each.action != "same"] == []
    assert lab.names() == before
    destroy(lab, plan, volumes=True)
    assert lab.names() == others


def test_the_server_takes_every_object_of_every_environment(lab: Lab) -> None:
    cluster, tried = lab.cluster(), set()
    theirs = {"name": "theirs", "namespace": lab.namespace}
    cluster.apply({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": theirs})
    for name, env in environments(lab.folder):
        for each in everything(env):
            meta = {**each["metadata"], **({"namespace": lab.namespace} if "namespace" in each["metadata"] else {})}
            wanted = {**each, "metadata": meta}
            if each["kind"] == "ServiceAccount":  # without it the server takes no pod of its own
                cluster.apply(wanted)
            elif each["kind"] not in OPTIONAL_KINDS and json.dumps(wanted) not in tried:
                assert cluster.apply(wanted, dry_run=True)["metadata"]["name"] == meta["name"], name
                tried.add(json.dumps(wanted))
    assert {json.loads(each)["kind"] for each in tried} == {kind for _, kind in KINDS} - {
        *OPTIONAL_KINDS,
        "ServiceAccount",
    }


def test_openshift_gets_its_own_kinds_and_loses_exactly_those(lab: Lab) -> None:
    others = lab.names()
    plan = lab.deploy(ON_OPENSHIFT, RDMA, LOCKING, EXPOSED, nodes=2, limit_s=0)
    constraints = f"gpuctl-{lab.namespace}-lab"
    assert {"Route lab-vscode", f"SecurityContextConstraints {constraints}"} <= {each.subject for each in plan.changes}
    assert constraints in lab.plane.kubectl("get", "securitycontextconstraints", "-o", "name")
    # By TCP they need no constraints: what is of no use any more goes.
    changed = lab.deploy(ON_OPENSHIFT, RDMA, LOCKING, EXPOSED, mode="tcp", limit_s=0)
    assert lab.plan(ON_OPENSHIFT, RDMA, LOCKING, EXPOSED).env.mode == "tcp"  # as deployed, without --mode
    gone = {each.subject for each in changed.changes_of("remove")}
    assert gone == {f"SecurityContextConstraints {constraints}", "Role lab-scc", "RoleBinding lab-scc"}
    assert constraints not in lab.plane.kubectl("get", "securitycontextconstraints", "-o", "name")
    destroy(lab, plan, volumes=True)
    assert lab.names() == others


def test_passwords_stay_and_are_never_shown(lab: Lab) -> None:
    shown = repr(lab.deploy(nodes=1, limit_s=0).changes)
    first = lab.get("secret", "lab")["data"]
    again = lab.deploy({"image": {"name": "quay.io/team/ml:2"}}, limit_s=0)
    assert lab.get("secret", "lab")["data"] == first
    assert all(value not in shown + repr(again.changes) + " ".join(lab.said) for value in first.values())


def test_another_image_starts_the_pods_anew_and_nothing_else(lab: Lab) -> None:
    lab.deploy(OWN_VOLUMES, nodes=2)
    before = {each["metadata"]["uid"] for each in lab.get("pods")["items"]}
    plan = lab.deploy(OWN_VOLUMES, {"image": {"name": "quay.io/team/ml:2"}})
    (change,) = [each for each in plan.changes if each.action != "same"]
    assert (change.subject, change.note) == ("StatefulSet lab", "its pods restart, one after the other")
    assert [(field.before, field.after) for field in change.fields] == [("quay.io/team/ml:1", "quay.io/team/ml:2")] * 2
    pods = lab.get("pods")["items"]
    assert len(pods) == 2
    assert not before & {each["metadata"]["uid"] for each in pods}
    assert {each["spec"]["containers"][0]["image"] for each in pods} == {"quay.io/team/ml:2"}


def test_scaling_changes_the_number_of_pods_and_who_knows_of_them_alone(lab: Lab) -> None:
    def scale(nodes: int, *changes: Mapping[str, Any]) -> None:
        plan = flow.scaling(lab.plan(OWN_VOLUMES, *changes, nodes=nodes))
        flow.deploy(lab.cluster(), plan, lab.tell, 60, Applied())

    with pytest.raises(InvalidInput, match="it is not deployed"):
        scale(4)
    plan = lab.deploy(OWN_VOLUMES, nodes=2)
    first = {each["metadata"]["uid"] for each in lab.get("pods")["items"]}
    scale(4)
    assert first < {each["metadata"]["uid"] for each in lab.get("pods")["items"]}
    assert len(set(nodes_of(lab))) == 4
    assert lab.get("configmap", "lab-hosts")["data"]["hostfile"].count("\n") == 4
    with pytest.raises(InvalidInput, match="more would change than the number of pods: StatefulSet lab"):
        scale(3, {"image": {"name": "quay.io/team/ml:2"}})
    scale(1)
    assert nodes_of(lab) != []
    assert deployed_state.nodes(lab.cluster(), plan.env) == 1 == len(nodes_of(lab))
    assert len(lab.get("pvc")["items"]) == 8  # of pods that went, too


def test_destroy_leaves_volumes_unless_asked_and_everything_of_others(lab: Lab) -> None:
    theirs = {"labels": {"app.kubernetes.io/managed-by": "gpuctl", "app.kubernetes.io/instance": "lab"}}
    for kind, name in (("ConfigMap", "lab-theirs"), ("Secret", "lab-2")):
        meta = {"name": name, "namespace": lab.namespace, **theirs}
        lab.plane.apply({"apiVersion": "v1", "kind": kind, "metadata": meta})
    second = lab.deploy(name="lab-b", nodes=1)
    others = lab.names()
    plan = lab.deploy(nodes=2, limit_s=0)
    destroy(lab, plan, volumes=False)
    left = [each for each in lab.names() if each not in others]
    assert [each.split()[0] for each in left] == [
        "PersistentVolumeClaim/lab-datasets",
        "PersistentVolumeClaim/lab-workspace",
    ]
    destroy(lab, plan, volumes=True)
    assert lab.names() == others
    assert status.read_status(lab.cluster(), lab.file(), second.env.name).verdict == "OK"


def test_constraints_of_the_same_names_elsewhere_stay(lab: Lab, tmp_path: Path) -> None:
    for other in made.namespaces(lab.plane, tmp_path):
        other.deploy(ON_OPENSHIFT, RDMA, LOCKING, nodes=1)
        plan = lab.deploy(ON_OPENSHIFT, RDMA, LOCKING, nodes=1, limit_s=0)
        destroy(lab, plan, volumes=True)
        assert status.read_status(other.cluster(), other.file(ON_OPENSHIFT, RDMA, LOCKING)).verdict == "OK"
        destroy(other, other.plan(ON_OPENSHIFT, RDMA, LOCKING), volumes=True)
    assert lab.plane.kubectl("get", "securitycontextconstraints", "-o", "name") == ""


def test_claim_templates_are_made_anew_with_the_pods(lab: Lab) -> None:
    lab.deploy(OWN_VOLUMES, nodes=1, limit_s=0)
    made.wait_for(lambda: lab.get("pvc")["items"])
    before = lab.get("statefulset", "lab")["metadata"]["uid"]
    other = {"storage": {**OWN_VOLUMES["storage"], "class_rwo": "nfs"}}
    plan = lab.deploy(other, limit_s=0)
    (change,) = plan.changes_of("recreate")
    assert (change.subject, change.fields[0].path) == ("StatefulSet lab", "spec.volumeClaimTemplates")
    assert change.note == "existing volumes stay as they are"
    assert lab.get("statefulset", "lab")["metadata"]["uid"] != before
    assert lab.get("pvc", "workspace-lab-0")["spec"]["storageClassName"] == "rbd"


def test_a_volume_is_never_made_anew(lab: Lab) -> None:
    lab.plane.apply(
        {
            "apiVersion": "storage.k8s.io/v1",
            "kind": "StorageClass",
            "metadata": {"name": "efs"},
            "provisioner": "efs.csi.aws.com",
        }
    )
    lab.deploy(nodes=1, limit_s=0)
    with pytest.raises(GpuctlError, match="PersistentVolumeClaim lab-workspace: it holds data"):
        lab.deploy({"storage": {"class_rwx": "efs"}})
    with pytest.raises(GpuctlError, match="PersistentVolumeClaim lab-workspace: spec"):
        lab.deploy({"storage": {"workspace_size": "50Gi"}})


def test_a_pod_that_stands_alone_is_made_anew_where_it_cannot_change(lab: Lab) -> None:
    plan = lab.deploy(RDMA, single=True, limit_s=0)
    assert [each.note for each in plan.changes if each.kind == "Pod"] == [
        "checked by the server once its account exists"
    ]
    changed = lab.deploy(RDMA, single=True, mode="tcp", limit_s=0)
    assert [each.subject for each in changed.changes_of("recreate")] == ["Pod lab-single"]
    assert lab.get("pod", "lab-single")["spec"]["containers"][0]["resources"]["limits"].get("nvidia.com/roce") is None
    destroy(lab, plan, volumes=True)


def test_auto_takes_tcp_where_the_adapters_are_missing_and_says_why(lab: Lab) -> None:
    four = {"network": {"rdma": {**ROCE, "resources": {"nvidia.com/roce": 4}}}}
    plan = flow.plan(lab.cluster(), lab.file(four), PlanRequest("auto"))
    assert plan.env.mode == "tcp"
    assert "it has 1 of the 4 nvidia.com/roce that a pod requests" in plan.fell_back
    assert flow.plan(lab.cluster(), lab.file(four), PlanRequest("rdma")).failed[0].check == "adapters"
    assert flow.plan(lab.cluster(), lab.file(RDMA), PlanRequest("auto")).env.mode == "rdma"


def test_status_tells_mode_pods_and_what_is_missing(lab: Lab) -> None:
    lab.deploy(RDMA, mode="rdma", nodes=2)
    found = status.read_status(lab.cluster(), lab.file(RDMA))
    assert (found.verdict, found.mode, found.nodes) == ("OK", "rdma", 2)
    assert [pod.ready for pod in found.pods] == [True, True]
    assert [each.split(":")[0] for each in found.volumes] == ["lab-datasets", "lab-workspace"]
    lab.plane.kubectl("delete", "service", "lab", "-n", lab.namespace)
    found = status.read_status(lab.cluster(), lab.file(RDMA))
    assert (found.verdict, found.missing) == ("FAIL", ["Service lab"])


def test_status_tells_every_pod_that_is_there_also_where_the_file_allows_fewer_by_now(lab: Lab) -> None:
    lab.deploy(RDMA, nodes=3)
    fewer = lab.file(RDMA, {"nodes": {"gpu_nodes": ["gpu-0", "gpu-1"]}})
    found = status.read_status(lab.cluster(), fewer)
    assert (found.verdict, found.nodes, len(found.pods)) == ("OK", 3, 3)
    lab.plane.kubectl("cordon", "-l", "kubernetes.io/hostname")
    try:
        lab.plane.kubectl("delete", "pod", "lab-2", "-n", lab.namespace)
        found = status.read_status(lab.cluster(), fewer)
    finally:
        lab.plane.kubectl("uncordon", "-l", "kubernetes.io/hostname")
    assert (found.verdict, found.nodes) == ("FAIL", 3)


def test_what_is_being_deleted_is_reported_and_stands_against_a_deploy(lab: Lab) -> None:
    lab.deploy(nodes=1)
    lab.plane.kubectl("delete", "pvc", "lab-workspace", "-n", lab.namespace, "--wait=false")
    found = status.read_status(lab.cluster(), lab.file())
    assert (found.verdict, found.terminating) == ("FAIL", ["PersistentVolumeClaim lab-workspace"])
    assert "lab-workspace: 100Gi, Bound, is being deleted" in found.volumes
    with pytest.raises(GpuctlError, match="being deleted: PersistentVolumeClaim lab-workspace: it is being deleted"):
        lab.deploy(nodes=1)


def test_a_pod_that_stands_alone_starts_anew_for_another_image(lab: Lab) -> None:
    lab.deploy(single=True)
    before = lab.get("pod", "lab-single")["metadata"]["uid"]
    plan = lab.deploy({"image": {"name": "quay.io/team/ml:2"}}, single=True)
    assert [each.subject for each in plan.changes_of("recreate")] == ["Pod lab-single"]
    after = lab.get("pod", "lab-single")
    assert after["metadata"]["uid"] != before
    assert after["spec"]["containers"][0]["image"] == "quay.io/team/ml:2"


def test_pods_run_exactly_what_was_built_last(lab: Lab) -> None:
    digests = ["sha256:" + each * 64 for each in "ab"]
    assert lab.deploy(ON_OPENSHIFT, BUILT, nodes=1, limit_s=0).env.built == ""
    stream = f"/apis/image.openshift.io/v1/namespaces/{lab.namespace}/imagestreams/lab"
    for number, digest in enumerate(digests, 1):
        items = [{"image": each} for each in reversed(digests[:number])]  # the newest first, as the registry tells them
        lab.plane.api("PATCH", stream, {"status": {"tags": [{"tag": "latest", "items": items}]}})
        plan = lab.deploy(ON_OPENSHIFT, BUILT, nodes=1, limit_s=0)
        assert plan.env.built == digest
        image = lab.get("statefulset", "lab")["spec"]["template"]["spec"]["containers"][0]["image"]
        assert image.endswith(f"/{lab.namespace}/lab@{digest}")
    again = lab.plan(ON_OPENSHIFT, BUILT, nodes=1)
    assert {each.action for each in again.changes} == {"same"}
