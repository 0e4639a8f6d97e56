"""The environment of a cluster file as a place for tests: which pods take part, and what pods of their own are like."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from gpuctl.cluster.environment import EnvironmentRequest, environment
from gpuctl.core.errors import GpuctlError, InvalidInput
from gpuctl.workflows import nccl_on_cluster
from gpuctl.workflows.nccl_on_cluster import Place
from tests.rig.cluster.files import ROCE, cluster

LABEL = "topology.kubernetes.io/rack"


class Objects:
    """A cluster that has these objects."""

    server = "https://lab.example.org:6443"

    def __init__(self, **kinds: list[dict[str, Any]]) -> None:
        self.kinds = kinds

    def kind(self, _: str, name: str) -> str:
        return name

    def find(self, kind: str, labels: dict[str, str]) -> list[dict[str, Any]]:
        return [each for each in self.kinds[kind] if labels.items() <= each["metadata"]["labels"].items() or not labels]


def place(folder: Path, *changes: dict[str, Any], count: int | None = None, **kinds: list[dict[str, Any]]) -> Place:
    env = environment(cluster(folder, *changes), EnvironmentRequest())
    for pod in kinds.get("Pod", ()):
        pod["metadata"]["labels"] = env.selector
    there: Any = Objects(**kinds)
    return Place(there, env, count)


def pod(name: str, node: str, ready: bool = True, **meta: str) -> dict[str, Any]:
    conditions = [{"type": "Ready", "status": str(ready)}]
    return {
        "metadata": {"name": name, "uid": f"uid of {name}", **meta},
        "spec": {"nodeName": node},
        "status": {"conditions": conditions},
    }


def three(folder: Path) -> Place:
    pods = [pod("lab-2", "n7"), pod("lab-0", "n5"), pod("lab-1", "n6", ready=False)]
    return place(folder, count=4, Pod=pods)


def test_pods_that_are_ready_take_part_in_the_order_of_their_ranks(tmp_path: Path) -> None:
    at = three(tmp_path)
    assert list(nccl_on_cluster.chosen(at, "")) == ["lab-0 on n5", "lab-2 on n7"]
    assert {name: why.partition(":")[0] for name, why in at.pods[1].items()} == {
        "lab-1": "it is not ready",
        "lab-3": "it does not exist",
    }
    last = at.pods[0]["lab-2 on n7"]
    assert (last.host, last.uid) == ("lab-2.lab.team.svc", "uid of lab-2")


def test_pods_are_named_by_themselves_or_by_their_nodes(tmp_path: Path) -> None:
    assert list(nccl_on_cluster.chosen(three(tmp_path), "n7, lab-0")) == ["lab-2 on n7", "lab-0 on n5"]


@pytest.mark.parametrize(
    ("named", "wrong"),
    [("lab-1", "lab-1: it is not ready"), ("gpu-9", "neither a pod nor the node of one"), ("lab-0,n5", "a pod twice")],
)
def test_pods_that_cannot_take_part_are_refused(tmp_path: Path, named: str, wrong: str) -> None:
    with pytest.raises(InvalidInput, match=wrong):
        nccl_on_cluster.chosen(three(tmp_path), named)


def test_an_environment_without_a_ready_pod_is_no_place_for_tests(tmp_path: Path) -> None:
    at = place(tmp_path, count=1, Pod=[pod("lab-0", "n5", deletionTimestamp="2026-11-21T12:00:00Z")])
    with pytest.raises(GpuctlError, match="no pod is ready: lab-0: it is being deleted"):
        nccl_on_cluster.chosen(at, "")


def test_racks_are_those_of_the_pods_nodes(tmp_path: Path) -> None:
    nodes = [{"metadata": {"name": name, "labels": labels}} for name, labels in (("n5", {LABEL: "r1"}), ("n7", {}))]
    at = three(tmp_path)
    at.cluster.kinds["Node"] = nodes  # type: ignore[attr-defined]
    assert nccl_on_cluster.racks(at, nccl_on_cluster.chosen(at, ""), "") == {"lab-0 on n5": "r1"}


def test_pods_of_a_tests_own_are_as_the_file_has_the_environments(tmp_path: Path) -> None:
    rdma = {**ROCE, "attachments": ["rail-1", "rail-2"], "devices": ["mlx5_6", "mlx5_7"]}
    more = {"resources": {"hugepages_2mi": "5120Mi"}, "security": {"ipc_lock": True, "rdma_as_root": True}}
    image = {"image": {"pull_secret": "pull"}, "nodes": {"tolerations": ["team"]}}
    rdma["environment"] = {"NCCL_DEBUG_SUBSYS": "COLL", "NCCL_DEBUG_FILE": "/workspace/nccl.log"}
    at = place(tmp_path, {"network": {"rdma": rdma}}, more, image)
    found = nccl_on_cluster.settings(at)
    assert dict(found.fabric) == {"nvidia.com/roce": "1", "hugepages-2Mi": "5120Mi"}
    assert (found.image, found.networks, found.user) == ("quay.io/team/ml:1", "rail-1,rail-2", 0)
    assert (found.cpu, found.memory, found.pull_secret, found.tolerations) == ("32", "128Gi", "pull", ("team",))
    assert nccl_on_cluster.variables_of(at)["NCCL_IB_HCA"] == "=mlx5_6,mlx5_7"
    assert not [name for name in nccl_on_cluster.variables_of(at) if name.startswith("NCCL_DEBUG")]


def test_pods_in_the_nodes_network_are_not_imitated(tmp_path: Path) -> None:
    at = place(tmp_path, {"network": {"rdma": {**ROCE, "host_network": True}}})
    with pytest.raises(InvalidInput, match="host_network"):
        nccl_on_cluster.settings(at)


def test_only_nodes_that_the_file_allows_are_chosen_from(tmp_path: Path) -> None:
    labelled = [{"metadata": {"name": name, "labels": {"team": "ml"}}} for name in ("n1", "n2")]
    assert nccl_on_cluster.allowed_nodes(place(tmp_path)) is None
    assert list(nccl_on_cluster.allowed_nodes(place(tmp_path, {"nodes": {"gpu_nodes": ["n1", "n3"]}})) or ()) == [
        "n1",
        "n3",
    ]
    both = {"nodes": {"gpu_nodes": ["n1", "n3"], "selector": {"team": "ml"}}}
    assert nccl_on_cluster.allowed_nodes(place(tmp_path, both, Node=labelled)) == ["n1"]


def test_the_history_calls_it_by_server_and_name(tmp_path: Path) -> None:
    assert place(tmp_path).where == "https://lab.example.org:6443 lab"
    other = {"cluster": {"environment": "alice"}}
    assert place(tmp_path, other).where == "https://lab.example.org:6443 lab/alice"
