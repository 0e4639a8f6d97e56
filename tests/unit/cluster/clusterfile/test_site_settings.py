"""What sites require of every pod: variables, Secrets, existing claims, classes, queues, budgets, grace periods."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from gpuctl.cluster.deploy import checks
from gpuctl.cluster.deploy.checks import image
from gpuctl.cluster.deploy.cluster_snapshot import Maybe
from gpuctl.cluster.environment import EnvironmentRequest, Object, environment
from gpuctl.cluster.manifests import everything
from gpuctl.cluster.manifests.references import references_of
from gpuctl.cluster.train import launch
from gpuctl.domain.findings import Verdict
from tests.rig.cluster.files import cluster, mistakes
from tests.rig.cluster.snapshots import there

OWN_VOLUMES = {"storage": {"mode": "volumeClaimTemplates", "class_rwo": "fast"}}


def rendered(folder: Path, *changes: dict[str, Any], **request: Any) -> dict[str, Object]:
    env = environment(cluster(folder, *changes), EnvironmentRequest(**request))
    return {obj["kind"]: obj for obj in everything(env)}


def pod(folder: Path, **pods: Any) -> Object:
    spec: Object = rendered(folder, {"pods": pods})["StatefulSet"]["spec"]["template"]["spec"]
    return spec


def test_variables_of_the_site_reach_the_container_beside_those_of_the_fabric(tmp_path: Path) -> None:
    env = pod(tmp_path, environment={"HTTPS_PROXY": "http://proxy:3128"})["containers"][0]["env"]
    values = {variable["name"]: variable.get("value") for variable in env}
    assert values["HTTPS_PROXY"] == "http://proxy:3128"
    assert values["NCCL_DEBUG"] == "WARN"


def test_secrets_become_variables_or_files_that_only_the_pods_group_reads(tmp_path: Path) -> None:
    spec = pod(tmp_path, secrets={"wandb": "environment", "s3": "/secrets/s3"})
    main = spec["containers"][0]
    assert main["envFrom"] == [{"secretRef": {"name": "wandb"}}]
    (volume,) = [volume for volume in spec["volumes"] if volume.get("secret", {}).get("secretName") == "s3"]
    assert volume["secret"]["defaultMode"] == 0o440
    mount = {"name": volume["name"], "mountPath": "/secrets/s3", "readOnly": True}
    assert mount in main["volumeMounts"]


@pytest.mark.parametrize("changes", [{}, OWN_VOLUMES])
def test_an_existing_claim_takes_the_place_of_a_volume_or_is_mounted_beside_them(
    tmp_path: Path, changes: dict[str, Any]
) -> None:
    claims = {"/datasets": "imagenet", "/models": "team-models", "/zoo": "team-models"}
    objects = rendered(tmp_path, changes, {"storage": {"claims": claims}})
    spec = objects["StatefulSet"]["spec"]["template"]["spec"]
    used = {
        volume["name"]: volume["persistentVolumeClaim"]["claimName"]
        for volume in spec["volumes"]
        if "persistentVolumeClaim" in volume
    }
    mounts = {mount["mountPath"]: mount["name"] for mount in spec["containers"][0]["volumeMounts"]}
    assert used[mounts["/datasets"]] == "imagenet"
    assert used[mounts["/models"]] == used[mounts["/zoo"]] == "team-models"
    templates = objects["StatefulSet"]["spec"].get("volumeClaimTemplates", [])
    created = [obj["metadata"]["name"] for obj in (objects.get("PersistentVolumeClaim"), *templates) if obj]
    assert created == (["workspace"] if changes else ["lab-workspace"])


def test_classes_queue_labels_annotations_and_grace_period_reach_the_pods(tmp_path: Path) -> None:
    pods = {
        "priority_class": "training",
        "runtime_class": "nvidia",
        "queue": "team-a",
        "labels": {"cost-center": "ml"},
        "annotations": {"sidecar.istio.io/inject": "false"},
        "grace_period": 300,
    }
    workload = rendered(tmp_path, {"pods": pods})["StatefulSet"]
    template = workload["spec"]["template"]
    assert (template["spec"]["priorityClassName"], template["spec"]["runtimeClassName"]) == ("training", "nvidia")
    assert template["spec"]["terminationGracePeriodSeconds"] == 300
    for meta in (workload["metadata"], template["metadata"]):
        assert meta["labels"]["kueue.x-k8s.io/queue-name"] == "team-a"
        assert meta["labels"]["cost-center"] == "ml"
    assert template["metadata"]["annotations"]["sidecar.istio.io/inject"] == "false"
    assert "cost-center" not in workload["spec"]["selector"]["matchLabels"]


def test_a_standalone_pod_gets_the_same_settings(tmp_path: Path) -> None:
    lone = rendered(tmp_path, {"pods": {"queue": "team-a", "priority_class": "training"}}, single=True)["Pod"]
    assert lone["metadata"]["labels"]["kueue.x-k8s.io/queue-name"] == "team-a"
    assert lone["spec"]["priorityClassName"] == "training"


def test_evictions_are_forbidden_unless_the_file_allows_them(tmp_path: Path) -> None:
    assert "PodDisruptionBudget" in rendered(tmp_path)
    assert "PodDisruptionBudget" not in rendered(tmp_path, {"pods": {"disruption_budget": False}})


def test_a_training_is_killed_before_its_pod_is(tmp_path: Path) -> None:
    assert launch.grace_s(environment(cluster(tmp_path, {"pods": {"grace_period": 120}}))) == 118


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("EXTRA_ARGS", "--max-tokens 512 --pad-token=0"),
        ("HF_TOKEN_PATH", "/run/secrets/hf"),
        ("HTTPS_PROXY", "http://$(PROXY_USER):$(PROXY_PASSWORD)@proxy:3128"),
        ("DATABASE", "postgres://db:5432/runs"),
    ],
)
def test_values_that_hold_no_credential_are_environment(tmp_path: Path, name: str, value: str) -> None:
    assert mistakes(tmp_path, {"pods": {"environment": {name: value}}}) == []


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"pods": {"environment": {"HOME": "/root"}}}, "is set by the pod itself"),
        ({"pods": {"environment": {"NCCL_DEBUG": "INFO"}}}, "is set by nccl.debug"),
        ({"pods": {"environment": {"HTTPS_PROXY": "http://ann:secret@proxy:3128"}}}, "holds a password or token"),
        ({"pods": {"environment": {"PIP_INDEX_URL": "https://abc@pip.example.org/x"}}}, "holds a password or token"),
        ({"pods": {"environment": {"HEADERS": "Authorization=Bearer abcdefgh1"}}}, "holds a password or token"),
        ({"pods": {"environment": {"HF_TOKEN": "hf_" + "a" * 30}}}, "holds a password or token"),
        ({"pods": {"secrets": {"s3": "/etc/s3"}}}, "is mounted at /etc/s3, which is used by the pod itself"),
        ({"pods": {"secrets": {"s3": "files"}}}, "is 'files': not `environment`"),
        ({"pods": {"labels": {"app.kubernetes.io/name": "x"}}}, "is set by gpuctl"),
        ({"pods": {"grace_period": 0}}, "grace_period is '0'"),
        ({"storage": {"claims": {"/usr/data": "a"}}}, "is mounted at /usr/data, which is used by the pod itself"),
        (
            {"storage": {"claims": {"/models": "a"}, "folders": {"/models": "workspace/models"}}},
            "is mounted at /models, as storage.folders./models is",
        ),
    ],
)
def test_a_setting_that_cannot_hold_is_refused(tmp_path: Path, changes: dict[str, Any], expected: str) -> None:
    (wrong,) = mistakes(tmp_path, changes)
    assert expected in wrong


def test_a_missing_reference_fails_before_a_pod_waits_for_it(tmp_path: Path) -> None:
    pods = {"secrets": {"wandb": "environment"}, "priority_class": "training"}
    env = environment(cluster(tmp_path, {"pods": pods, "storage": {"claims": {"/models": "team-models"}}}))
    secret, claim, priority = references_of(env)
    reads = {secret: Maybe(None), claim: Maybe({"metadata": {}}), priority: Maybe(None, "you may not get it")}
    findings = image.references(env, there(references=reads))
    assert [(finding.subject, finding.verdict) for finding in findings] == [
        ("Secret wandb", Verdict.FAIL),
        ("PersistentVolumeClaim team-models", Verdict.OK),
        ("PriorityClass training", Verdict.UNKNOWN),
    ]
    assert findings[0].hint == "create it, or correct pods.secrets.wandb"
    assert image.references in checks.CHECKS
