"""Which pods share a folder, and which can be talked to: read from their own descriptions."""

from __future__ import annotations

from typing import Any

from gpuctl.cluster.sync.targets import groups, natural, target

CLAIM = {"persistentVolumeClaim": {"claimName": "team-workspace"}}


def pod(name: str, volume: dict[str, Any], *mounts: dict[str, Any], node: str = "gpu-0") -> dict[str, Any]:
    container = {
        "name": "ml",
        "volumeMounts": [{"name": "v", **mount} for mount in mounts or ({"mountPath": "/workspace"},)],
    }
    spec = {"containers": [{"name": "sidecar"}, container], "volumes": [{"name": "v", **volume}], "nodeName": node}
    running: list[dict[str, Any]] = [{"name": each, "state": {"running": {}}} for each in ("sidecar", "ml")]
    return {"metadata": {"name": name}, "spec": spec, "status": {"phase": "Running", "containerStatuses": running}}


def shared(first: dict[str, Any], second: dict[str, Any], folder: str = "/workspace/code") -> bool:
    return len(groups([target(first, folder), target(second, folder)])) == 1


def test_pods_with_the_same_claim_share_the_folder() -> None:
    assert shared(pod("a-0", CLAIM), pod("a-1", CLAIM))
    other = {"persistentVolumeClaim": {"claimName": "workspace-a-1"}}
    assert not shared(pod("a-0", CLAIM), pod("a-1", other))


def test_a_folder_beside_the_mount_or_in_memory_is_each_pods_own() -> None:
    assert not shared(pod("a-0", CLAIM), pod("a-1", CLAIM), "/workspaces/code")
    assert not shared(pod("a-0", {"emptyDir": {}}), pod("a-1", {"emptyDir": {}}))


def test_another_part_of_the_same_claim_is_another_folder() -> None:
    part = {"mountPath": "/workspace", "subPath": "ann"}
    assert not shared(pod("a-0", CLAIM, part), pod("a-1", CLAIM))
    assert shared(pod("a-0", CLAIM, part), pod("a-1", CLAIM, {"mountPath": "/workspace", "subPath": "ann/"}))
    by_name = {"mountPath": "/workspace", "subPathExpr": "$(POD_NAME)"}
    assert not shared(pod("a-0", CLAIM, by_name), pod("a-1", CLAIM, by_name))


def test_the_same_folder_by_two_ways_is_one() -> None:
    whole, part = pod("a-0", CLAIM), pod("a-1", CLAIM, {"mountPath": "/workspace/code", "subPath": "code"})
    assert shared(whole, part)


def test_a_folder_of_the_node_is_shared_on_that_node_only() -> None:
    disk = {"hostPath": {"path": "/scratch"}}
    assert shared(pod("a-0", disk), pod("a-1", disk))
    assert not shared(pod("a-0", disk), pod("a-1", disk, node="gpu-1"))


def test_a_share_of_a_server_is_shared() -> None:
    share = {"nfs": {"server": "filer", "path": "/export"}}
    assert shared(pod("a-0", share), pod("a-1", share))


def test_the_first_that_runs_gets_it() -> None:
    away = pod("a-0", CLAIM)
    away["status"] = {"phase": "Pending"}
    (group,) = groups([target(each, "/workspace") for each in (pod("a-10", CLAIM), away, pod("a-2", CLAIM))])
    assert [each.pod for each in group] == ["a-2", "a-10", "a-0"]
    assert group[2].wrong == "it is not running (Pending)"


def test_the_container_is_ours_or_the_one_that_is_named() -> None:
    found = pod("a-0", CLAIM)
    assert target(found, "/workspace").container == "ml"
    assert target(found, "/workspace", "sidecar").container == "sidecar"
    assert target(found, "/workspace", "web").wrong == "it has no container web, but sidecar, ml"


def test_a_pod_that_is_ending_is_left_alone() -> None:
    found = pod("a-0", CLAIM)
    found["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    assert target(found, "/workspace").wrong == "it is terminating"


def test_pods_are_sorted_by_their_numbers() -> None:
    assert sorted(["a-10", "a-9", "b-1", "a"], key=natural) == ["a", "a-9", "a-10", "b-1"]
