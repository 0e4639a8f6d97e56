"""What would become of an object, decided from what the server says of it."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import pytest

from gpuctl.cluster.deploy import diff
from gpuctl.cluster.deploy.immutable import fixed
from gpuctl.cluster.deploy.model import Change, Field, ObjectState
from gpuctl.cluster.environment import Environment
from gpuctl.cluster.manifests import everything
from gpuctl.core.errors import GpuctlError, Unreachable
from gpuctl.domain.kube_errors import Conflict, Forbidden, Invalid
from tests.rig.cluster.snapshots import env_of

OWN_VOLUMES = {"storage": {"mode": "volumeClaimTemplates", "class_rwo": "rbd"}}


def of(env: Environment, kind: str, ending: str = "") -> dict[str, Any]:
    (found,) = (e for e in everything(env) if e["kind"] == kind and e["metadata"]["name"].endswith(ending))
    return found


def changed(env: Environment, wanted: Any, live: Any, answer: Any, *new: str) -> Change:
    """`answer`: what the dry run gives, or raises; a list: without force, and with it."""

    def dry_run(_: Any, *, force: bool) -> Any:
        result = answer[force] if isinstance(answer, list) else answer
        if isinstance(result, Exception):
            raise result
        return result

    return diff.change(env, ObjectState(wanted, live), dry_run, new)


def served(found: dict[str, Any], **spec: Any) -> dict[str, Any]:
    """An object as a server has it."""
    own = {"uid": "1", "resourceVersion": "7", "managedFields": [{}], "creationTimestamp": "2026-01-01T00:00:00Z"}
    whole = {**found, "metadata": {**found["metadata"], **own}, "status": {"observed": 1}}
    return {**whole, "spec": {**found["spec"], **spec}} if spec else whole


def test_what_the_server_keeps_for_itself_is_no_change(tmp_path: Path) -> None:
    env = env_of(tmp_path)
    service = of(env, "Service")
    later = served(service)
    later["metadata"]["resourceVersion"] = "8"
    assert changed(env, service, served(service), later).action == "same"


def test_each_value_that_differs_is_reported_and_things_with_names_are_matched_by_them() -> None:
    before = {"a": 1, "list": [{"name": "x", "v": 1}, {"name": "y", "v": 2}], "b.c/d": "e"}
    after = {"a": 1, "list": [{"name": "y", "v": 3}], "new": [1, 2]}
    assert list(diff.between(before, after, "spec")) == [
        Field("spec.list[x]", {"name": "x", "v": 1}, None),
        Field("spec.list[y].v", 2, 3),
        Field("spec[b.c/d]", "e", None),
        Field("spec.new", None, [1, 2]),
    ]


def test_another_template_is_reported_to_start_pods_anew(tmp_path: Path) -> None:
    env = env_of(tmp_path)
    wanted = of(env, "StatefulSet")
    live = served(wanted, template={"spec": {"containers": [{"name": "ml", "image": "old"}]}})
    after = served(wanted, template={"spec": {"containers": [{"name": "ml", "image": "new"}]}})
    found = changed(env, wanted, live, after)
    assert found.fields == (Field("spec.template.spec.containers[ml].image", "old", "new"),)
    assert found.note == "its pods restart, one after the other"
    assert changed(env, wanted, served(wanted, replicas=4), served(wanted)).note == ""


@pytest.mark.parametrize("field", ["serviceName", "podManagementPolicy", "selector", "volumeClaimTemplates"])
def test_a_field_that_never_changes_is_found_without_asking(tmp_path: Path, field: str) -> None:
    env = env_of(tmp_path, OWN_VOLUMES)
    wanted = of(env, "StatefulSet")
    found = changed(env, wanted, served(wanted, **{field: None}), AssertionError("it was asked"))
    assert (found.action, [each.path for each in found.fields]) == ("recreate", [f"spec.{field}"])


def test_defaults_and_other_ways_to_write_a_size_are_no_difference(tmp_path: Path) -> None:
    wanted = of(env_of(tmp_path, OWN_VOLUMES), "StatefulSet")
    defaulted = [
        {
            "apiVersion": "v1",
            "metadata": each["metadata"],
            "spec": {**each["spec"], "volumeMode": "Filesystem", "resources": {"requests": {"storage": size}}},
        }
        for each, size in zip(wanted["spec"]["volumeClaimTemplates"], ("107374182400", "500Gi"), strict=True)
    ]
    assert fixed(wanted, served(wanted, volumeClaimTemplates=defaulted)) == ()


def test_a_volume_is_reported_to_hold_data_and_one_that_may_not_shrink_is_refused(tmp_path: Path) -> None:
    env = env_of(tmp_path)
    claim = of(env, "PersistentVolumeClaim", "-workspace")
    found = changed(env, claim, served(claim, storageClassName="old"), None)
    assert (found.action, found.note) == ("refused", diff.HOLDS_DATA)
    shrinks = Invalid("validate it", "spec.resources.requests.storage: field can not be less than previous value")
    assert changed(env, claim, served(claim), shrinks).action == "refused"


def test_what_the_server_refuses_is_made_anew_only_where_it_is_there(tmp_path: Path) -> None:
    env = env_of(tmp_path, single=True)
    pod, no = of(env, "Pod"), Invalid("validate it", "spec: Forbidden: may not change\n{a long listing}")
    assert changed(env, pod, served(pod), no) == Change(
        "Pod", "lab-single", "recreate", (), "spec: Forbidden: may not change"
    )
    assert changed(env, pod, None, no).action == "refused"
    assert changed(env, pod, served(pod), Conflict("apply", "others own it")).action == "refused"


def test_fields_that_another_manager_changed_are_shown_with_both_values(tmp_path: Path) -> None:
    env = env_of(tmp_path)
    desired = of(env, "StatefulSet")
    conflict = Conflict("apply", "others own .spec.replicas", owners={".spec.replicas": "kubectl-patch"})
    change = changed(env, desired, served(desired, replicas=1), [conflict, served(desired)])
    assert (change.action, change.note) == ("take-over", "spec.replicas was set by kubectl-patch")
    assert change.fields == (Field("spec.replicas", 1, 2),)


def test_an_environment_that_somebody_scaled_to_no_pod_comes_back_only_with_consent(tmp_path: Path) -> None:
    env = env_of(tmp_path)
    wanted = of(env, "StatefulSet")
    found = changed(env, wanted, served(wanted, replicas=0), served(wanted))
    assert (found.action, found.note) == ("take-over", "spec.replicas was set to 0 by somebody else")
    assert found.fields == (Field("spec.replicas", 0, 2),)


def test_a_take_over_that_the_server_would_not_accept_is_refused(tmp_path: Path) -> None:
    env = env_of(tmp_path)
    desired = of(env, "StatefulSet")
    conflict = Conflict("apply", "others own .spec.replicas", owners={".spec.replicas": "kubectl-patch"})
    change = changed(env, desired, served(desired, replicas=1), [conflict, Forbidden("apply", "a policy denies it")])
    assert (change.action, change.note) == ("refused", "others own .spec.replicas; a policy denies it")


@pytest.mark.parametrize(
    ("path", "action"),
    [("image", "recreate"), ("gpuctl/start", "recreate"), ("gpuctl/by", "change"), ("", "same")],
)
def test_a_pod_that_stands_alone_starts_anew_for_what_only_a_start_brings(
    tmp_path: Path, path: str, action: str
) -> None:
    env = env_of(tmp_path, single=True)
    wanted = of(env, "Pod")
    live = served(wanted)
    after = copy.deepcopy(live)
    if path == "image":
        after["spec"]["containers"][0]["image"] = "ml:2"
    elif path:
        after["metadata"].setdefault("annotations", {})[path] = "other"
    assert changed(env, wanted, live, after).action == action


def test_a_single_pod_may_wait_for_an_account_that_comes_with_it(tmp_path: Path) -> None:
    env = env_of(tmp_path, single=True)
    pod, no = of(env, "Pod"), Forbidden("validate it", 'serviceaccount "lab-single" not found')
    assert changed(env, pod, None, no, "ServiceAccount lab-single").action == "create"
    assert changed(env, pod, None, no).action == "refused"


def test_a_cluster_that_is_away_is_no_refusal(tmp_path: Path) -> None:
    env = env_of(tmp_path)
    with pytest.raises(Unreachable):
        changed(env, of(env, "Service"), None, Unreachable("validate it", "no answer"))
    assert changed(env, of(env, "Service"), None, GpuctlError("validate it", "no")).action == "refused"


def test_no_value_of_a_secret_is_shown(tmp_path: Path) -> None:
    env = env_of(tmp_path)
    secret = of(env, "Secret")
    live, after = ({**served(secret), "data": data} for data in ({"a": "b2xk"}, {"a": "bmV3", "b": "bmV3"}))
    found = changed(env, secret, live, after)
    assert [(each.path, each.before, each.after) for each in found.fields] == [
        ("data.a", "(hidden)", "(hidden)"),
        ("data.b", None, "(hidden)"),
    ]
    whole = changed(env, secret, served(secret), after)
    assert whole.fields == (Field("data", None, {"a": "(hidden)", "b": "(hidden)"}),)
