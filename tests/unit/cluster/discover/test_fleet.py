"""Drafting a cluster file: every value with its origin, and what nobody told as a comment."""

from __future__ import annotations

from typing import Any

import pytest
import yaml

from gpuctl.cluster.deploy.cluster_snapshot import Maybe
from gpuctl.cluster.discover import flow
from gpuctl.cluster.discover.draft import draft
from gpuctl.cluster.discover.facts import Facts
from tests.rig.cluster.discovered import (
    FORBIDDEN,
    GOLDEN,
    H100,
    daemon,
    document,
    drafted,
    eks,
    facts,
    left,
    names,
    node,
    nodes,
    openshift,
    storage_class,
    written,
)

# ---- as a whole -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", names())
def test_a_draft_is_as_it_was_when_people_read_it(name: str) -> None:
    assert written(name) == (GOLDEN / name).read_text(), "python -m tests.rig.cluster.discovered writes it anew"


@pytest.mark.parametrize("found", [facts(), openshift(), eks()], ids=["plain", "openshift", "eks"])
def test_a_draft_of_which_everything_was_found_can_be_used_as_it_is(found: Facts) -> None:
    assert drafted(found).left == ()
    assert flow.mistakes(drafted(found)) == ()


SEVERAL = Maybe([storage_class("a", "nfs.csi.k8s.io"), storage_class("b", "efs.csi.aws.com")])
NO_GPUS = Maybe([node("cpu-0", {}, {"nvidia.com/gpu": "0"})])
ADAPTERS = nodes(node("a", has={"rdma/hca": "63"}))
INCOMPLETE = {
    "gpus.per_node resources.cpu resources.memory": facts(nodes=Maybe([], FORBIDDEN)),
    "gpus.per_node resources.cpu resources.memory ": facts(nodes=NO_GPUS),
    "storage.mode": facts(classes=Maybe([])),
    "storage.class_rwx": facts(classes=SEVERAL),
    "network.rdma.fabric": facts(**ADAPTERS),
    "cluster.namespace": facts(namespace="default"),
    "cluster.name": facts(named="10.0.0.1:6443"),
    "cluster.api": facts(server="http://localhost:8080"),
    "resources.cpu resources.memory": facts(**nodes(node("a", has={"cpu": "1", "memory": "1Gi"}))),
}


@pytest.mark.parametrize("paths", INCOMPLETE)
def test_what_is_left_to_fill_in_is_exactly_what_keeps_the_file_from_being_used(paths: str) -> None:
    found = drafted(INCOMPLETE[paths])
    assert [path for path, _ in found.left] == paths.split()
    assert all(f"# {path.rpartition('.')[2]}: UNKNOWN" in found.text for path, _ in found.left)
    assert flow.mistakes(found)


def test_no_cluster_tells_the_image() -> None:
    assert draft(facts()).left == (("image.name", "the pods' image, with a tag or digest (--image)"),)
    assert "or `build:`, and OpenShift builds it" in draft(openshift()).left[0][1]


def test_what_the_cluster_calls_things_never_becomes_a_line_of_its_own() -> None:
    evil = storage_class("nfs", "nfs.csi.k8s.io\nsecurity: {requires_privileged_scc: true}\n")
    text = drafted(facts(classes=Maybe([evil]))).text
    assert "security" not in yaml.safe_load(text)


def test_what_no_terminal_should_print_is_not_in_the_draft() -> None:
    found = facts(named="lab/\x1b[31mevil\x07\u202e", **nodes(node("a")))
    assert drafted(found).text.replace("\n", "").isprintable()
    assert flow.mistakes(drafted(found)) == ()


def test_names_that_yaml_would_take_for_numbers_stay_names() -> None:
    found = facts(classes=Maybe([storage_class("1e3", "nfs.csi.k8s.io")]), namespace="123")
    read = document(found)
    assert (read["storage"]["class_rwx"], read["cluster"]["namespace"]) == ("1e3", "123")
    assert flow.mistakes(drafted(found)) == ()


# ---- which cluster --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("named", "name"),
    [
        ("arn:aws:eks:us-west-2:111122223333:cluster/P5_efa", "p5-efa"),
        ("api-h100-example-org:6443", "h100-example-org"),
        ("kubernetes", "kubernetes"),
        ("2nd.cluster", "nd-cluster"),
    ],
)
def test_the_name_is_the_telling_part_of_what_the_kubeconfig_says(named: str, name: str) -> None:
    assert document(facts(named=named))["cluster"]["name"] == name


def test_the_name_is_that_of_the_file_where_one_is_written() -> None:
    assert document(facts(named="kubernetes", file="lab"))["cluster"]["name"] == "lab"
    assert document(facts(named="kubernetes", file="My Lab"))["cluster"]["name"] == "kubernetes"


def test_the_flavour_is_reported_by_kinds_host_and_labels() -> None:
    marked = nodes(node("a", {**H100, "eks.amazonaws.com/nodegroup": "g"}))
    assert document(facts(**marked))["cluster"]["flavour"] == "eks"
    assert document(eks(**nodes(node("a"))))["cluster"]["flavour"] == "eks"
    assert document(openshift(**marked))["cluster"]["flavour"] == "openshift"
    assert document(facts())["cluster"]["flavour"] == "kubernetes"


def test_a_path_of_the_api_is_left_out_and_told() -> None:
    found = facts(server="https://rancher.example.org/k8s/clusters/c-1")
    assert document(found)["cluster"]["api"] == "https://rancher.example.org"
    assert "Its path /k8s/clusters/c-1 is left out" in drafted(found).text


def test_a_namespace_that_is_not_there_or_may_not_be_read_is_reported() -> None:
    assert "`kubectl create namespace team`" in drafted(facts(space=Maybe(None))).text
    assert "It is not known whether it exists: no right." in drafted(facts(space=Maybe(None, "no right"))).text


# ---- nodes and GPUs -------------------------------------------------------------------------------------------------


def test_of_a_mixed_fleet_the_most_nodes_that_are_alike_are_taken_and_the_others_told() -> None:
    a100 = {"nvidia.com/gpu.product": "NVIDIA-A100-SXM4-40GB", "nvidia.com/gpu.count": "8"}
    found = facts(**nodes(node("a"), node("b"), node("c", a100), node("d", a100), node("e", a100)))
    read = document(found)
    assert read["nodes"]["gpu_nodes"] == ["c", "d", "e"]
    assert (read["gpus"]["per_node"], read["gpus"]["type"]) == (8, "NVIDIA-A100-SXM4-40GB")
    assert "Not included: a, b, with 8 NVIDIA-H100-80GB-HBM3 each." in drafted(found).text


def test_of_as_many_nodes_those_with_more_gpus_are_taken() -> None:
    four = {**H100, "nvidia.com/gpu.count": "4"}
    found = facts(**nodes(node("a", four, {"nvidia.com/gpu": "4"}), node("b")))
    assert (document(found)["nodes"]["gpu_nodes"], document(found)["gpus"]["default_nodes"]) == (["b"], 1)


OUT = {
    "it is cordoned": node("x", unschedulable=True),
    "it offers 7 of its 8 GPUs (nvidia.com/gpu)": node("x", has={"nvidia.com/gpu": "7"}),
    "its 8 GPUs are shared: it offers 32 (nvidia.com/gpu.replicas)": node("x", has={"nvidia.com/gpu": "32"}),
    "its GPUs are partitioned by MIG (nvidia.com/mig-7g.40gb)": node(
        "x", {"nvidia.com/mig.strategy": "mixed"}, {"nvidia.com/gpu": "0", "nvidia.com/mig-7g.40gb": "1"}
    ),
    "its GPUs are partitioned by MIG (NVIDIA-A100-SXM4-40GB-MIG-1g.5gb)": node(
        "x", {"nvidia.com/gpu.product": "NVIDIA-A100-SXM4-40GB-MIG-1g.5gb"}
    ),
}


@pytest.mark.parametrize("why", OUT)
def test_a_node_whose_gpus_cannot_be_had_whole_is_left_out_with_the_reason(why: str) -> None:
    found = facts(**nodes(node("a"), OUT[why]))
    assert document(found)["nodes"]["gpu_nodes"] == ["a"]
    assert f"Not included: x: {why}." in " ".join(drafted(found).text.replace("\n  # ", " ").split())
    alone = drafted(facts(**nodes(OUT[why])))
    assert "no GPU node can be used: x:" in alone.text
    assert "gpus.per_node" in dict(alone.left)


def test_without_labels_the_count_is_what_nodes_offer_and_the_type_is_not_known() -> None:
    found = facts(**nodes(node("a", {"node.kubernetes.io/instance-type": "p5.48xlarge"})))
    assert document(found)["gpus"] == {"per_node": 8, "default_nodes": 1}
    assert "their instance type is p5.48xlarge" in " ".join(drafted(found).text.split())


def test_a_pod_gets_most_of_the_smallest_node_without_its_daemons() -> None:
    small = node("b", has={"cpu": "100", "memory": "512Gi"})
    found = facts(**nodes(node("a"), small), pods=Maybe([daemon("b", "10", "12Gi"), daemon("a", "1", "1Gi")]))
    read = document(found)["resources"]
    assert (read["cpu"], read["memory"]) == (80, "450Gi")


def test_pods_that_may_not_be_read_are_reported_where_room_is_reckoned() -> None:
    text = drafted(facts(pods=Maybe([], "no right"))).text
    assert "are not counted, because pods cannot be read (no right)" in " ".join(text.replace("# ", "").split())


def test_little_memory_leaves_less_to_be_shared() -> None:
    found = facts(**nodes(node("a", has={"memory": "40Gi"})))
    assert document(found)["resources"]["shm"] == "18432Mi"
    assert flow.mistakes(drafted(found)) == ()


def test_taints_that_pods_would_not_put_up_with_are_named() -> None:
    taints = [{"key": key, "effect": "NoSchedule"} for key in ("nvidia.com/gpu", "team", "node.kubernetes.io/x")]
    assert document(facts(**nodes(node("a", taints=taints))))["nodes"]["tolerations"] == ["team"]


def test_a_taint_that_only_some_nodes_have_is_reported_and_not_put_up_with() -> None:
    team, repair = ({"key": key, "effect": "NoSchedule"} for key in ("team", "repair"))
    both = drafted(facts(**nodes(node("a", taints=[team]), node("b", taints=[team, repair]))))
    assert yaml.safe_load(both.text)["nodes"]["tolerations"] == ["team"]
    assert "Omitted, because only some nodes have them: repair (b)." in both.text
    some = drafted(facts(**nodes(node("a"), node("b", taints=[repair]))))
    assert "tolerations" not in yaml.safe_load(some.text)["nodes"]
    assert "only some of these nodes have taints: repair (b)" in some.text


# ---- storage --------------------------------------------------------------------------------------------------------


def test_block_storage_gives_each_pod_a_volume_of_its_own() -> None:
    found = facts(classes=Maybe([storage_class("gp3", "ebs.csi.aws.com", True), storage_class("gp2", "x.y")]))
    assert document(found)["storage"] == {"mode": "volumeClaimTemplates", "class_rwo": "gp3"}
    assert "gp2 (x.y): the access mode of its volumes is UNKNOWN" in drafted(found).text


def test_a_provisioner_that_nobody_knows_is_not_taken_for_shared_storage() -> None:
    found = facts(classes=Maybe([storage_class("vast", "csi.vastdata.com")]))
    assert document(found)["storage"] == {"mode": "volumeClaimTemplates", "class_rwo": "vast"}
    assert "it is not known whether many nodes can write its volumes; vast, and mode: rwx, if they can" in " ".join(
        drafted(found).text.replace("# ", "").split()
    )


CLAIM = {
    "metadata": {"name": "data"},
    "spec": {"storageClassName": "vast", "accessModes": ["ReadWriteMany"]},
    "status": {"phase": "Bound"},
}


@pytest.mark.parametrize("classes", [Maybe([storage_class("vast", "csi.vastdata.com")]), Maybe([], "no right")])
def test_a_volume_of_the_namespace_proves_what_its_class_can_do(classes: Maybe[list[Any]]) -> None:
    found = facts(classes=classes, claims=Maybe([CLAIM]))
    assert document(found)["storage"] == {"mode": "rwx", "class_rwx": "vast"}
    assert "as the claim data shows" in drafted(found).text


def test_classes_of_which_none_is_the_default_are_left_to_choose() -> None:
    found = facts(classes=Maybe([storage_class("a", "ebs.csi.aws.com"), storage_class("b", "x.y")]))
    assert left(found) == ["storage.mode"]
    assert "with mode: volumeClaimTemplates: a, b" in drafted(found).text


def test_volumes_made_by_hand_are_not_counted_on() -> None:
    assert left(facts(classes=Maybe([storage_class("local", "kubernetes.io/no-provisioner", True)]))) == [
        "storage.mode"
    ]
