"""What is asked of a cluster before a training."""

from __future__ import annotations

from pathlib import Path
from typing import Any, cast

import pytest

from gpuctl.cluster.environment import EnvironmentRequest, environment
from gpuctl.cluster.train import prepare
from gpuctl.core.errors import GpuctlError
from gpuctl.edges.kube.cluster import Cluster
from tests.rig.cluster.files import cluster


class Only:
    """A cluster that has this StatefulSet, or nothing."""

    def __init__(self, found: dict[str, Any] | None) -> None:
        self.found = found

    def kind(self, *words: str) -> tuple[str, ...]:
        return words

    def get(self, *_: object) -> dict[str, Any] | None:
        return self.found

    def find(self, *_: object) -> list[dict[str, Any]]:
        return []


@pytest.mark.parametrize(
    ("replicas", "wrong"), [(0, "it is scaled to no pod"), (None, "has no environment of that name"), (2, "")]
)
def test_an_environment_without_pods_is_not_used_and_says_so(tmp_path: Path, replicas: int | None, wrong: str) -> None:
    env = environment(cluster(tmp_path), EnvironmentRequest(nodes=2))
    owner = {"metadata": {"name": "lab", "labels": env.labels}, "spec": {"replicas": replicas}}
    only = cast(Cluster, Only(None if replicas is None else owner))
    if not wrong:
        assert prepare.pods_to_use(only, env) == 2
        return
    with pytest.raises(GpuctlError) as caught:
        prepare.pods_to_use(only, env)
    assert wrong in caught.value.wrong
    assert "gpuctl cluster" in (caught.value.hint or "")


def test_pods_that_are_left_of_one_that_is_scaled_to_none_can_still_be_asked(tmp_path: Path) -> None:
    env = environment(cluster(tmp_path), EnvironmentRequest(nodes=2))
    owner = {"metadata": {"name": "lab", "labels": env.labels}, "spec": {"replicas": 0}}
    assert prepare.deployed_pods(cast(Cluster, Only(owner)), env) == 0
