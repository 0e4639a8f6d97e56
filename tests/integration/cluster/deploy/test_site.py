"""Settings of sites on a real control plane: grants of an admin, settings of every pod, claims, larger volumes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

import pytest

from gpuctl.cluster.deploy import destroy, flow, removal, status
from gpuctl.cluster.deploy.apply import Applied
from gpuctl.cluster.deploy.flow import PlanRequest
from tests.integration.cluster.deploy import lab as made
from tests.integration.cluster.deploy.building import grant
from tests.integration.cluster.deploy.lab import Lab
from tests.rig.cluster.files import ON_OPENSHIFT, ROCE
from tests.rig.command import Gpuctl

RBAC = "rbac.authorization.k8s.io"
GRANTED = {
    "network": {"rdma": ROCE},
    "security": {"requires_privileged_scc": True, "service_account": "ml"},
}
OWN_KINDS = {"SecurityContextConstraints", "Role", "RoleBinding", "ServiceAccount"}
OWN_VOLUMES: Mapping[str, Any] = {"mode": "volumeClaimTemplates", "class_rwo": "growing"}
KUEUE = ("kueue.x-k8s.io", "v1beta1", "LocalQueue", "localqueues", True)


# ---- grants of an admin ---------------------------------------------------------------------------------------------


def bind(lab: Lab, role: str, account: str) -> None:
    subject = {"kind": "ServiceAccount", "name": account, "namespace": lab.namespace}
    meta = {"name": f"{account}-{role.rpartition(':')[2]}", "namespace": lab.namespace}
    reference = {"apiGroup": RBAC, "kind": "ClusterRole", "name": role}
    lab.plane.apply(
        {
            "apiVersion": f"{RBAC}/v1",
            "kind": "RoleBinding",
            "metadata": meta,
            "roleRef": reference,
            "subjects": [subject],
        }
    )


def test_an_ordinary_user_deploys_with_an_account_that_an_admin_granted_constraints_to(lab: Lab) -> None:
    meta = {"name": "ml", "namespace": lab.namespace}
    rule = {
        "apiGroups": ["security.openshift.io"],
        "resources": ["securitycontextconstraints"],
        "resourceNames": ["privileged"],
        "verbs": ["use"],
    }
    role = {"name": "system:openshift:scc:privileged"}
    lab.plane.apply(
        {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": meta},
        {"apiVersion": f"{RBAC}/v1", "kind": "ClusterRole", "metadata": role, "rules": [rule]},
    )
    # Who deploys: an admin of this namespace alone, with what OpenShift adds to that role.
    bind(lab, "admin", "default")
    added = {"route": "routes", "build": "buildconfigs", "image": "imagestreams"}
    grant(lab, {f"{group}.openshift.io": [plural] for group, plural in added.items()})
    user = lab.cluster(lab.plane.as_account(lab.folder, lab.namespace))
    file = lab.file(ON_OPENSHIFT, GRANTED)
    request = PlanRequest(mode="rdma", nodes=1, actor="me")

    refused = flow.plan(user, file, request).failed
    assert "constraints" in {finding.check for finding in refused}
    hints = " ".join(finding.hint for finding in refused)
    assert f"oc adm policy add-scc-to-user privileged -z ml -n {lab.namespace}" in hints

    bind(lab, role["name"], "ml")
    others = lab.names()
    plan = flow.plan(user, file, request)
    assert plan.failed == []
    assert not {change.kind for change in plan.changes} & OWN_KINDS
    flow.deploy(user, plan, lab.tell, 60, Applied())
    (pod,) = lab.get("pods")["items"]
    assert pod["spec"]["serviceAccountName"] == "ml"
    assert pod["spec"]["containers"][0]["securityContext"]["privileged"] is True
    again = flow.plan(user, file, replace(request, nodes=None, mode=None))
    assert (again.failed, {change.action for change in again.changes}) == ([], {"same"})
    assert status.read_status(user, file).verdict == "OK"
    found = destroy.find(user, plan.env)
    assert found.unread == []
    destroy.remove(user, plan.env, found, lab.tell, 60)
    assert lab.names() == others


# ---- settings of every pod ------------------------------------------------------------------------------------------

SETTINGS: Mapping[str, Any] = {
    "storage": {"claims": {"/datasets": "imagenet", "/models": "models"}},
    "pods": {
        "environment": {"HTTPS_PROXY": "http://proxy.example.org:3128"},
        "secrets": {"wandb": "environment", "store": "/secrets/store"},
        "annotations": {"sidecar.istio.io/inject": "false"},
        "labels": {"cost-center": "ml"},
        "queue": "team-a",
        "priority_class": "training",
        "runtime_class": "nvidia",
        "disruption_budget": False,
        "grace_period": 300,
    },
}


@pytest.fixture
def site(lab: Lab) -> Iterator[Lab]:
    """A lab whose namespace and cluster have what the settings name, but for Kueue."""
    at = {"namespace": lab.namespace}
    size = {"resources": {"requests": {"storage": "1Gi"}}, "accessModes": ["ReadWriteMany"], "storageClassName": "nfs"}
    for name in ("wandb", "store"):
        secret = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": name, **at}, "stringData": {"KEY": "x"}}
        lab.plane.apply(secret)
    for name in ("imagenet", "models"):
        meta = {"name": name, **at}
        lab.plane.apply({"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": meta, "spec": size})
    priority = {"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": {"name": "training"}}
    runtime = {"apiVersion": "node.k8s.io/v1", "kind": "RuntimeClass", "metadata": {"name": "nvidia"}}
    lab.plane.apply({**priority, "value": 1000}, {**runtime, "handler": "runc"})
    yield lab
    lab.plane.kubectl("delete", "crd", "localqueues.kueue.x-k8s.io", "--ignore-not-found")


def test_every_setting_of_a_site_reaches_the_pods_and_a_second_deploy_changes_nothing(site: Lab) -> None:
    (missing,) = site.plan(SETTINGS, nodes=1).failed
    assert (missing.subject, missing.message) == (
        "LocalQueue team-a",
        "the cluster does not serve LocalQueue: Kueue is not installed",
    )
    assert "remove pods.queue" in missing.hint
    group, version, *_ = KUEUE
    site.plane.apply(made.crd(*KUEUE))
    made.wait_for(lambda: site.plane.serves(f"{group}/{version}", "localqueues"))
    (missing,) = site.plan(SETTINGS, nodes=1).failed
    assert (missing.message, missing.hint) == ("it does not exist", "create it, or correct pods.queue")
    queue = {"metadata": {"name": "team-a", "namespace": site.namespace}}
    site.plane.apply({"apiVersion": f"{group}/{version}", "kind": "LocalQueue", **queue})

    site.deploy(SETTINGS, nodes=1)
    (pod,) = site.get("pods")["items"]
    meta, spec = pod["metadata"], pod["spec"]
    assert (meta["labels"]["cost-center"], meta["labels"]["kueue.x-k8s.io/queue-name"]) == ("ml", "team-a")
    assert meta["annotations"]["sidecar.istio.io/inject"] == "false"
    assert (spec["priorityClassName"], spec["priority"], spec["runtimeClassName"]) == ("training", 1000, "nvidia")
    assert spec["terminationGracePeriodSeconds"] == 300
    (container,) = spec["containers"]
    assert {"name": "HTTPS_PROXY", "value": "http://proxy.example.org:3128"} in container["env"]
    assert container["envFrom"] == [{"secretRef": {"name": "wandb"}}]
    volumes = {volume["name"]: volume for volume in spec["volumes"]}
    sources = {mount["mountPath"]: volumes[mount["name"]] for mount in container["volumeMounts"]}
    assert sources["/secrets/store"]["secret"]["secretName"] == "store"
    claims = {path: sources[path]["persistentVolumeClaim"]["claimName"] for path in ("/datasets", "/models")}
    assert claims == {"/datasets": "imagenet", "/models": "models"}
    assert sorted(claim["metadata"]["name"] for claim in site.get("pvc")["items"]) == [
        "imagenet",
        "lab-workspace",
        "models",
    ]
    if site.plane.version >= (1, 21):
        assert site.get("poddisruptionbudgets")["items"] == []
    assert {change.action for change in site.plan(SETTINGS).changes} == {"same"}
    found = destroy.find(site.cluster(), site.plan(SETTINGS).env)
    assert [claim["metadata"]["name"] for claim in found.volumes] == ["lab-workspace"]  # claims of others stay


# ---- larger volumes -------------------------------------------------------------------------------------------------


def uids(lab: Lab) -> set[str]:
    return {pod["metadata"]["uid"] for pod in lab.get("pods")["items"]}


def requested(lab: Lab) -> dict[str, str]:
    claims = lab.get("pvc")["items"]
    return {claim["metadata"]["name"]: claim["spec"]["resources"]["requests"]["storage"] for claim in claims}


def storage_class(lab: Lab, grows: bool) -> None:
    kind = {"apiVersion": "storage.k8s.io/v1", "kind": "StorageClass", "provisioner": "lab.rbd.csi.ceph.com"}
    lab.plane.apply({**kind, "metadata": {"name": "growing"}, "allowVolumeExpansion": grows})


def test_volumes_of_claim_templates_grow_where_the_class_allows_it_and_no_pod_ends(lab: Lab, gpuctl: Gpuctl) -> None:
    known = str(lab.plane.kubeconfig)
    storage_class(lab, grows=False)
    lab.deploy({"storage": OWN_VOLUMES}, nodes=2)
    made.wait_for(lambda: all(claim["status"].get("phase") == "Bound" for claim in lab.get("pvc")["items"]))
    pods, first = uids(lab), lab.get("statefulset", "lab")["metadata"]["uid"]
    path = lab.path({"storage": {**OWN_VOLUMES, "workspace_size": "200Gi"}})

    # The class does not allow it: the volumes stay, new pods would get larger ones, and status says so.
    deployed = gpuctl("cluster", "deploy", path, "--timeout", "60", KUBECONFIG=known)
    assert deployed.code == 0, deployed.err
    assert "PersistentVolumeClaim workspace-lab-1: it stays at 100Gi, and the file says 200Gi" in deployed.out
    assert "change StatefulSet lab: it is replaced, and its pods keep running" in deployed.out
    assert (uids(lab), requested(lab)["workspace-lab-0"]) == (pods, "100Gi")
    assert lab.get("statefulset", "lab")["metadata"]["uid"] != first
    told = gpuctl("cluster", "status", path, KUBECONFIG=known)
    assert (told.code, told.out.startswith(f"lab in {lab.namespace}: WARN")) == (0, True), told.out
    assert "workspace-lab-0: 100Gi, Bound, did not grow to 200Gi: StorageClass growing does not allow it" in told.out

    # Now it does: the claims grow, the StatefulSet has the size already.
    storage_class(lab, grows=True)
    plan = lab.deploy({"storage": {**OWN_VOLUMES, "workspace_size": "200Gi"}})
    assert {change.subject for change in plan.changes_of("grow")} == {
        "PersistentVolumeClaim workspace-lab-0",
        "PersistentVolumeClaim workspace-lab-1",
    }
    assert requested(lab) == {
        f"{volume}-lab-{rank}": size
        for volume, size in {"workspace": "200Gi", "datasets": "500Gi"}.items()
        for rank in range(2)
    }
    assert uids(lab) == pods
    found = status.read_status(lab.cluster(), lab.file({"storage": {**OWN_VOLUMES, "workspace_size": "200Gi"}}))
    assert (found.verdict, found.too_small) == ("WARN", ["workspace-lab-0", "workspace-lab-1"])
    assert any("workspace-lab-0: 100Gi, Bound, grows to 200Gi" in line for line in found.volumes)
    at = f"/api/v1/namespaces/{lab.namespace}/persistentvolumeclaims/workspace-lab-"
    for rank in range(2):  # as the driver's resizer does
        lab.plane.api("PATCH", f"{at}{rank}/status", {"status": {"capacity": {"storage": "200Gi"}}})
    same = {"storage": {**OWN_VOLUMES, "workspace_size": "200Gi"}}
    assert status.read_status(lab.cluster(), lab.file(same)).verdict == "OK"
    assert {change.action for change in lab.plan(same).changes} == {"same"}

    # As after a replacement that was interrupted: the next deploy adopts the pods.
    removal.remove(lab.cluster(), [stateful_set(lab)], 30, propagation="Orphan")
    plan = lab.deploy(same)
    assert {change.subject: change.action for change in plan.changes if change.action != "same"} == {
        "StatefulSet lab": "create"
    }
    made.wait_for(lambda: all("ownerReferences" in pod["metadata"] for pod in lab.get("pods")["items"]))
    assert uids(lab) == pods


def stateful_set(lab: Lab) -> Any:
    return {"apiVersion": "apps/v1", "kind": "StatefulSet", **lab.get("statefulset", "lab")}


def test_a_larger_size_takes_back_no_field_of_others_without_consent(lab: Lab) -> None:
    storage_class(lab, grows=True)
    lab.deploy({"storage": OWN_VOLUMES}, nodes=1)
    made.wait_for(lambda: all(claim["status"].get("phase") == "Bound" for claim in lab.get("pvc")["items"]))
    pods = uids(lab)
    theirs = '{"spec":{"replicas":2}}'
    lab.plane.kubectl("patch", "statefulset", "lab", "-n", lab.namespace, "-p", theirs, "--field-manager=somebody")
    larger = {"storage": {**OWN_VOLUMES, "workspace_size": "200Gi"}}
    (change,) = lab.plan(larger, nodes=1).changes_of("take-over")
    assert (change.subject, "spec.replicas was set by somebody" in change.note) == ("StatefulSet lab", True)
    assert {field.path for field in change.fields} == {
        "spec.volumeClaimTemplates[workspace].spec.resources.requests.storage",
        "spec.replicas",
    }
    lab.deploy(larger, nodes=1, take_over=True)
    assert uids(lab) == pods
    assert requested(lab)["workspace-lab-0"] == "200Gi"
