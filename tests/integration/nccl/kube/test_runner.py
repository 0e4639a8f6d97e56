"""Launches on a real Kubernetes API: objects are made, waited for, read and removed, however it ends."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from gpuctl.core.errors import GpuctlError
from gpuctl.core.run_history import current_user
from gpuctl.domain.kube_errors import Forbidden
from gpuctl.edges.kube import cluster as kube
from gpuctl.nccl.model import Launch, LaunchResult, Outcome, Sweep
from gpuctl.nccl.runners.kube import leftovers, nodes
from gpuctl.nccl.runners.kube.model import BY, LASTS, OURS, RUN, Settings
from gpuctl.nccl.runners.kube.runner import KubeRunner
from tests.integration.nccl.kube.containers import DATA, Containers, Script
from tests.rig.kube.kubelet import pod
from tests.rig.kube.plane import Plane, for_tests

ALL = "pods,services,secrets"
PAIR = ("gpu-0", "gpu-1")
COMPLETE = (DATA / "a100_2n16g_elided_noavg.log").read_text()


@pytest.fixture(scope="module")
def cluster() -> Iterator[Plane]:
    yield from for_tests()


@pytest.fixture
def others(cluster: Plane) -> Iterator[None]:
    """Objects of somebody else, one of them with a label like ours: they must stay."""
    labels = {"app.kubernetes.io/name": "nccl", "app.kubernetes.io/managed-by": "Helm"}
    cluster.apply({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "theirs", "labels": labels}})
    yield
    assert "theirs" in cluster.kubectl("get", "secrets", "-o", "name")
    assert cluster.kubectl("get", ALL, "-l", "app.kubernetes.io/managed-by=gpuctl", "-o", "name") == ""


def runner(cluster: Plane, **more: Any) -> KubeRunner:
    settings = Settings(**{"image": "example/nccl-tests:1", "start_s": 20.0, **more})
    return KubeRunner(kube.connect(files=[cluster.kubeconfig], patience_s=15), settings)


def launch(*names: str, limit_s: float = 30) -> Launch:
    return Launch(names or PAIR, Sweep(limit_s=limit_s))


def run(
    found: KubeRunner, *launches: Launch, broken_off: Callable[[], bool] = lambda: False
) -> tuple[list[LaunchResult], list[str]]:
    said: list[str] = []
    return found.run(launches or [launch()], lambda _, words: said.append(words), broken_off), said


@pytest.mark.usefixtures("others")
def test_a_run_over_two_nodes_is_read_and_all_of_it_removed(cluster: Plane) -> None:
    with Containers(cluster, Script(COMPLETE)):
        (ended,), said = run(runner(cluster))
    assert ended.run.outcome is Outcome.COMPLETE, ended.run.cause
    assert len(ended.run.rows) == COMPLETE.count(" float ")
    assert {rank.host for rank in ended.run.ranks} == set(PAIR)
    assert (said[0], said[1]) == ("its pods are made", "started")
    assert ended.lost == ()


@pytest.mark.usefixtures("others")
def test_single_nodes_run_at_the_same_time_without_service_or_keys(cluster: Plane) -> None:
    with Containers(cluster, Script((DATA / "a100_8g_allreduce_old_unchecked.log").read_text())) as script:
        ends, _ = run(runner(cluster), launch("gpu-0"), launch("gpu-1"))
    assert [end.run.outcome for end in ends] == [Outcome.COMPLETE] * 2
    assert [name[-11:] for name in sorted(script.seen)] == ["-0-launcher", "-1-launcher"]


@pytest.mark.usefixtures("others")
def test_what_the_test_said_of_its_failure_is_the_cause(cluster: Plane) -> None:
    text = "w1: Test NCCL failure all_reduce.cu:44 'unhandled system error (run with NCCL_DEBUG=INFO for details) / '\n"
    with Containers(cluster, Script(text, code=3)):
        (ended,), _ = run(runner(cluster))
    assert ended.run.outcome is Outcome.FAILED
    assert ended.run.cause
    assert "unhandled system error" in ended.run.cause


@pytest.mark.usefixtures("others")
def test_an_image_without_the_test_is_said(cluster: Plane) -> None:
    with Containers(cluster, Script("gpuctl: missing all_reduce_perf\n", code=127)):
        (ended,), _ = run(runner(cluster))
    assert ended.run.outcome is Outcome.EMPTY
    assert "the image example/nccl-tests:1 has no all_reduce_perf" in str(ended.run.cause)


@pytest.mark.usefixtures("others")
def test_a_launcher_out_of_memory_says_nothing_of_the_nodes(cluster: Plane) -> None:
    with Containers(cluster, Script("", code=137, reason="OOMKilled")):
        (ended,), _ = run(runner(cluster))
    assert (ended.run.outcome, ended.run.cause) == (
        Outcome.EMPTY,
        "not known: the launcher: its pod was out of memory (OOMKilled)",
    )


@pytest.mark.usefixtures("others")
def test_a_worker_that_is_evicted_is_named_by_its_node(cluster: Plane) -> None:
    with Containers(cluster, Script(COMPLETE[:3000], code=None)) as script:
        found = runner(cluster)
        threading.Thread(target=evict, args=(cluster, script), daemon=True).start()
        (ended,), _ = run(found)
    assert ended.run.outcome is Outcome.KILLED
    assert str(ended.run.cause).startswith("gpu-1: its pod was ended (Evicted): the node was low on memory")


def evict(cluster: Plane, script: Script) -> None:
    """The kubelet evicts the second worker; mpirun then ends, as it does when it loses a node."""
    while not script.seen:
        time.sleep(0.05)
    name = script.seen[0]
    cluster.status(
        name.replace("launcher", "w1"),
        {"phase": "Failed", "reason": "Evicted", "message": "the node was low on memory"},
    )
    cluster.status(name, {"phase": "Failed"})


@pytest.mark.usefixtures("others")
def test_a_run_without_an_end_is_a_hang_and_is_ended_at_its_limit(cluster: Plane) -> None:
    begun = time.monotonic()
    begins, _, _ = COMPLETE.partition("  8589934592")
    with Containers(cluster, Script(begins, code=None)):
        (ended,), _ = run(runner(cluster), launch(limit_s=2))
    assert ended.run.outcome is Outcome.HUNG
    assert str(ended.run.cause).startswith("no end within 2 s, after 4G: no pod was lost")
    assert ended.waiting == dict.fromkeys(PAIR, "unknown")
    assert ended.seconds >= 2
    assert time.monotonic() - begun < 30


@pytest.mark.usefixtures("others")
def test_a_hang_is_told_by_what_the_launcher_saw_of_the_ranks(cluster: Plane) -> None:
    begins, _, _ = COMPLETE.partition("  8589934592")
    looks = [
        *("w0 0 17 R 5,0,1, 0", "w0 1 17 R 9,0,1, 0", "w0 end"),
        *("w1 0 18 S 5,0,1, 8", "w1 1 18 S 5,0,1, 8", "w1 end"),
    ]
    text = begins + "".join(f"gpuctl: look {line}\n" for line in looks) + "gpuctl: looked\n"
    begun = time.monotonic()
    with Containers(cluster, Script(text, code=None)):
        sweep = Sweep(limit_s=2, gpus_per_node=1)
        (ended,), said = run(runner(cluster), Launch(PAIR, sweep))
    assert str(ended.run.cause) == ("no end within 2 s, after 4G: on gpu-1 rank 8 is doing nothing; gpu-0 waits for it")
    assert ended.waiting == {"gpu-0": "waiting", "gpu-1": "gone"}
    assert "not finished within its limit: checking which ranks wait for which, then ending it" in said
    assert time.monotonic() - begun < 12  # nobody waits longer than the launcher takes


@pytest.mark.usefixtures("others")
def test_breaking_off_removes_all_at_once(cluster: Plane) -> None:
    with Containers(cluster, Script(COMPLETE[:3000], code=None)) as script:
        (ended,), _ = run(runner(cluster), broken_off=lambda: bool(script.seen))
    assert (ended.run.outcome, ended.run.cause) == (Outcome.KILLED, "broken off")


@pytest.mark.usefixtures("others")
def test_an_exception_in_the_middle_removes_all_too(cluster: Plane) -> None:
    with Containers(cluster, Script("", code=None)) as script:

        def interrupted() -> bool:
            if script.seen:
                raise KeyboardInterrupt
            return False

        with pytest.raises(KeyboardInterrupt):
            run(runner(cluster), broken_off=interrupted)


@pytest.mark.usefixtures("others")
def test_a_node_without_room_is_said_while_it_waits_and_after(cluster: Plane) -> None:
    (ended,), said = run(runner(cluster, gpu="example.com/other", start_s=2.0))
    assert ended.run.outcome is Outcome.EMPTY
    assert str(ended.run.cause).startswith("gpu-0: it cannot be placed: 0/2 nodes are available")
    assert "Insufficient example.com/other" in str(ended.run.cause)
    assert any(words.startswith("waiting: gpu-0: it cannot be placed") for words in said)


@pytest.mark.usefixtures("others")
def test_a_quota_that_is_used_up_is_raised_and_leaves_nothing(cluster: Plane) -> None:
    quota = {"apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": "one"}, "spec": {"hard": {"pods": "1"}}}
    cluster.apply(quota)
    found = runner(cluster)
    try:
        cluster.kubectl("wait", "--for=jsonpath={.status.hard.pods}=1", "quota/one", check=False)
        with pytest.raises(Forbidden, match=r"the quota one does not allow pods=1 more: pods=1 of pods=1 is in use"):
            run(found)
    finally:
        cluster.kubectl("delete", "quota", "one")


@pytest.mark.usefixtures("others")
def test_the_server_takes_every_object(cluster: Plane) -> None:
    found = runner(cluster, fabric={"vpc.amazonaws.com/efa": "32", "hugepages-2Mi": "5120Mi"}, networks="rail-0")
    found.validate([launch(), launch("gpu-0")])


@pytest.mark.usefixtures("others")
def test_what_a_killed_run_left_goes_once_its_time_is_over_and_nothing_else(cluster: Plane) -> None:
    found = kube.connect(files=[cluster.kubeconfig])
    for name, by, lasts in (
        ("over", current_user(), "0"),
        ("goes-on", current_user(), "600"),
        ("strange", "eve@elsewhere", "0"),
    ):
        cluster.apply(left_over(name, by, lasts))
    time.sleep(1.1)  # the cluster's clock has whole seconds
    assert leftovers.remove(found, current_user()) == ["over"]
    left = cluster.kubectl("get", "secrets", "-l", "app.kubernetes.io/managed-by=gpuctl", "-o", "name").split()
    assert left == ["secret/goes-on", "secret/strange"]
    cluster.kubectl("delete", "secrets", "goes-on", "strange")


def left_over(name: str, by: str, lasts_s: str) -> dict[str, Any]:
    meta = {"name": name, "labels": {**OURS, RUN: name}, "annotations": {BY: by, LASTS: lasts_s}}
    return {"apiVersion": "v1", "kind": "Secret", "metadata": meta}


def test_who_may_not_make_pods_is_told_and_leaves_nothing(cluster: Plane) -> None:
    at = {"namespace": "default"}
    rule = {"apiGroups": [""], "resources": ["secrets", "services"], "verbs": ["*"]}
    reads = {"apiGroups": [""], "resources": ["pods"], "verbs": ["get", "list", "watch", "delete"]}
    names = {"apiVersion": "rbac.authorization.k8s.io/v1", "metadata": {"name": "some", **at}}
    subject = {"kind": "ServiceAccount", "name": "default", **at}
    role = {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "some"}
    cluster.apply(
        {**names, "kind": "Role", "rules": [rule, reads]},
        {**names, "kind": "RoleBinding", "subjects": [subject], "roleRef": role},
    )
    found = runner(cluster)
    found.cluster = kube.connect(files=[cluster.as_account(cluster.folder)])
    with pytest.raises(
        Forbidden, match=r'serviceaccount:default:default" has no permission to patch pods in the namespace default'
    ):
        run(found)
    assert cluster.kubectl("get", ALL, "-l", "app.kubernetes.io/managed-by=gpuctl", "-o", "name") == ""


def test_an_api_that_goes_away_accuses_no_node(cluster: Plane) -> None:
    found = runner(cluster)
    found.cluster.patience_s = 1
    with Containers(cluster, Script(COMPLETE[:3000], code=None)) as script:
        threading.Thread(target=take_away, args=(cluster, found, script), daemon=True).start()
        (ended,), said = run(found)
    assert ended.run.outcome is Outcome.EMPTY
    assert str(ended.run.cause).startswith("not known: cannot ")
    assert (ended.run.rows, ended.lost) == ((), ())
    assert any(words.startswith("not removed: ") for words in said)
    cluster.kubectl("delete", ALL, "-l", "app.kubernetes.io/managed-by=gpuctl", "--wait=true")


def take_away(cluster: Plane, found: KubeRunner, script: Script) -> None:
    """From the runner's point of view: it is cut off from the API, which goes on."""
    while not script.seen:
        time.sleep(0.05)
    found.cluster.client.configuration.host = "https://127.0.0.1:9"


def test_gpu_nodes_are_found_with_their_free_gpus_and_why_others_are_not(cluster: Plane) -> None:
    found = kube.connect(files=[cluster.kubeconfig])
    cluster.apply(gpu_pod("trains", 6))
    try:
        cluster.kubectl("wait", "--for=condition=Ready", "pod/trains", "--timeout=30s")
        there = nodes.find(found, "nvidia.com/gpu", 8)
        assert dict(there.free) == {"gpu-0": 8}
        assert dict(there.left_out) == {"gpu-1": "6 of its 8 GPUs are in use by default/trains"}
        assert dict(nodes.find(found, "nvidia.com/gpu", 2).free) == {"gpu-0": 8, "gpu-1": 2}
    finally:
        cluster.kubectl("delete", "pod", "trains")
    with pytest.raises(GpuctlError, match=r"no node of .* has amd\.com/gpu"):
        nodes.find(found, "amd.com/gpu", 1)


def gpu_pod(name: str, gpus: int) -> dict[str, Any]:
    found = pod(name)
    found["spec"]["containers"][0]["resources"] = {"limits": {"nvidia.com/gpu": str(gpus)}}
    found["spec"]["nodeName"] = "gpu-1"
    return found


def test_who_may_not_list_all_pods_is_told_that_free_is_not_known(cluster: Plane) -> None:
    at = {"apiVersion": "rbac.authorization.k8s.io/v1"}
    reads = {"apiGroups": [""], "resources": ["nodes"], "verbs": ["list"]}
    subject = {"kind": "ServiceAccount", "name": "default", "namespace": "default"}
    role = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "nodes"}
    cluster.apply(
        {**at, "kind": "ClusterRole", "metadata": {"name": "nodes"}, "rules": [reads]},
        {**at, "kind": "ClusterRoleBinding", "metadata": {"name": "nodes"}, "subjects": [subject], "roleRef": role},
    )
    found = nodes.find(kube.connect(files=[cluster.as_account(cluster.folder)]), "nvidia.com/gpu", 8)
    assert list(found.free) == ["gpu-0", "gpu-1"]
    assert (
        found.unsure
        == "whether GPUs are in use is not known: you have no permission to list the pods of all namespaces"
    )
