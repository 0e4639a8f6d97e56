"""Pods are read in the context that is named beside them."""

from __future__ import annotations

from pathlib import Path

import pytest

from gpuctl.core.errors import InvalidInput
from gpuctl.edges.kube import cluster
from gpuctl.edges.kube.cluster import Cluster
from gpuctl.kube.pod import Scope
from gpuctl.kube.pod_list import PodReader

KUBECONFIG = """apiVersion: v1
kind: Config
current-context: {current}
clusters:
- {{name: dev, cluster: {{server: "http://127.0.0.1:9"}}}}
contexts:
- {{name: dev, context: {{cluster: dev, user: ann, namespace: a}}}}
- {{name: prod, context: {{cluster: dev, user: ann, namespace: b}}}}
users:
- {{name: ann, user: {{}}}}
"""


@pytest.fixture
def kubeconfig(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    path = tmp_path / "config"
    path.write_text(KUBECONFIG.format(current="dev"))
    monkeypatch.setenv("KUBECONFIG", str(path))
    return path


@pytest.mark.parametrize("before", [True, False])
def test_a_switch_meanwhile_changes_neither_the_name_nor_the_cluster(
    kubeconfig: Path, monkeypatch: pytest.MonkeyPatch, before: bool
) -> None:
    connect = cluster.connect

    def switching(context: str, namespace: str, patience_s: float) -> Cluster:
        if before:
            kubeconfig.write_text(KUBECONFIG.format(current="prod"))
        made = connect(context, namespace, patience_s=patience_s)
        kubeconfig.write_text(KUBECONFIG.format(current="prod"))
        return made

    monkeypatch.setattr(cluster, "connect", switching)
    reader = PodReader(Scope())
    assert (reader.context, reader.namespace) == ("dev", "a")


def test_without_a_current_context_nothing_is_read(kubeconfig: Path) -> None:
    kubeconfig.write_text(KUBECONFIG.format(current='""'))
    with pytest.raises(InvalidInput, match="use the current context"):
        PodReader(Scope())
