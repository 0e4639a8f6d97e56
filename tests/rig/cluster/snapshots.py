"""A cluster as the preflight reads it, for tests: all is well but for what a test changes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from gpuctl.cluster.deploy import checks
from gpuctl.cluster.deploy.cluster_snapshot import ClusterSnapshot, Maybe
from gpuctl.cluster.deploy.model import ObjectState
from gpuctl.cluster.environment import Environment, EnvironmentRequest, Object, environment
from gpuctl.cluster.manifests import everything
from gpuctl.domain.findings import Finding
from tests.rig.cluster.files import cluster

ROOM = {"nvidia.com/gpu": "8", "nvidia.com/roce": "1", "cpu": "192", "memory": "2Ti"}


def env_of(folder: Path, *changes: Mapping[str, Any], **asked: Any) -> Environment:
    return environment(cluster(folder, *changes), EnvironmentRequest(**asked))


def node(name: str, **allocatable: str) -> Object:
    return {
        "metadata": {"name": name, "labels": {}},
        "spec": {},
        "status": {
            "allocatable": {**ROOM, **allocatable},
            "conditions": [{"type": "Ready", "status": "True"}],
        },
    }


def pod(name: str, on: str, gpus: int, **labels: str) -> Object:
    container = {"name": "main", "resources": {"limits": {"nvidia.com/gpu": str(gpus)}}}
    meta = {"name": name, "namespace": "team", "labels": labels}
    return {"metadata": meta, "spec": {"nodeName": on, "containers": [container]}, "status": {"phase": "Running"}}


def storage_class(name: str, provisioner: str) -> Object:
    return {"metadata": {"name": name}, "provisioner": provisioner}


def there(**changed: Any) -> ClusterSnapshot:
    """Two nodes, a class of a shared file system, no quota, and every right."""
    nothing: Maybe[Object | None] = Maybe(None)
    usual = ClusterSnapshot(
        server="https://lab.example.org:6443",
        namespace=Maybe({"metadata": {"name": "team"}, "status": {"phase": "Active"}}),
        quotas=Maybe([]),
        shared_quotas=Maybe([]),
        limits=Maybe([]),
        claims=Maybe([]),
        classes=Maybe([storage_class("nfs", "nfs.csi.k8s.io")]),
        nodes=Maybe([node("gpu-0"), node("gpu-1")]),
        pods=Maybe([]),
        env_pods=Maybe([]),
        account=nothing,
        pull_secret=nothing,
        stream=nothing,
        constraints=nothing,
        attachments={},
        references={},
        unserved=(),
        may={},
        may_use=Maybe(True),
    )
    return replace(usual, **changed)


def findings(env: Environment, found: ClusterSnapshot, standing: list[ObjectState] | None = None) -> dict[str, Finding]:
    """Those that are not OK, by check; the last of each."""
    wanted = [ObjectState(each) for each in everything(env)] if standing is None else standing
    return {each.check: each for each in checks.all_of(env, found, wanted) if each.verdict != "OK"}
