"""Larger volumes: which claims grow, what becomes of the StatefulSet, and what status has of them."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any, cast

import pytest

from gpuctl.cluster.deploy import diff, dry_runs, grow, status
from gpuctl.cluster.deploy.model import Field, ObjectState
from gpuctl.cluster.environment import Environment, Object
from gpuctl.cluster.manifests import everything, storage
from gpuctl.core.errors import Unreachable
from gpuctl.domain.kube_errors import Conflict, Forbidden
from gpuctl.edges.kube.cluster import Cluster
from tests.rig.cluster.snapshots import env_of

OWN_VOLUMES = {"storage": {"mode": "volumeClaimTemplates", "class_rwo": "rbd"}}
SIZE = "spec.volumeClaimTemplates[workspace].spec.resources.requests.storage"
REFUSED = Forbidden("validate it", "the storageclass that provisions the pvc must support resize")


def claim(env: Environment, name: str, size: str, capacity: str = "", **status: Any) -> Object:
    has = {"capacity": {"storage": capacity}} if capacity else {}
    spec = {"resources": {"requests": {"storage": size}}, "storageClassName": "rbd"}
    meta = {"name": name, "namespace": "team", "labels": {**env.labels}}
    return {"metadata": meta, "spec": spec, "status": {"phase": "Bound", **has, **status}}


def larger(folder: Path) -> Environment:
    return env_of(folder, OWN_VOLUMES, {"storage": {"workspace_size": "200Gi"}}, nodes=2)


def stateful_set(env: Environment) -> Object:
    (found,) = (obj for obj in everything(env) if obj["kind"] == "StatefulSet")
    return found


def test_a_size_alone_replaces_the_statefulset_and_the_server_is_asked_about_the_rest(tmp_path: Path) -> None:
    env, live = larger(tmp_path), copy.deepcopy(stateful_set(env_of(tmp_path, OWN_VOLUMES, nodes=2)))
    asked: list[Object] = []

    def dry_run(desired: Object, *, force: bool) -> Object:
        asked.append(desired)
        return {**desired, "spec": {**desired["spec"], "replicas": 3}} if len(asked) > 1 else desired

    state = ObjectState(stateful_set(env), live)
    (change,) = dry_runs.changes(dry_run, env, [state])
    assert (change.action, change.note) == ("change", "it is replaced, and its pods keep running")
    assert change.fields == (Field(SIZE, "100Gi", "200Gi"),)
    assert asked[0]["spec"]["volumeClaimTemplates"] == live["spec"]["volumeClaimTemplates"]
    (change,) = dry_runs.changes(dry_run, env, [state])
    assert [field.path for field in change.fields] == [SIZE, "spec.replicas"]

    live["spec"]["template"]["spec"]["terminationGracePeriodSeconds"] = 1
    (change,) = dry_runs.changes(dry_run, env, [state])
    assert change.note == "its pods restart, one after the other"

    live["spec"]["volumeClaimTemplates"][0]["spec"]["storageClassName"] = "other"
    (change,) = dry_runs.changes(dry_run, env, [state])
    assert (change.action, change.note) == ("recreate", diff.STAY)


def test_a_field_of_others_still_needs_consent_beside_a_larger_size(tmp_path: Path) -> None:
    env, live = larger(tmp_path), stateful_set(env_of(tmp_path, OWN_VOLUMES, nodes=4))
    conflict = Conflict("validate it", "others own it", owners={".spec.replicas": "kubectl"})

    def dry_run(desired: Object, *, force: bool) -> Object:
        if not force:
            raise conflict
        return desired

    (change,) = dry_runs.changes(dry_run, env, [ObjectState(stateful_set(env), live)])
    assert (change.action, {field.path for field in change.fields}) == ("take-over", {SIZE, "spec.replicas"})
    assert change.note == "spec.replicas was set by kubectl; it is replaced, and its pods keep running"


def test_claims_of_templates_grow_and_no_others(tmp_path: Path) -> None:
    env = larger(tmp_path)
    ours = [claim(env, f"workspace-lab-{rank}", size) for rank, size in enumerate(("100Gi", "200Gi", "300Gi", "50Gi"))]
    foreign = claim(env, "workspace-lab-9", "1Gi")
    foreign["metadata"]["labels"] = {}
    leaving = claim(env, "workspace-lab-8", "1Gi")
    leaving["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    others = [claim(env, name, "1Gi") for name in ("workspace-lab", "workspace-lab-x", "other-lab-0", "lab-workspace")]
    states = grow.too_small(env, [*ours, foreign, leaving, *others])
    # Claims of removed pods, too: they come back with them.
    assert [state.desired["metadata"]["name"] for state in states] == ["workspace-lab-0", "workspace-lab-3"]
    assert states[0].desired["spec"] == {"resources": {"requests": {"storage": "200Gi"}}}
    assert grow.too_small(env_of(tmp_path), ours) == []  # the shared claims are applied as a whole


def test_a_claim_that_the_server_does_not_grow_is_a_finding_and_stays(tmp_path: Path) -> None:
    env = larger(tmp_path)
    states = grow.too_small(env, [claim(env, f"workspace-lab-{rank}", "100Gi") for rank in range(2)])

    def dry_run(desired: Object, *, force: bool) -> Object:
        assert force
        if desired["metadata"]["name"] == "workspace-lab-1":
            raise REFUSED
        return desired

    (change,), (finding,) = grow.changes(dry_run, states)
    assert (change.subject, change.action) == ("PersistentVolumeClaim workspace-lab-0", "grow")
    assert change.fields == (Field("spec.resources.requests.storage", "100Gi", "200Gi"),)
    assert (finding.subject, finding.verdict) == ("PersistentVolumeClaim workspace-lab-1", "WARN")
    assert finding.message == f"it stays at 100Gi, and the file says 200Gi: {REFUSED.wrong}"

    def silent(desired: Object, force: bool) -> Object:
        raise Unreachable("validate it", "no answer")

    with pytest.raises(Unreachable):
        grow.changes(silent, states)


class Classes:
    """A cluster with one storage class; None: it may not be read."""

    def __init__(self, expands: bool | None) -> None:
        self.expands = expands

    def kind(self, api_version: str, kind: str) -> str:
        return kind

    def get(self, kind: str, name: str) -> Object:
        assert (kind, name) == ("StorageClass", "rbd")
        if self.expands is None:
            raise Forbidden("read it", "you may not")
        return {"allowVolumeExpansion": self.expands}


@pytest.mark.parametrize(
    ("sizes", "expands", "conditions", "words"),
    [
        (("200Gi", "200Gi"), True, [], "200Gi, Bound"),
        (("214748364800", "214748364800"), True, [], "214748364800, Bound"),
        (("100Gi", "100Gi"), False, [], "100Gi, Bound, did not grow to 200Gi: StorageClass rbd does not allow it"),
        (("100Gi", "100Gi"), True, [], "100Gi, Bound, did not grow to 200Gi: `gpuctl cluster deploy` grows it"),
        (("100Gi", "100Gi"), None, [], "100Gi, Bound, did not grow to 200Gi: `gpuctl cluster deploy` grows it"),
        (("200Gi", "100Gi"), True, [], "100Gi, Bound, grows to 200Gi"),
        (
            ("200Gi", "100Gi"),
            True,
            [{"type": "FileSystemResizePending", "message": "waiting for the node"}],
            "100Gi, Bound, grows to 200Gi: waiting for the node",
        ),
        (("300Gi", "300Gi"), True, [], "300Gi, Bound, the file says 200Gi: volumes do not shrink"),
    ],
)
def test_status_has_each_volume_and_why_it_did_not_grow(
    tmp_path: Path, sizes: tuple[str, str], expands: bool | None, conditions: list[Object], words: str
) -> None:
    env = larger(tmp_path)
    volume = claim(env, "workspace-lab-0", *sizes, conditions=conditions)
    line = status._volume(cast(Cluster, Classes(expands)), env, volume)
    assert line.startswith(f"workspace-lab-0: {words}")
    assert status._is_too_small(env, volume) is (sizes[1] == "100Gi")


def test_a_volume_that_is_too_small_is_a_warning(tmp_path: Path) -> None:
    usual = status.Status("lab", "team", "tcp", 0, [], [], [], [], [], [], [], [], [])
    assert usual.verdict == "OK"
    small = status.Status("lab", "team", "tcp", 0, [], [], [], [], [], [], [], ["workspace-lab-0"], [])
    assert small.verdict == "WARN"


def test_every_claim_has_the_size_of_the_file(tmp_path: Path) -> None:
    own, shared = larger(tmp_path), env_of(tmp_path, {"storage": {"workspace_size": "200Gi"}})
    assert storage.desired_size(own, "workspace-lab-17") == "200Gi"
    assert storage.desired_size(own, "datasets-lab-0") == "500Gi"
    assert storage.desired_size(shared, "lab-workspace") == "200Gi"
    assert {storage.desired_size(shared, name) for name in ("workspace-lab-0", "models")} == {""}
