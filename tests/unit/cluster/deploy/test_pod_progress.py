"""Why a pod is no further, from what kubelets and schedulers say, today and in Kubernetes 1.20."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from gpuctl.cluster.deploy import pod_progress, wait
from gpuctl.cluster.deploy.wait import EnvironmentView
from gpuctl.cluster.environment import Environment, Object
from tests.rig.cluster.snapshots import env_of

NEWER = (
    "0/3 nodes are available: 1 node(s) had untolerated taint {team: b}, 2 node(s) were unschedulable. "
    "preemption: 0/3 nodes are available: 3 Preemption is not helpful for scheduling."
)


def pod(name: str = "lab-0", node: str = "gpu-0", revision: str = "r2", **status: Any) -> Object:
    meta = {"name": name, "uid": f"uid-{name}", "labels": {"controller-revision-hash": revision}}
    return {"metadata": meta, "spec": {"nodeName": node} if node else {}, "status": status}


def ready(name: str = "lab-0", **more: Any) -> Object:
    return pod(name, conditions=[{"type": "Ready", "status": "True"}], **more)


def container(**state: Any) -> dict[str, Any]:
    return {"name": "ml", "image": "quay.io/team/ml:1", "restartCount": 4, "state": state}


def event(kind: str, reason: str, message: str, uid: str = "uid-lab-0") -> Object:
    return {"type": kind, "reason": reason, "message": message, "involvedObject": {"uid": uid}}


@pytest.mark.parametrize(
    ("said", "words"),
    [
        (
            "0/8 nodes are available: 2 Insufficient nvidia.com/gpu, 6 node(s) didn't match Pod's node affinity.",
            "of 8 nodes, 2: too little nvidia.com/gpu free; 6: not those named",
        ),
        (
            NEWER,
            "of 3 nodes, 1: tainted team: b; 2: cordoned",
        ),
        (
            "0/2 nodes are available: 2 node(s) didn't match pod anti-affinity rules.",
            "of 2 nodes, 2: a pod of ours already",
        ),
        (
            "0/8 nodes are available: 8 pod has unbound immediate PersistentVolumeClaims.",
            "of 8 nodes, 8: its volumes do not exist yet",
        ),
        ("0/1 nodes are available: 1 something new, with a comma.", "of 1 nodes, 1: something new, with a comma"),
        ("no nodes available to schedule pods", "no nodes available to schedule pods"),
    ],
)
def test_what_the_scheduler_says_is_reported_in_words(said: str, words: str) -> None:
    assert pod_progress.placing(said) == words


def test_a_pod_that_waits_for_a_volume_names_it() -> None:
    said = "0/1 nodes are available: 1 pod has unbound immediate PersistentVolumeClaims."
    conditions = [{"type": "PodScheduled", "status": "False", "message": said}]
    found = pod(node="", conditions=conditions)
    names = ("lab-workspace", "lab-datasets")
    found["spec"]["volumes"] = [{"persistentVolumeClaim": {"claimName": name}} for name in names]
    claims = [{"metadata": {"name": "lab-workspace"}, "status": {"phase": "Pending"}}]
    trouble = pod_progress.state(found, claims=claims).trouble
    assert trouble.endswith("(lab-workspace waits for a volume, lab-datasets does not exist)")


@pytest.mark.parametrize(
    ("status", "words"),
    [
        (
            container(waiting={"reason": "ImagePullBackOff", "message": "Back-off pulling image"}),
            "the image quay.io/team/ml:1 cannot be pulled (ImagePullBackOff): Back-off pulling image",
        ),
        (
            {
                **container(waiting={"reason": "CrashLoopBackOff", "message": "back-off 5m0s"}),
                "lastState": {"terminated": {"exitCode": 137, "reason": "OOMKilled", "message": "last words\n"}},
            },
            "ml ended with exit code 137 (OOMKilled): last words; 4 restarts",
        ),
        (
            container(waiting={"reason": "CreateContainerConfigError", "message": 'secret "lab" not found'}),
            'ml does not start (CreateContainerConfigError): secret "lab" not found',
        ),
        (container(terminated={"exitCode": 1, "reason": "Error"}), "ml ended with exit code 1; 4 restarts"),
    ],
)
@pytest.mark.parametrize("which", ["containerStatuses", "initContainerStatuses"])
def test_a_container_that_does_not_start_says_why(which: str, status: Any, words: str) -> None:
    assert pod_progress.state({**pod(), "status": {which: [status]}}).trouble == words


def test_waiting_mends_no_name_of_an_image() -> None:
    broken = container(waiting={"reason": "InvalidImageName", "message": "couldn't parse"})
    assert pod_progress.state(pod(containerStatuses=[broken])).hopeless


def test_what_went_wrong_last_while_it_starts_is_reported_but_not_what_is_over() -> None:
    events = [event("Warning", "FailedScheduling", "0/1 nodes"), event("Normal", "Pulling", "pulling")]
    assert pod_progress.state(pod(), events) == pod_progress.PodProgress("starts on gpu-0, pulling its image")
    events.append(event("Warning", "FailedMount", "MountVolume.SetUp failed\n for volume"))
    assert pod_progress.state(pod(), events).trouble == "FailedMount: MountVolume.SetUp failed for volume"


def test_how_far_a_pod_is() -> None:
    assert pod_progress.state(ready()) == pod_progress.PodProgress("is ready on gpu-0", ready=True)
    assert (
        pod_progress.state(pod(containerStatuses=[container(running={})])).summary
        == "runs on gpu-0, and is not ready yet"
    )
    going = ready()
    going["metadata"]["deletionTimestamp"] = "now"
    assert not pod_progress.state(going).ready


# ---- all of them together -------------------------------------------------------------------------------------------


def owner(generation: int = 2, seen: int = 2) -> Object:
    meta = {"name": "lab", "uid": "uid-lab", "generation": generation}
    return {"metadata": meta, "status": {"observedGeneration": seen, "updateRevision": "r2"}}


def view(*pods: Object, by: Object | None = None, events: tuple[Object, ...] = ()) -> EnvironmentView:
    return EnvironmentView({each["metadata"]["name"]: each for each in pods}, by or owner(), events)


@pytest.fixture
def env(tmp_path: Path) -> Environment:
    return env_of(tmp_path)


def test_it_is_done_when_each_pod_is_ready_in_its_new_form(env: Environment) -> None:
    both = ready("lab-0"), ready("lab-1")
    assert wait.is_done(env, view(*both))
    assert not wait.is_done(env, view(both[0]))
    assert not wait.is_done(env, view(*both, ready("lab-2")))
    assert not wait.is_done(env, view(both[0], ready("lab-1", revision="r1")))
    assert not wait.is_done(env, view(*both, by=owner(generation=3)))


def test_a_pod_that_was_never_made_has_the_reason_of_its_set(env: Environment) -> None:
    said = "create Pod lab-1 in StatefulSet lab failed error: exceeded quota"
    events = (
        event("Warning", "FailedCreate", said, "uid-lab"),
        event("Warning", "FailedCreate", "create Pod lab-1 in StatefulSet lab failed: old", "an earlier one"),
    )
    states = wait.states_of(env, view(ready(), events=events))
    assert states["lab-1"].trouble == f"FailedCreate: {said}"


def test_each_change_of_a_pod_is_reported_once(env: Environment) -> None:
    said: list[str] = []
    told = wait.PodChangeReporter(lambda subject, words: said.append(f"{subject}: {words}"))
    for pods in (
        (ready(),),
        (ready(), pod("lab-1")),
        (ready(), pod("lab-1")),
        (ready(), ready("lab-1"), ready("lab-2")),
    ):
        told.report(wait.states_of(env, view(*pods)))
    told.report(wait.states_of(env, view(ready(), ready("lab-1"))))
    assert said == [
        "Pod lab-0: is ready on gpu-0",
        "Pod lab-1: does not exist yet",
        "Pod lab-1: starts on gpu-0",
        "Pod lab-1: is ready on gpu-0",
        "Pod lab-2: is ready on gpu-0",
        "Pod lab-2: is gone",
    ]
