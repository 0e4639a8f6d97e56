"""A cluster as the preflight reads it, for tests: all is well but for what a test changes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from gpuctl.cluster.deploy import checks
from gpuctl.cluster.deploy.cluster_snapshot import Read, There
from gpuctl.cluster.deploy.model import Standing
from gpuctl.cluster.environment import Asked, Environment, Object, environment
from gpuctl.cluster.manifests import everything
from gpuctl.domain.findings import Finding
from tests.unit.cluster.clusters import cluster

ROOM = {"nvidia.com/gpu": "8", "nvidia.com/roce": "1", "cpu": "192", "memory": "2Ti"}


def env_of(folder: Path, *changes: Mapping[str, Any], **asked: Any) -> Environment:
    return environment(cluster(folder, *changes), Asked(**asked))


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


def there(**changed: Any) -> There:
    """Two nodes, a class of a shared file system, no quota, and every right."""
    nothing: Read[Object | None] = Read(None)
    usual = There(
        server="https://lab.example.org:6443",
        namespace=Read({"metadata": {"name": "team"}, "status": {"phase": "Active"}}),
        quotas=Read([]),
        shared_quotas=Read([]),
        limits=Read([]),
        claims=Read([]),
        classes=Read([storage_class("nfs", "nfs.csi.k8s.io")]),
        nodes=Read([node("gpu-0"), node("gpu-1")]),
        pods=Read([]),
        own=Read([]),
        account=nothing,
        pull_secret=nothing,
        stream=nothing,
        constraints=nothing,
        attachments={},
        may={},
        may_use=Read(True),
    )
    return replace(usual, **changed)


def findings(env: Environment, found: There, standing: list[Standing] | None = None) -> dict[str, Finding]:
    """Those that are not OK, by check; the last of each."""
    wanted = [Standing(each) for each in everything(env)] if standing is None else standing
    return {each.check: each for each in checks.all_of(env, found, wanted) if each.verdict != "OK"}
