"""Making a GPU pod: what is refused before the first write, what outlives an interruption, keys, and sshd's answer."""

from __future__ import annotations

import base64
import re
from collections.abc import Callable
from typing import Any

import pytest

from gpuctl.core.errors import GpuctlError, InvalidInput, Unreachable
from gpuctl.domain import public_keys
from gpuctl.domain.findings import Verdict
from gpuctl.domain.kube_errors import Forbidden, Invalid
from gpuctl.edges.kube.cluster import Object, Request
from gpuctl.edges.ssh_keys import pair
from gpuctl.eks.gpu_pod import model, objects
from gpuctl.eks.gpu_pod.model import Form, Options
from gpuctl.workflows import eks_pod, eks_pod_keys
from gpuctl.workflows.eks_access import Place
from gpuctl.workflows.eks_pod import Patience, PodRequest
from tests.rig.standin_namespace import StandinNamespace, merged

PLACE = Place("lab", "gpu", "lab", "team", [])
FORM = Form("registry/ml:1", gpus=2)
KEYS = public_keys.parse(pair()[1], "agent", "use it")
QUOTA = "the quota team does not allow requests.nvidia.com/gpu=2 more: 2 of 2 is in use"


def ensure(cluster: StandinNamespace, *, replace: bool = False, **options: Any) -> Object:
    request = PodRequest(Options(**options), KEYS, replace=replace)
    return eks_pod.ensure(cluster, PLACE, request, lambda _: None)


def with_pod(form: Form = FORM) -> StandinNamespace:
    cluster = StandinNamespace()
    ensure(cluster, image=form.image, gpus=form.gpus)
    cluster.writes.clear()
    return cluster


def form_of(pod: Object) -> Form | None:
    return model.read_form(pod["metadata"]["annotations"])


def refuses_rehearsals(error: GpuctlError) -> Callable[[Request], GpuctlError | None]:
    return lambda request: error if ("dryRun", "All") in request.query else None


# ---- --replace -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "error",
    [
        Invalid("x", "spec.containers[0].image: not allowed"),
        Forbidden("x", "violates PodSecurity"),
        Forbidden("x", QUOTA),
        GpuctlError("x", "admission webhook a does not support dry run"),
        Unreachable("x", "no answer"),
    ],
)
def test_a_pod_that_the_cluster_refuses_leaves_the_running_one(error: GpuctlError) -> None:
    cluster = with_pod()
    cluster.refuse = refuses_rehearsals(error)
    with pytest.raises(type(error), match=error.wrong.replace("[", r"\[")):
        ensure(cluster, replace=True, gpus=4)
    assert cluster.writes == []


def test_the_rehearsal_has_another_name_than_the_running_pod() -> None:
    cluster, rehearsed = with_pod(), list[str]()

    def note(request: Request) -> None:
        if ("dryRun", "All") in request.query and request.body:
            rehearsed.append(f"{request.body['kind']} {request.body['metadata']['name']}")

    cluster.refuse = note
    del cluster.items[cluster.name("PersistentVolumeClaim", "gpu-workspace")]
    ensure(cluster, replace=True)
    pod, claim = rehearsed
    assert re.fullmatch(r"Pod gpu-[0-9a-f]{8}", pod)
    assert claim == f"PersistentVolumeClaim {pod.removeprefix('Pod ')}-workspace"


def test_the_workspace_is_made_without_the_right_to_change_claims() -> None:
    cluster = StandinNamespace()
    ensure(cluster, image="registry/ml:1")
    assert [method for method, path in cluster.writes if path.startswith("persistentvolumeclaims")] == ["POST"]


def test_a_quota_that_counts_the_old_pod_does_not_keep_a_new_one_of_its_size() -> None:
    cluster = with_pod()
    before = cluster.items[cluster.name("Pod", "gpu")]["metadata"]["uid"]
    cluster.refuse = refuses_rehearsals(Forbidden("x", QUOTA))
    assert ensure(cluster, replace=True, image="registry/ml:2")["metadata"]["uid"] != before


# ---- the values outlive the pod --------------------------------------------------------------------------------------


def test_a_command_that_was_killed_after_the_delete_goes_on_with_its_values() -> None:
    cluster = with_pod()

    def killed(request: Request) -> None:
        if (request.method, (request.body or {}).get("metadata", {}).get("name")) == ("POST", "gpu"):
            raise KeyboardInterrupt

    cluster.refuse = killed
    with pytest.raises(KeyboardInterrupt):
        ensure(cluster, replace=True, gpus=4)
    assert cluster.name("Pod", "gpu") not in cluster.items
    cluster.refuse = lambda _: None
    assert form_of(ensure(cluster)) == Form("registry/ml:1", gpus=4)


def test_the_values_are_written_before_the_delete() -> None:
    cluster = with_pod()
    ensure(cluster, replace=True, gpus=4)
    assert cluster.writes.index(("PATCH", "secrets/gpu-keys")) < cluster.writes.index(("DELETE", "pods/gpu"))


def test_a_pod_that_ends_is_made_again_with_its_values(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = with_pod()
    path = cluster.name("Pod", "gpu")
    cluster.items[path]["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    del cluster.items[cluster.name("Secret", "gpu-keys")]
    monkeypatch.setattr("gpuctl.workflows.eks_pod.time.sleep", lambda _: cluster.items.pop(path, None))
    made = ensure(cluster)
    assert form_of(made) == FORM
    assert "deletionTimestamp" not in made["metadata"]


def test_a_change_of_keys_leaves_the_values() -> None:
    cluster = with_pod()
    added = public_keys.parse(pair()[1], "github:me", "use it")
    eks_pod_keys.change_keys(cluster, PLACE, added, [], lambda _: None)
    del cluster.items[cluster.name("Pod", "gpu")]
    assert form_of(ensure(cluster)) == FORM


# ---- objects of others, and wrong values -----------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["Secret", "PersistentVolumeClaim", "ConfigMap", "Pod"])
@pytest.mark.parametrize("labels", [{}, {model.POD_LABEL: "other"}])
def test_an_object_that_gpuctl_did_not_make_is_refused_before_the_first_write(
    kind: str, labels: dict[str, str]
) -> None:
    names = {"Secret": "gpu-keys", "PersistentVolumeClaim": "gpu-workspace", "ConfigMap": "gpu-start", "Pod": "gpu"}
    cluster = StandinNamespace()
    foreign = {"apiVersion": "v1", "kind": kind, "metadata": {"name": names[kind], "labels": labels}}
    cluster.add(foreign)
    with pytest.raises(InvalidInput, match=f"{kind} {names[kind]} that gpuctl did not make"):
        ensure(cluster, image="registry/ml:1")
    assert cluster.writes == []


def test_keys_of_somebody_elses_secret_are_not_listed() -> None:
    cluster = StandinNamespace()
    cluster.add({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "gpu-keys"}})
    with pytest.raises(InvalidInput, match="did not make"):
        eks_pod_keys.keys_of(cluster, PLACE)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"cpu": "0.0005"}, "--cpu '0.0005' is not"),
        ({"cpu": "4Gi"}, "--cpu '4Gi' is not"),
        ({"memory": "500m"}, "--memory '500m' is not"),
        ({"storage_class": "GP3!"}, "--storage-class 'GP3!' is not"),
        ({"storage_class": "gp3"}, "the cluster does not have it"),
        ({"memory": "1Gi", "shm": "1025Mi"}, "--shm 1025Mi is more than --memory 1Gi"),
    ],
)
def test_wrong_values_are_refused_before_the_first_write(options: dict[str, Any], message: str) -> None:
    cluster = StandinNamespace()
    with pytest.raises(InvalidInput, match=message):
        ensure(cluster, image="registry/ml:1", **options)
    assert cluster.writes == []


def test_a_storage_class_that_exists_is_taken() -> None:
    cluster = StandinNamespace()
    cluster.add({"apiVersion": "storage.k8s.io/v1", "kind": "StorageClass", "metadata": {"name": "gp3"}})
    ensure(cluster, image="registry/ml:1", storage_class="gp3", cpu="0.5")
    assert cluster.items[cluster.name("PersistentVolumeClaim", "gpu-workspace")]["spec"]["storageClassName"] == "gp3"


# ---- keys ------------------------------------------------------------------------------------------------------------


def test_two_users_who_make_the_secret_at_once_both_have_their_key() -> None:
    cluster = StandinNamespace()
    theirs = public_keys.parse(pair()[1], "github:other", "use it")

    def make_first(request: Request) -> None:
        if request.method == "POST" and request.path.endswith("/secrets") and request.body:
            path = cluster.name("Secret", "gpu-keys")
            if path not in cluster.items:
                cluster.add(objects.keys("gpu", theirs, FORM))

    cluster.refuse = make_first
    ensure(cluster, image="registry/ml:1")
    assert eks_pod_keys.keys_of(cluster, PLACE).keys == [*theirs, *KEYS]


def test_a_line_of_somebody_else_is_unknown_until_a_change_removes_it() -> None:
    cluster, notes = with_pod(), list[str]()
    foreign = 'command="sh" ssh-ed25519 AAAA\n'
    content = base64.b64encode(f"{public_keys.text(KEYS)}{foreign}".encode()).decode()
    cluster.items[cluster.name("Secret", "gpu-keys")]["data"]["authorized_keys"] = content
    listed = eks_pod_keys.keys_of(cluster, PLACE)
    assert (listed.keys, list(listed.unknown)) == (KEYS, [2])
    eks_pod_keys.change_keys(cluster, PLACE, KEYS, [], notes.append)
    assert eks_pod_keys.keys_of(cluster, PLACE) == public_keys.Authorized(KEYS, {})
    assert notes == ["removed from the keys: lines that gpuctl did not write (2)"]


def test_a_key_that_stays_under_another_origin_is_named() -> None:
    cluster, notes = with_pod(), list[str]()
    same = public_keys.parse(KEYS[0].line, "github:me", "use it")
    eks_pod_keys.change_keys(cluster, PLACE, same, [], notes.append)
    eks_pod_keys.change_keys(cluster, PLACE, [], ["github:me"], notes.append)
    assert notes == [f"{KEYS[0].fingerprint} may still log in: it also has the origin agent"]
    assert eks_pod_keys.keys_of(cluster, PLACE).keys == KEYS


# ---- sshd ------------------------------------------------------------------------------------------------------------


def ready(cluster: StandinNamespace) -> Object:
    conditions = {"status": {"conditions": [{"type": "Ready", "status": "True"}], "phase": "Running"}}
    path = cluster.name("Pod", "gpu")
    cluster.items[path] = merged(cluster.items[path], {"spec": {"nodeName": "n1"}, **conditions})
    return cluster.items[path]


@pytest.mark.parametrize(
    ("answers", "limit_s", "verdict", "left"),
    [
        ([b"", Unreachable("x", "cut"), b"SSH-2.0-OpenSSH"], 60, Verdict.OK, 0),
        ([b"HTTP/1.1", b"SSH-2.0-OpenSSH"], -1, Verdict.FAIL, 1),
        ([Forbidden("x", "no permission"), b"SSH-2.0-OpenSSH"], 60, Verdict.FAIL, 1),
    ],
)
def test_sshd_is_asked_again_within_the_limit(
    answers: list[Any], limit_s: float, verdict: Verdict, left: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(eks_pod, "LOOK_S", 0)
    cluster = with_pod()
    pod, rest = ready(cluster), list(answers)

    def greeting(*_: object) -> bytes:
        answer = rest.pop(0)
        if isinstance(answer, GpuctlError):
            raise answer
        return bytes(answer)

    findings = eks_pod.wait(cluster, PLACE, pod, Patience(limit_s, greeting), lambda _: None)
    assert [(finding.check, finding.verdict) for finding in findings] == [("pod", Verdict.OK), ("ssh", verdict)]
    assert len(rest) == left
