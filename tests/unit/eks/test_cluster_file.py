"""EKS cluster files: the examples, every mistake with its line, and the first file from the environment."""

from __future__ import annotations

from pathlib import Path

import pytest

from gpuctl.core.errors import InvalidInput
from gpuctl.core.paths import collection_dir
from gpuctl.eks import cluster_file, starter
from gpuctl.eks.model import Capacity

EXAMPLES = sorted((collection_dir() / "examples/eks").glob("*.yaml"))
START = """name: lab
region: us-west-2
version: "1.36"
vpc: 10.20.0.0/16
node_groups:
  - {name: gpu, instance_type: p5.48xlarge, min: 0, max: 4, desired: 2}
"""
SECOND = "{name: gpu, instance_type: g5.xlarge, min: 0, max: 1, desired: 0}"


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_examples_are_valid(path: Path) -> None:
    assert cluster_file.load(path).node_groups


def test_a_file_is_read_with_its_defaults(tmp_path: Path) -> None:
    path = tmp_path / "lab.yaml"
    path.write_text(START + "ttl: 2d\nbudget_usd: 250.50\n")
    cluster = cluster_file.load(path)
    [group] = cluster.node_groups
    assert (cluster.ttl_hours, cluster.budget_usd, str(cluster.vpc)) == (48, 250.5, "10.20.0.0/16")
    assert (group.capacity, group.placement, group.layout) == (Capacity.ON_DEMAND, "none", "efa-only")


@pytest.mark.parametrize(
    ("before", "after", "line", "words"),
    [
        ("min: 0, max: 4", "min: 5, max: 4", 6, "keep min <= desired <= max"),
        ("max: 4, desired: 2", "max: 0, desired: 0", 6, "a group that never has nodes"),
        ("desired: 2", "desired: 2, capacity: block", 6, "add `reservation: cr-…`"),
        ("desired: 2", "desired: 2, reservation: cr-0a1b2c3d", 6, "is for capacity reservation or block"),
        (
            "desired: 2",
            "desired: 2, capacity: block, reservation: cr-0a1b2c3d, placement: cluster",
            6,
            "is not for capacity blocks",
        ),
        (
            "desired: 2}",
            "desired: 2}\n  - {name: gpu, instance_type: g5.xlarge, min: 0, max: 1, desired: 0}",
            7,
            "earlier",
        ),
        ("10.20.0.0/16", "10.20.0.0/8", 4, "not a block"),
        ("10.20.0.0/16", "10.20.0.0/28", 4, "three zones need /24"),
        ("10.20.0.0/16", "8.8.0.0/16", 4, "not a private block"),
        ("vpc: 10.20.0.0/16", "subnets: [subnet-0a1b2c3d]", 4, "EKS needs subnets in two zones"),
        (
            "vpc: 10.20.0.0/16",
            "vpc: 10.20.0.0/16\nsubnets: [subnet-0a1b2c3d, subnet-0a1b2c3e]",
            1,
            "both of subnets and",
        ),
        ("vpc: 10.20.0.0/16\n", "", 1, "neither of subnets and vpc"),
        ("region: us-west-2", "region: west", 2, "not a region such as us-west-2"),
        ('"1.36"', '"1.3"', 3, "not a version such as 1.34"),
        ("name: lab\n", "name: lab\npublic_endpoint: false\nprivate_endpoint: false\n", 1, "neither a public nor"),
        ("name: lab\n", "name: lab\nttl: 0h\n", 2, "not a time such as 8h or 3d"),
        ("name: lab\n", "name: lab\nnode_group: []\n", 2, "did you mean node_groups"),
    ],
)
def test_a_mistake_is_named_with_its_line(tmp_path: Path, before: str, after: str, line: int, words: str) -> None:
    path = tmp_path / "lab.yaml"
    assert before in START
    path.write_text(START.replace(before, after))
    with pytest.raises(InvalidInput) as refusal:
        cluster_file.load(path)
    assert words in str(refusal.value)
    assert f"{path}:{line}: " in str(refusal.value)


def test_all_mistakes_are_named_at_once(tmp_path: Path) -> None:
    path = tmp_path / "lab.yaml"
    path.write_text(START.replace("us-west-2", "x").replace("1.36", "2").replace("p5.48xlarge", "p5"))
    with pytest.raises(InvalidInput) as refusal:
        cluster_file.load(path)
    assert [f":{line}: " in str(refusal.value) for line in (2, 3, 6)] == [True] * 3


def test_the_first_file_takes_its_values_from_the_environment() -> None:
    environment = {"CLUSTER_NAME": "lab", "AWS_REGION": "eu-central-1", "NODE_TYPE": "g5.xlarge", "MAX_NODES": "3"}
    cluster = cluster_file.check(starter.text(environment, "1.36"), "write it")
    [group] = cluster.node_groups
    assert (cluster.name, cluster.region, group.instance_type) == ("lab", "eu-central-1", "g5.xlarge")
    assert (group.min, group.max, group.desired) == (1, 3, 1)
    plain = cluster_file.check(starter.text({"CLUSTER_NAME": ""}, "1.36"), "write it")
    assert (plain.name, plain.region, plain.node_groups[0].instance_type) == (
        "gpu-learning-cluster",
        "us-west-2",
        "g4dn.xlarge",
    )


def test_a_value_that_breaks_the_text_is_invalid_input() -> None:
    with pytest.raises(InvalidInput, match="a value is no plain text"):
        cluster_file.check(starter.text({}, '"'), "write it")


@pytest.mark.parametrize("value", ["two words", "x\nname: y", "a: b"])
def test_a_value_of_the_environment_that_is_no_plain_word_is_refused(value: str) -> None:
    with pytest.raises(InvalidInput, match="NODE_TYPE has other characters"):
        starter.text({"NODE_TYPE": value}, "1.36")


@pytest.mark.parametrize("prefix", ["kubernetes.io", "node-role.kubernetes.io", "k8s.io", "eks.amazonaws.com"])
def test_a_label_that_eks_reserves_is_refused_in_the_file(prefix: str) -> None:
    with pytest.raises(InvalidInput, match="EKS refuses labels with the prefix"):
        cluster_file.check(labelled(f"{prefix}/gpu"), "test")


def test_labels_that_a_kubelet_may_set_and_others_are_taken() -> None:
    for label in ("node.kubernetes.io/gpu", "example.com/gpu", "gpu", "notkubernetes.io/gpu"):
        assert cluster_file.check(labelled(label), "test").node_groups[0].labels == {label: "yes"}


def labelled(label: str) -> str:
    group = f"{{name: gpu, instance_type: g4dn.xlarge, min: 0, max: 1, desired: 1, labels: {{{label}: 'yes'}}}}"
    return f"name: lab\nregion: us-east-1\nversion: '1.36'\nvpc: 10.20.0.0/16\nnode_groups: [{group}]\n"
