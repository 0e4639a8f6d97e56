"""Cluster files for tests: the two that come with gpuctl, and small ones that differ in a point."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from gpuctl.cluster.clusterfile.model import Cluster
from gpuctl.cluster.clusterfile.read import Parsed, load, parse

ROOT = Path(__file__).parents[3]
OPENSHIFT = ROOT / "examples/clusters/h100-roce-openshift.yaml"
EKS = ROOT / "examples/clusters/p5-efa-eks.yaml"

SMALL: Mapping[str, Any] = {
    "cluster": {"name": "lab", "api": "https://lab.example.org:6443", "namespace": "team", "flavour": "kubernetes"},
    "storage": {"mode": "rwx", "class_rwx": "nfs"},
    "gpus": {"per_node": 8},
    "resources": {"cpu": 32, "memory": "128Gi"},
    "image": {"name": "quay.io/team/ml:1"},
}
ROCE = {"enabled": True, "fabric": "roce", "resources": {"nvidia.com/roce": 1}}
ON_OPENSHIFT = {"cluster": {"flavour": "openshift"}}
BUILT = {"image": {"name": None, "build": {"git": "https://example.org/ml.git", "ref": "main", "folder": "image"}}}


def document(*changes: Mapping[str, Any]) -> dict[str, Any]:
    """The small file with changes laid over it, section by section; None takes a field out."""
    found: dict[str, Any] = {}
    for each in (SMALL, *changes):
        found = _over(found, each)
    return found


def _over(below: Mapping[str, Any], above: Mapping[str, Any]) -> dict[str, Any]:
    merged = dict(below)
    for name, value in above.items():
        lower = merged.get(name)
        merged[name] = (
            _over(lower if isinstance(lower, Mapping) else {}, value) if isinstance(value, Mapping) else value
        )
    return {name: value for name, value in merged.items() if value is not None}


def write(folder: Path, *changes: Mapping[str, Any]) -> Path:
    """The small file with changes, on disk."""
    path = folder / "lab.yaml"
    path.write_text(yaml.safe_dump(document(*changes), sort_keys=False))
    return path


def cluster(folder: Path, *changes: Mapping[str, Any]) -> Cluster:
    return load(write(folder, *changes))


def mistakes(folder: Path, *changes: Mapping[str, Any]) -> list[str]:
    """What is wrong with the small file with changes, without the lines."""
    found: Parsed = parse(write(folder, *changes))
    return [mistake.wrong for mistake in found.mistakes]
