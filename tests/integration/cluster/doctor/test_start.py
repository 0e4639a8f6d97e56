"""`gpuctl cluster doctor NAME start` on a real control plane: each cause is found and named; nothing is touched.

What a kubelet says of containers is said in its place (`says`): no container runs on this control plane.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from gpuctl.cluster.doctor import flow
from gpuctl.cluster.doctor.model import Diagnosis, Name
from gpuctl.cluster.doctor.probe_pods import ProbeOptions
from tests.integration.cluster.deploy import lab as made
from tests.integration.cluster.deploy.lab import DEVICES, ROOM, Lab, standin_provisioner, wait_for
from tests.rig.command import Gpuctl, Said
from tests.rig.kube import plane as kube_plane
from tests.rig.kube.plane import Plane
from tests.rig.reports import valid_json, valid_junit, valid_metrics

DEPLOYED = "gpuctl.cluster.doctor.deployed"  # class name of the JUnit test cases of this check
NOT_READY = [
    {"type": "PodScheduled", "status": "True"},
    {"type": "Ready", "status": "False", "reason": "ContainersNotReady"},
]


@pytest.fixture(scope="module")
def plane() -> Iterator[Plane]:
    for started in kube_plane.for_tests():
        made.prepare(started, nodes=2)
        yield started


@pytest.fixture
def bare(plane: Plane, tmp_path: Path) -> Iterator[Lab]:
    """Where nobody makes volumes."""
    yield from made.namespaces(plane, tmp_path)


@pytest.fixture
def lab(bare: Lab) -> Iterator[Lab]:
    with standin_provisioner(bare.plane):
        yield bare


@pytest.fixture
def gpuctl(tmp_path: Path) -> Gpuctl:
    return Gpuctl(tmp_path)


def doctor(lab: Lab, trouble: Name | None = None) -> Diagnosis:
    """What the doctor says of one trouble; objects are the same before and after, but for what controllers write."""
    before = _objects(lab)
    request = flow.DoctorRequest(lab.file(), trouble=trouble)
    (found,) = flow.examine(ProbeOptions(lab.cluster()), request).diagnoses
    assert _objects(lab) == before
    return found


def command(gpuctl: Gpuctl, lab: Lab, *words: str, changes: Mapping[str, Any] | None = None) -> Said:
    """The same as a user has it."""
    path = lab.path(changes or {})
    return gpuctl("cluster", "doctor", path, *words, KUBECONFIG=str(lab.plane.kubeconfig))


def _objects(lab: Lab) -> list[str]:
    return [line.rpartition(" ")[0] for line in lab.names()]


def cause(found: Diagnosis) -> str:
    """The findings that it calls the cause, each in a line, with the check and the subject."""
    return "\n".join(f"{each.check}: {each.subject}: {each.message}" for each in found.cause)


def says(lab: Lab, name: str, container: Mapping[str, Any], log: str = "") -> dict[str, Any]:
    """A kubelet's word on a pod that is not ready; the pod as it then is."""
    status = {"name": "ml", "image": "quay.io/team/ml:1", "imageID": "", "ready": False, "restartCount": 0, **container}
    if log:
        note = {"metadata": {"annotations": {"standin/log": log, "standin/previous-log": log}}}
        lab.plane.api("PATCH", f"/api/v1/namespaces/{lab.namespace}/pods/{name}", note)
    told = {"phase": "Running", "conditions": NOT_READY, "containerStatuses": [status]}
    lab.plane.status(name, told, lab.namespace)
    found: dict[str, Any] = lab.get("pod", name)
    return found


def event(lab: Lab, about: Mapping[str, Any], reason: str, message: str) -> None:
    meta, now = about["metadata"], time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
    uid = {"kind": about["kind"], "namespace": lab.namespace, "name": meta["name"], "uid": meta["uid"]}
    told = {"involvedObject": uid, "reason": reason, "message": message, "type": "Warning", "lastTimestamp": now}
    where = f"/api/v1/namespaces/{lab.namespace}/events"
    lab.plane.api("POST", where, {"metadata": {"name": f"{meta['name']}.{time.monotonic_ns()}"}, **told})


def test_what_is_not_deployed_is_reported_and_what_is_well_as_well(lab: Lab, gpuctl: Gpuctl) -> None:
    assert cause(doctor(lab)) == f"deployed: lab: it is not deployed in {lab.namespace}"
    lab.deploy(nodes=2)
    before = lab.names()
    said = command(gpuctl, lab, "start")
    assert lab.names() == before
    assert said.code == 0, said.out + said.err
    assert said.out.startswith(f"lab in {lab.namespace}, 2 pods: a pod will not start?\nno cause found\n")
    assert "checked: deployed, created, nodes, volumes, scheduled" in said.out


def test_reports_of_a_live_cluster_fit_their_formats(lab: Lab, gpuctl: Gpuctl) -> None:
    metrics = gpuctl.home / "doctor.prom"
    junit = command(gpuctl, lab, "start", "-o", "junit", "--metrics", str(metrics))
    assert junit.code == 1, junit.err
    assert valid_junit(junit.out)[DEPLOYED, "lab"] == "failure"
    samples = valid_metrics(metrics.read_text())
    severities = {(row["target"], row["check"]): value for row, value in samples["gpuctl_check_severity"]}
    assert severities["lab start", "deployed"] == 3
    document = valid_json(command(gpuctl, lab, "start", "-o", "json").out)
    assert ("deployed", "FAIL") in {(row["check"], row["verdict"]) for row in document["findings"]}
    lab.deploy(nodes=2)
    junit = command(gpuctl, lab, "start", "-o", "junit", "--metrics", str(metrics))
    assert junit.code == 0, junit.out + junit.err
    assert valid_junit(junit.out)[DEPLOYED, "deployed"] == "passed"
    valid_metrics(metrics.read_text())


def test_a_quota_that_allows_no_more_pods_is_the_cause(lab: Lab) -> None:
    lab.deploy(nodes=1)
    quota = {"apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": "few", "namespace": lab.namespace}}
    lab.plane.apply({**quota, "spec": {"hard": {"pods": "1"}}})
    wait_for(lambda: lab.get("resourcequota", "few")["status"].get("used"))
    lab.plane.kubectl("scale", "statefulset", "lab", "--replicas=2", "-n", lab.namespace)
    wait_for(lambda: "FailedCreate" in str(lab.get("events")))
    words = "created: Pod lab-1: it cannot be created: the quota few does not allow pods=1 more: pods=1 of pods=1"
    assert words in cause(doctor(lab))


def test_gpus_that_others_hold_are_named_with_their_holder(lab: Lab) -> None:
    wanted = {"name": "main", "image": "example/main:1", "resources": {"limits": {"nvidia.com/gpu": "8"}}}
    meta = {"name": "greedy", "namespace": lab.namespace}
    lab.plane.apply({"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": {"containers": [wanted]}})
    wait_for(lambda: lab.get("pod", "greedy")["spec"].get("nodeName"))
    lab.deploy(nodes=2, limit_s=0)
    # Of two pods one gets the free node; the other is told of once volumes are there and only GPUs are missing.
    wait_for(lambda: "Insufficient nvidia.com/gpu" in str(lab.get("pods")))
    wait_for(lambda: len([each for each in lab.get("pods")["items"] if not each["spec"].get("nodeName")]) == 1)
    found = cause(doctor(lab))
    assert "scheduled: Pod lab-" in found
    assert "too little nvidia.com/gpu free" in found
    assert f"{lab.namespace}/greedy" in found


def test_a_volume_that_nobody_makes_is_the_cause_and_the_pod_without_a_node_its_evidence(bare: Lab) -> None:
    bare.deploy(nodes=1, limit_s=0)
    wait_for(
        lambda: "ExternalProvisioning" in str(bare.get("events")) and "FailedScheduling" in str(bare.get("events"))
    )
    found = doctor(bare)
    assert "volumes: PersistentVolumeClaims lab-" in cause(found)
    assert "it waits for a volume (ExternalProvisioning): waiting for a volume to be created" in cause(found)
    assert [each.check for each in found.evidence] == ["scheduled"]


def test_a_gone_device_plugin_is_reported_of_by_its_node(lab: Lab) -> None:
    lab.deploy(nodes=1)
    nothing = {"status": {"allocatable": {**ROOM, **dict.fromkeys(DEVICES, "0")}}}
    try:
        for name in ("gpu-0", "gpu-1"):
            lab.plane.api("PATCH", f"/api/v1/nodes/{name}/status", nothing)
        lab.plane.kubectl("delete", "pod", "lab-0", "-n", lab.namespace, "--wait=true")
        wait_for(lambda: "Insufficient nvidia.com/gpu" in str(lab.get("events")))
        words = "nodes: Nodes gpu-0, gpu-1: it has 8 nvidia.com/gpu, and none are allocatable"
        assert cause(doctor(lab)) == words
    finally:
        for name in ("gpu-0", "gpu-1"):
            made.node(lab.plane, name, new=False)


def test_what_kubelets_say_of_containers_is_reported_with_the_reason(lab: Lab, gpuctl: Gpuctl) -> None:
    lab.deploy(nodes=2)
    waits = {"state": {"waiting": {"reason": "ImagePullBackOff", "message": "Back-off pulling image"}}}
    for name in ("lab-0", "lab-1"):
        pod = says(lab, name, waits)
        event(lab, pod, "Failed", 'Failed to pull image "quay.io/team/ml:1": rpc error: unauthorized: access denied')
    said = command(gpuctl, lab)
    assert said.code == 1
    assert (
        "FAIL     image           Pods lab-0, lab-1: the image quay.io/team/ml:1 cannot be pulled (ImagePullBackOff)"
        in said.out
    )
    assert "hint: the registry requires a login: set image.pull_secret" in said.out

    ended = {"exitCode": 137, "reason": "OOMKilled"}
    again = {"waiting": {"reason": "CrashLoopBackOff", "message": "back-off 10s"}}
    log = "gpuctl: rank 0, mode tcp\nloading with token=hunter2hunter2\nallocating 900 GiB"
    says(lab, "lab-0", {"restartCount": 3, "lastState": {"terminated": ended}, "state": again}, log)
    says(lab, "lab-1", {"state": {"running": {}}}, "gpuctl: rank 1, mode tcp\ngpuctl: the Secret is empty: ...")
    found = doctor(lab, "start")
    assert "crash: Pod lab-0: ml ran out of memory (OOMKilled); its log ends: " in cause(found)
    assert "hunter2" not in str(found)
    assert [each.subject for each in found.evidence] == ["Pod lab-1"]


def test_who_reaches_another_cluster_or_no_pod_is_reported_so(lab: Lab, gpuctl: Gpuctl) -> None:
    said = command(gpuctl, lab, changes={"cluster": {"api": "https://127.0.0.1:9"}})
    assert said.code == 2
    assert "pass the right --context" in said.err
    lab.deploy(nodes=1)
    said = command(gpuctl, lab, "hang")
    assert said.code == 3, said.out
    assert "cannot look into the pods of lab" in said.err
    assert "probe           Pod lab-0: it cannot be probed" in said.out
