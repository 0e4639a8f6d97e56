"""The preflight's decisions, over what was read of a cluster."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from gpuctl.cluster.deploy.cluster_snapshot import Maybe
from gpuctl.cluster.deploy.model import ObjectState
from gpuctl.cluster.manifests import everything
from gpuctl.cluster.manifests.references import references_of
from gpuctl.domain.memlock import judge
from tests.rig.cluster.files import BUILT, ON_OPENSHIFT, ROCE
from tests.rig.cluster.snapshots import ROOM, env_of, findings, node, pod, storage_class, there

RDMA = {"network": {"rdma": ROCE}}
LOCKING = {"security": {"ipc_lock": True, "rdma_as_root": True}}


def test_a_cluster_that_has_all_leaves_only_the_image_open(tmp_path: Path) -> None:
    found = findings(env_of(tmp_path), there())
    assert {name: each.verdict for name, each in found.items()} == {"image": "UNKNOWN"}


def test_what_may_not_be_read_is_unknown_and_never_fine(tmp_path: Path) -> None:
    no = "you may not"
    closed = there(
        namespace=Maybe(None, no), quotas=Maybe([], no), classes=Maybe([], no), nodes=Maybe([], no), pods=Maybe([], no)
    )
    found = findings(env_of(tmp_path), closed)
    assert {name for name, each in found.items() if each.verdict == "UNKNOWN"} == {
        "namespace",
        "quota",
        "storage",
        "gpus",
        "image",
    }
    assert not [each for each in found.values() if each.verdict == "FAIL"]


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"spec": {"unschedulable": True}}, "it is cordoned"),
        (
            {"spec": {"taints": [{"key": "team", "value": "b", "effect": "NoSchedule"}]}},
            "it is tainted team=b:NoSchedule",
        ),
        ({"status": {"allocatable": ROOM, "conditions": [{"type": "Ready", "status": "False", "message": "m"}]}}, "m"),
        ({"status": {"allocatable": {**ROOM, "nvidia.com/gpu": "7"}}}, "it has 7 of the 8 nvidia.com/gpu that a pod"),
    ],
)
def test_a_node_that_takes_no_pod_is_named_with_the_reason(tmp_path: Path, change: Any, why: str) -> None:
    found = findings(env_of(tmp_path), there(nodes=Maybe([{**node("gpu-0"), **change}, node("gpu-1")])))
    assert found["gpus"].verdict == "FAIL"
    assert found["gpus"].message.startswith("1 of the 2 nodes that are needed can take a pod (gpu-0: ")
    assert why in found["gpus"].message


def test_a_taint_of_the_gpus_themselves_does_not_matter(tmp_path: Path) -> None:
    tainted = {"spec": {"taints": [{"key": "nvidia.com/gpu", "effect": "NoSchedule"}]}}
    assert "gpus" not in findings(env_of(tmp_path), there(nodes=Maybe([{**node(n), **tainted} for n in "ab"])))


def with_labels(name: str, **labels: str) -> Any:
    return {**node(name), "metadata": {"name": name, "labels": labels}}


@pytest.mark.parametrize(
    ("selector", "told"),
    [
        ({"pool": "trainng"}, "none has pool=trainng (nodes have pool=cpu, pool=training)"),
        ({"pol": "training"}, "none has pol=training (nodes have pool=cpu, pool=training)"),
        ({"group": "training"}, "none has group=training (nodes have pool=cpu, pool=training)"),
        ({"zone": "z"}, "none has zone=z"),
        ({"pool": "cpu", "rack": "a"}, "each label of nodes.selector is on some node, and no node has all of them"),
    ],
    ids=str,
)
def test_a_selector_that_no_node_matches_is_named_with_the_nearest_labels(
    tmp_path: Path, selector: dict[str, str], told: str
) -> None:
    nodes = [with_labels("gpu-0", pool="training", rack="a"), with_labels("cpu-0", pool="cpu")]
    found = findings(env_of(tmp_path, {"nodes": {"selector": selector}}), there(nodes=Maybe(nodes)))
    assert (found["gpus"].verdict, found["gpus"].subject) == ("FAIL", "nodes.selector")
    assert found["gpus"].message.endswith(told)


def test_nodes_that_the_selector_leaves_out_are_named_also_those_that_the_file_names(tmp_path: Path) -> None:
    nodes = Maybe([with_labels("gpu-0", pool="training"), with_labels("gpu-1")])
    selector = {"selector": {"pool": "training"}}
    for names in ({}, {"gpu_nodes": ["gpu-0", "gpu-1"]}):
        message = findings(env_of(tmp_path, {"nodes": {**selector, **names}}), there(nodes=nodes))["gpus"].message
        assert message == (
            "1 of the 2 nodes that are needed can take a pod (gpu-1: it does not have pool=training of nodes.selector)"
        )


def test_adapters_and_memory_are_looked_for_on_nodes_that_have_the_gpus(tmp_path: Path) -> None:
    assert "adapters" not in findings(env_of(tmp_path, RDMA), there())
    none = there(nodes=Maybe([node(name, **{"nvidia.com/roce": "0"}) for name in ("gpu-0", "gpu-1")]))
    assert "it has 0 of the 1 nvidia.com/roce" in findings(env_of(tmp_path, RDMA), none)["adapters"].message
    small = there(nodes=Maybe([node(name, memory="64Gi") for name in ("gpu-0", "gpu-1")]))
    assert "it has 64Gi of the 128Gi memory" in findings(env_of(tmp_path), small)["room"].message


def test_gpus_that_others_have_are_reported_and_our_own_are_not(tmp_path: Path) -> None:
    env = env_of(tmp_path)
    taken = there(pods=Maybe([pod("theirs", "gpu-0", 1), pod("lab-0", "gpu-1", 8, **env.labels)]))
    found = findings(env, taken)["in use"]
    assert (found.verdict, found.message) == (
        "WARN",
        "1 of the 2 nodes are free now (gpu-0 by team/theirs): pods wait for the others",
    )


def test_a_class_whose_volumes_one_node_writes_is_refused_for_all(tmp_path: Path) -> None:
    ceph = there(classes=Maybe([storage_class("nfs", "openshift-storage.rbd.csi.ceph.com")]))
    assert findings(env_of(tmp_path), ceph)["storage"].verdict == "FAIL"
    unknown = there(classes=Maybe([storage_class("nfs", "example.org/new")]))
    assert findings(env_of(tmp_path), unknown)["storage"].verdict == "UNKNOWN"
    spec = {"storageClassName": "nfs", "accessModes": ["ReadWriteMany"]}
    proof = {"metadata": {"name": "other", "labels": {}}, "spec": spec, "status": {"phase": "Bound"}}
    assert "storage" not in findings(env_of(tmp_path), there(classes=unknown.classes, claims=Maybe([proof])))


def quota(scopes: list[str], **hard: str) -> Maybe[Any]:
    spec = {"hard": hard, "scopes": scopes}
    return Maybe([{"metadata": {"name": "q"}, "spec": spec, "status": {"hard": hard, "used": {"pods": "3"}}}])


def test_a_quota_counts_what_comes_new(tmp_path: Path) -> None:
    env = env_of(tmp_path)
    found = findings(env, there(quotas=quota([], pods="4")))["quota"]
    assert (found.verdict, found.message) == ("FAIL", "pods: 2 more are needed, and 3 of 4 is in use")
    one_is_there = [pod("lab-0", "gpu-0", 8, **env.labels)]
    assert "quota" not in findings(env, there(quotas=quota([], pods="4"), env_pods=Maybe(one_is_there)))
    volumes = findings(env, there(quotas=quota([], **{"requests.storage": "500Gi"})))["quota"]
    assert volumes.message == "requests.storage: 600Gi more are needed, and 0 of 500Gi is in use"


def test_what_a_full_quota_counts_of_us_already_is_not_counted_again(tmp_path: Path) -> None:
    env, full = env_of(tmp_path), quota([], pods="3")
    mine = [pod("lab-0", "gpu-0", 8, **env.labels), pod("lab-1", "", 8, **env.labels)]  # one waits for a node
    alone: dict[str, Any] = {"pods": Maybe([], "you may not list pods everywhere"), "nodes": Maybe([], "you may not")}
    assert "quota" not in findings(env, there(quotas=full, env_pods=Maybe(mine), **alone))
    ended = [{**each, "status": {"phase": "Failed"}} for each in mine]
    assert findings(env, there(quotas=full, env_pods=Maybe(ended), **alone))["quota"].verdict == "FAIL"


@pytest.mark.parametrize("unread", ["env_pods", "claims"])
def test_where_ours_cannot_be_counted_what_a_quota_leaves_is_unknown(tmp_path: Path, unread: str) -> None:
    closed: dict[str, Any] = {unread: Maybe([], "you may not list them")}
    found = findings(env_of(tmp_path), there(quotas=quota([], pods="3"), **closed))["quota"]
    assert (found.verdict, found.message) == ("UNKNOWN", "you may not list them")
    assert "quota" not in findings(env_of(tmp_path), there(**closed))


def test_a_quota_for_other_pods_does_not_matter_and_one_for_some_is_unknown(tmp_path: Path) -> None:
    assert "quota" not in findings(env_of(tmp_path), there(quotas=quota(["BestEffort"], pods="1")))
    assert findings(env_of(tmp_path), there(quotas=quota(["NotBestEffort"], pods="1")))["quota"].verdict == "FAIL"
    assert findings(env_of(tmp_path), there(quotas=quota(["PriorityClass"], pods="1")))["quota"].verdict == "UNKNOWN"


def test_a_quota_over_several_namespaces_counts_too(tmp_path: Path) -> None:
    total = {"hard": {"requests.nvidia.com/gpu": "32"}, "used": {"requests.nvidia.com/gpu": "24"}}
    shared = {"metadata": {"name": "all"}, "spec": {"quota": {"hard": total["hard"]}}, "status": {"total": total}}
    found = findings(env_of(tmp_path), there(shared_quotas=Maybe([shared])))["quota"]
    assert (found.subject, found.message) == (
        "ClusterResourceQuota all",
        "requests.nvidia.com/gpu: 16 more are needed, and 24 of 32 is in use",
    )


def test_what_a_single_container_may_have_is_reported(tmp_path: Path) -> None:
    limit = {"type": "Container", "max": {"memory": "64Gi", "cpu": "64"}}
    volume = {"type": "PersistentVolumeClaim", "max": {"storage": "1Gi"}}
    ranges = Maybe([{"metadata": {"name": "small"}, "spec": {"limits": [limit, volume]}}])
    found = findings(env_of(tmp_path), there(limits=ranges))["limits"]
    assert (found.subject, found.message) == (
        "LimitRange small",
        "a container may have 64Gi of memory, and ours requests 128Gi",
    )


def test_a_namespace_that_allows_no_capabilities_is_reported_before_pods_are_refused(tmp_path: Path) -> None:
    meta = {"name": "team", "labels": {"pod-security.kubernetes.io/enforce": "baseline"}}
    strict = there(namespace=Maybe({"metadata": meta}))
    found = findings(env_of(tmp_path, RDMA, LOCKING), strict)["security level"]
    assert found.message.startswith(
        "its security level is baseline, and the pods need the capabilities IPC_LOCK, SETGID"
    )
    assert "security level" not in findings(env_of(tmp_path, RDMA, LOCKING, mode="tcp"), strict)


@pytest.mark.parametrize(
    ("changes", "kind", "check", "message"),
    [
        ({"pods": {"queue": "team-a"}}, "LocalQueue", "references", "Kueue is not installed"),
        (
            {"network": {"rdma": {**ROCE, "attachments": ["roce-0"]}}},
            "NetworkAttachmentDefinition",
            "networks",
            "Multus is not installed",
        ),
    ],
)
def test_an_operator_that_is_not_installed_is_named_with_the_field(
    tmp_path: Path, changes: Any, kind: str, check: str, message: str
) -> None:
    env = env_of(tmp_path, changes)
    nothing: Maybe[Any] = Maybe(None)
    reads = {
        "references": dict.fromkeys(references_of(env), nothing),
        "attachments": dict.fromkeys(env.cluster.network.rdma.attachments, nothing),
    }
    lacking = findings(env, there(**reads, unserved=(kind,)))[check]
    assert (lacking.verdict, lacking.message) == ("FAIL", f"the cluster does not serve {kind}: {message}")
    assert "install" in lacking.hint
    assert lacking.hint.endswith(("or remove pods.queue", "or remove network.rdma.attachments"))
    assert "does not exist" in findings(env, there(**reads))[check].message


def test_constraints_have_to_be_ours_to_give(tmp_path: Path) -> None:
    env = env_of(tmp_path, ON_OPENSHIFT, RDMA, LOCKING)
    found = findings(env, there(may_use=Maybe(False)))["constraints"]
    assert (found.verdict, found.subject) == ("FAIL", "SecurityContextConstraints gpuctl-team-lab")
    assert "constraints" not in findings(env, there())


def test_objects_and_volumes_of_others_keep_their_names(tmp_path: Path) -> None:
    own = {"storage": {"mode": "volumeClaimTemplates", "class_rwo": "nfs", "class_rwx": None}}
    env = env_of(tmp_path, own)
    theirs = {"metadata": {"name": "workspace-lab-1", "labels": {"app.kubernetes.io/managed-by": "Helm"}}, "spec": {}}
    found = findings(env, there(claims=Maybe([theirs])))["names"]
    assert found.subject == "PersistentVolumeClaim workspace-lab-1"
    assert found.message == "it exists and is not ours, and belongs to Helm; it is left alone"
    standing = [ObjectState(each, {"metadata": {"name": "x", "labels": env.labels}}) for each in everything(env)]
    assert "names" not in findings(env, there(), standing)


def test_a_right_that_is_missing_is_one_finding_a_kind(tmp_path: Path) -> None:
    may = {("create", "Secret"): Maybe(False), ("delete", "Secret"): Maybe(False), ("get", "Secret"): Maybe(True)}
    found = findings(env_of(tmp_path), there(may=may))["rights"]
    assert (found.subject, found.message) == ("Secret", "you have no permission to create, delete objects of this kind")


def test_a_kind_that_an_old_cluster_lacks_is_done_without_and_others_are_not(tmp_path: Path) -> None:
    env = env_of(tmp_path)
    objects = {each["kind"]: ObjectState(each, served=False) for each in everything(env)}
    assert findings(env, there(), [objects["PodDisruptionBudget"]])["kinds"].verdict == "WARN"
    assert findings(env, there(), [objects["NetworkPolicy"]])["kinds"].verdict == "FAIL"


def test_an_image_is_known_where_a_node_has_it_or_the_cluster_builds_it(tmp_path: Path) -> None:
    has = node("gpu-0")
    has["status"]["images"] = [{"names": ["quay.io/team/ml:1"]}]
    assert "image" not in findings(env_of(tmp_path), there(nodes=Maybe([has, node("gpu-1")])))
    runs = pod("lab-0", "gpu-0", 8)
    runs["spec"]["containers"][0]["image"] = "quay.io/team/ml:1"
    assert findings(env_of(tmp_path), there(pods=Maybe([runs])))["image"].verdict == "UNKNOWN"
    runs["status"]["conditions"] = [{"type": "Ready", "status": "True"}]
    assert "image" not in findings(env_of(tmp_path), there(pods=Maybe([runs])))
    built = env_of(tmp_path, ON_OPENSHIFT, BUILT)
    assert findings(built, there())["image"].hint == "`gpuctl cluster build` builds it"
    tags = {"status": {"tags": [{"tag": "latest", "items": [{"image": "sha256:1"}]}]}}
    assert "image" not in findings(built, there(stream=Maybe(tags)))


@pytest.mark.parametrize(
    ("said", "verdict", "words"),
    [
        ("unlimited\nCapEff:\t0000000000000000\n", "OK", "unlimited"),
        ("8192\nCapEff:\t0000000000000000\n", "WARN", "its user may lock 8 MiB: RDMA fails beyond that"),
        ("64\nCapEff:\t0000000000004000\n", "OK", "IPC_LOCK is in effect: no limit applies"),
        ("sh: ulimit: not found\n", "UNKNOWN", "it printed no limit: 'sh: ulimit: not found'"),
    ],
)
def test_what_a_pod_may_lock(said: str, verdict: str, words: str) -> None:
    found = judge("Pod lab-0", said)
    assert (found.verdict, found.message) == (verdict, words)
