"""What goes wrong on a real control plane is told in words, touches nothing of others, and can be tried again."""

from __future__ import annotations

import json
import signal
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from gpuctl.cluster.deploy import flow, wait
from gpuctl.cluster.deploy.apply import Applied, NotApplied
from gpuctl.cluster.deploy.flow import PlanRequest
from gpuctl.cluster.deploy.model import Field
from gpuctl.core.errors import GpuctlError, InvalidInput
from gpuctl.domain.findings import Finding
from tests.integration.cluster.deploy import lab as made
from tests.integration.cluster.deploy.lab import Lab
from tests.rig.cluster.files import ON_OPENSHIFT, ROCE
from tests.rig.command import Gpuctl

RDMA = {"network": {"rdma": ROCE}}


def failed(lab: Lab, *changes: Any, **wish: Any) -> Finding:
    """The first thing that fails, found in seconds; nothing was made."""
    before, begun = lab.names(), time.monotonic()
    plan = lab.plan(*changes, **wish)
    with pytest.raises(GpuctlError, match="cannot deploy lab"):
        flow.refuse(plan)
    assert time.monotonic() - begun < 60  # a deploy waits for minutes
    assert lab.names() == before
    return plan.failed[0]


def test_more_gpus_than_a_node_has(lab: Lab) -> None:
    found = failed(lab, {"gpus": {"per_node": 16}})
    assert found.subject == "nvidia.com/gpu"
    assert "gpu-0, gpu-1: it has 8 of the 16 nvidia.com/gpu that a pod requests" in found.message


def test_more_nodes_than_there_are(lab: Lab) -> None:
    assert failed(lab, nodes=3).message == "2 of the 3 nodes that are needed can take a pod"
    assert "elsewhere: the node does not exist" in failed(lab, {"nodes": {"gpu_nodes": ["gpu-0", "elsewhere"]}}).message


def test_a_storage_class_that_is_missing_or_cannot(lab: Lab) -> None:
    found = failed(lab, {"storage": {"class_rwx": "fast"}})
    assert (found.subject, found.hint) == ("StorageClass fast", "storage.class_rwx: the classes are nfs, rbd")
    assert "written by one node at a time" in failed(lab, {"storage": {"class_rwx": "rbd"}}).message


def test_constraints_that_are_missing(lab: Lab) -> None:
    privileged = {"security": {"requires_privileged_scc": True}}
    found = failed(lab, ON_OPENSHIFT, RDMA, privileged)
    assert found.subject == "SecurityContextConstraints privileged"
    assert found.message.startswith("these constraints do not exist")


def test_a_network_attachment_that_is_missing(lab: Lab) -> None:
    found = failed(lab, {"network": {"rdma": {**ROCE, "attachments": ["net-a"]}}})
    assert (found.subject, found.message) == ("NetworkAttachmentDefinition net-a", "the network does not exist")


def test_a_kubeconfig_that_leads_elsewhere(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KUBECONFIG", str(lab.plane.kubeconfig))
    with pytest.raises(InvalidInput, match="the kubeconfig's context leads to https://127"):
        flow.connect(lab.file({"cluster": {"api": "https://other.example.org:6443"}}))


def test_a_quota_that_is_too_small_and_one_that_another_namespace_has(lab: Lab) -> None:
    quota = {"apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": "team", "namespace": lab.namespace}}
    lab.plane.apply({**quota, "spec": {"hard": {"requests.nvidia.com/gpu": "8"}}})
    made.wait_for(lambda: lab.get("resourcequota", "team").get("status", {}).get("hard"))
    found = failed(lab)
    assert (found.subject, found.message) == (
        "ResourceQuota team",
        "requests.nvidia.com/gpu: 16 more are needed, and 0 of 8 is in use",
    )


def test_a_container_that_is_larger_than_the_namespace_allows(lab: Lab) -> None:
    limit = {"type": "Container", "max": {"memory": "64Gi", "cpu": "64"}}
    meta = {"name": "small", "namespace": lab.namespace}
    lab.plane.apply({"apiVersion": "v1", "kind": "LimitRange", "metadata": meta, "spec": {"limits": [limit]}})
    assert failed(lab).message == "a container may have 64Gi of memory, and ours requests 128Gi"


def test_objects_of_others_with_our_names_are_left_alone(lab: Lab) -> None:
    meta = {"name": "lab", "namespace": lab.namespace}
    lab.plane.apply({"apiVersion": "v1", "kind": "Service", "metadata": meta, "spec": {"ports": [{"port": 1}]}})
    found = failed(lab)
    assert (found.subject, found.message) == ("Service lab", "it exists and is not ours; it is left alone")


def test_one_that_comes_between_looking_and_applying_is_left_alone(lab: Lab) -> None:
    plan = lab.plan()
    meta = {"name": "lab-hosts", "namespace": lab.namespace}
    lab.plane.apply({"apiVersion": "v1", "kind": "ConfigMap", "metadata": meta, "data": {"theirs": "1"}})
    with pytest.raises(NotApplied, match="ConfigMap lab-hosts: an object of that name was created"):
        flow.deploy(lab.cluster(), plan, lab.tell, 10, Applied())
    assert lab.get("configmap", "lab-hosts")["data"] == {"theirs": "1"}


def test_a_field_that_another_owns_is_taken_back_only_with_consent(lab: Lab) -> None:
    lab.deploy(nodes=1, limit_s=0)
    meta = {"name": "lab-hosts", "namespace": lab.namespace}
    theirs = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": meta, "data": {"hostfile": "theirs"}}
    lab.plane.kubectl("apply", "--server-side", "--force-conflicts", "-f", "-", stdin=json.dumps(theirs))
    with pytest.raises(GpuctlError, match=r"ConfigMap lab-hosts: data\.hostfile was set by kubectl"):
        lab.deploy(nodes=1, limit_s=0)
    assert lab.get("configmap", "lab-hosts")["data"]["hostfile"] == "theirs"
    plan = lab.deploy(nodes=1, limit_s=0, take_over=True)
    (change,) = plan.changes_of("take-over")
    assert [(field.path, field.before) for field in change.fields] == [("data.hostfile", "theirs")]
    assert lab.get("configmap", "lab-hosts")["data"]["hostfile"].startswith("lab-0.lab.")
    assert all(change.action == "same" for change in lab.plan(nodes=1).changes)


def test_a_number_of_pods_that_was_patched_by_hand_can_be_set_back_by_scale_and_deploy(lab: Lab) -> None:
    lab.deploy(nodes=2, limit_s=0)
    patch = json.dumps({"spec": {"replicas": 1}})
    lab.plane.kubectl("patch", "statefulset", "lab", "-n", lab.namespace, "--type=merge", "-p", patch)
    plan = flow.scaling(lab.plan(nodes=2))
    (change,) = plan.changes_of("take-over")
    assert change.note.startswith("spec.replicas was set by kubectl")
    assert Field("spec.replicas", 1, 2) in change.fields
    with pytest.raises(GpuctlError, match=r"StatefulSet lab: spec\.replicas was set by kubectl"):
        flow.refuse(plan)
    lab.deploy(nodes=2, limit_s=0, take_over=True)
    assert lab.get("statefulset", "lab")["spec"]["replicas"] == 2


# ---- rights ---------------------------------------------------------------------------------------------------------


def account(lab: Lab, *without: str) -> Path:
    """A kubeconfig of who may do all in the namespace but create these, and nothing outside it."""
    api, names = "rbac.authorization.k8s.io/v1", {"name": "user", "namespace": lab.namespace}
    groups = {"": CORE, "apps": ["statefulsets"], "networking.k8s.io": ["networkpolicies"]}
    verbs = ["get", "list", "watch", "patch", "delete"]
    rules = [
        {"apiGroups": [group], "resources": [each], "verbs": verbs if each in without else [*verbs, "create"]}
        for group, listed in groups.items()
        for each in listed
    ]
    subject = {"kind": "ServiceAccount", "name": "default", "namespace": lab.namespace}
    role = {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "user"}
    lab.plane.apply(
        {"apiVersion": api, "kind": "Role", "metadata": names, "rules": rules},
        {"apiVersion": api, "kind": "RoleBinding", "metadata": names, "subjects": [subject], "roleRef": role},
    )
    return lab.plane.as_account(lab.folder, lab.namespace)


CORE = (
    "serviceaccounts",
    "secrets",
    "configmaps",
    "services",
    "persistentvolumeclaims",
    "pods",
    "events",
    "resourcequotas",
)


def test_a_verb_that_is_forbidden_is_named_before_anything_is_made(lab: Lab) -> None:
    before = lab.names()
    cluster = lab.cluster(account(lab, "networkpolicies"))
    plan = flow.plan(cluster, lab.file(), PlanRequest())
    (found,) = [each for each in plan.failed if each.check == "rights"]
    assert (found.subject, found.message) == ("NetworkPolicy", "you have no permission to create objects of this kind")
    assert [each for each in lab.names() if "/user " not in each] == [each for each in before if "/user " not in each]


def test_who_may_do_nothing_is_reported_all_of_it_at_once(lab: Lab) -> None:
    cluster = lab.cluster(account(lab))
    lab.plane.kubectl("delete", "rolebinding", "user", "-n", lab.namespace)
    lacking = {each.subject for each in flow.plan(cluster, lab.file(), PlanRequest()).failed if each.check == "rights"}
    assert {"StatefulSet", "Secret", "PersistentVolumeClaim", "Pod", "Event"} <= lacking


def test_who_may_not_look_at_nodes_is_reported_what_is_not_known_and_deploys_all_the_same(lab: Lab) -> None:
    cluster = lab.cluster(account(lab))
    plan = flow.plan(cluster, lab.file(), PlanRequest())
    unknown = {each.check: each.message for each in plan.findings if each.verdict == "UNKNOWN"}
    assert {"gpus", "storage", "image", "namespace"} <= set(unknown)
    assert "has no permission to list nodes in the whole cluster" in unknown["gpus"]
    flow.deploy(cluster, plan, lab.tell, 60, Applied())
    assert len(lab.get("pods")["items"]) == 2


# ---- an API that goes away ------------------------------------------------------------------------------------------


def test_an_api_that_dies_while_objects_are_applied_is_waited_for(lab: Lab) -> None:
    plan, killed = lab.plan(), threading.Event()

    def tell(subject: str, words: str) -> None:
        lab.tell(subject, words)
        if subject == "ConfigMap lab-start" and not killed.is_set():
            killed.set()
            made.restart(lab.plane)

    flow.deploy(lab.cluster(), plan, tell, 90, Applied())
    assert killed.is_set()
    assert len(lab.get("pods")["items"]) == 2
    assert [each for each in lab.plan().changes if each.action != "same"] == []


def test_one_that_stays_away_ends_it_and_the_next_try_goes_on_from_there(lab: Lab) -> None:
    plan, applied = lab.plan(), Applied()
    cluster = lab.cluster(patience_s=1)

    def tell(subject: str, words: str) -> None:
        if subject == "Secret lab":  # cut off from the API, which goes on
            cluster.client.configuration.host = "https://127.0.0.1:9"

    with pytest.raises(NotApplied, match=r"does not answer.*2 of 9 changes were made: ServiceAccount lab, Secret lab"):
        flow.deploy(cluster, plan, tell, 60, applied)
    secret = lab.get("secret", "lab")["data"]
    again = lab.deploy()
    assert [each.subject for each in again.changes_of("create")][:1] == ["ConfigMap lab-start"]
    assert lab.get("secret", "lab")["data"] == secret


def test_a_lost_watch_misses_nothing(lab: Lab) -> None:
    done = threading.Event()

    def tell(subject: str, words: str) -> None:
        lab.tell(subject, words)
        if subject == "Pod lab-0" and not done.is_set():
            done.set()
            made.restart(lab.plane, away_s=2)

    flow.deploy(lab.cluster(), lab.plan(), tell, 90, Applied())
    assert {"Pod lab-0: is ready on", "Pod lab-1: is ready on"} <= {each[:22] for each in lab.said}


# ---- pods that do not start -----------------------------------------------------------------------------------------


def occupy(lab: Lab) -> str:
    """Somebody else's pod takes all GPUs of a node; which."""
    container = {"name": "other", "image": "x", "resources": {"limits": {"nvidia.com/gpu": "8"}}}
    meta = {"name": "theirs", "namespace": lab.namespace}
    lab.plane.apply({"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": {"containers": [container]}})
    made.wait_for(lambda: lab.get("pod", "theirs")["spec"].get("nodeName"))
    return str(lab.get("pod", "theirs")["spec"]["nodeName"])


def test_pods_without_a_node_are_reported_with_the_reason(lab: Lab) -> None:
    taken = occupy(lab)
    warned = [each for each in lab.plan().findings if each.check == "in use"]
    assert f"1 of the 2 nodes are free now ({taken} by {lab.namespace}/theirs)" in warned[0].message
    made.until_told(
        lab,
        lab.plan(),
        r"1 of 2 pods are ready after 2 s; lab-\d waits for a node: no node takes it: of 2 .*too little nvidia.com/gpu",
    )
    assert any("too little nvidia.com/gpu free" in each for each in lab.said)
    lab.plane.kubectl("delete", "pod", "theirs", "-n", lab.namespace)
    assert [each for each in lab.deploy().changes if each.action != "same"] == []


def test_pods_of_a_form_that_cannot_run_do_not_keep_the_next_one_from_coming(lab: Lab) -> None:
    lab.deploy(nodes=2)
    bad, good = (lab.plan({"image": {"name": f"quay.io/team/ml:{tag}"}}) for tag in ("bad", "good"))
    lab.plane.kubectl("cordon", "gpu-0", "gpu-1")
    try:
        made.until_told(lab, bad, "lab-1 waits for a node: no node takes it: of 2 nodes, 2: cordoned")
    finally:
        lab.plane.kubectl("uncordon", "gpu-0", "gpu-1")
    flow.deploy(lab.cluster(), good, lab.tell, 60, Applied())
    assert {each["spec"]["containers"][0]["image"] for each in lab.get("pods")["items"]} == {"quay.io/team/ml:good"}


def test_pods_that_a_quota_forbids_are_reported_by_their_set(lab: Lab) -> None:
    plan = lab.plan()
    quota = {"apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": "late", "namespace": lab.namespace}}
    lab.plane.apply({**quota, "spec": {"hard": {"pods": "1"}}})
    made.wait_for(lambda: lab.get("resourcequota", "late").get("status", {}).get("hard"))
    made.until_told(lab, plan, r"lab-\d does not exist yet: FailedCreate: .*exceeded quota: late")


# ---- as a user has it -----------------------------------------------------------------------------------------------


def test_breaking_it_off_says_what_was_done_and_the_same_command_goes_on(lab: Lab, gpuctl: Gpuctl) -> None:
    occupy(lab)
    known = str(lab.plane.kubeconfig)
    words = ("cluster", "deploy", lab.path(), "--timeout", "60")
    running = gpuctl.start(*words, KUBECONFIG=known)
    assert running.stderr is not None
    assert any("waits for a node: no node takes it" in line for line in iter(running.stderr.readline, ""))
    running.send_signal(signal.SIGINT)
    said = gpuctl.said(running)
    assert said.code == 130
    assert "9 of 9 changes were made: ServiceAccount lab, " in said.err
    assert "gpuctl: interrupted" in said.err
    lab.plane.kubectl("delete", "pod", "theirs", "-n", lab.namespace)
    done = gpuctl(*words, KUBECONFIG=known)
    assert (done.code, done.out.splitlines()[-2:]) == (0, ["nothing changes", "lab: 2 pods ready"])


def test_waiting_is_over_only_when_pods_of_the_new_form_are_ready(lab: Lab) -> None:
    plan = lab.deploy(nodes=1)
    view = wait.ViewReader(lab.cluster(), plan.env).view(
        {each["metadata"]["name"]: each for each in lab.get("pods")["items"]}
    )
    assert wait.is_done(plan.env, view)
    older = {"lab-0": {**view.pods["lab-0"], "metadata": {**view.pods["lab-0"]["metadata"], "labels": {}}}}
    assert not wait.is_done(plan.env, wait.EnvironmentView(older, view.owner))
