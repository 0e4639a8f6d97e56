"""Which deployments end pods in which something may train."""

from __future__ import annotations

from pathlib import Path

import pytest

from gpuctl.cluster.deploy.model import Change, Field, Plan
from gpuctl.cluster.environment import EnvironmentRequest, environment
from gpuctl.cluster.train import active_training
from tests.rig.cluster.files import cluster

IMAGE = Field("spec.template.spec.containers[ml].image", "ml:1", "ml:2")


@pytest.mark.parametrize(
    ("change", "ends"),
    [
        (Change("StatefulSet", "lab", "change", [IMAGE]), True),
        (Change("StatefulSet", "lab", "change", [Field("spec.replicas", 4, 2)]), True),
        (Change("StatefulSet", "lab", "change", [Field("spec.replicas", 2, 4)]), False),
        (Change("StatefulSet", "lab", "change", [Field("metadata.annotations[gpuctl/by]", "a", "b")]), False),
        (Change("StatefulSet", "lab", "recreate"), True),
        (Change("StatefulSet", "lab", "create"), False),
        (Change("Pod", "lab-single", "recreate"), True),
        (Change("ConfigMap", "lab-hosts", "change", [Field("data.hostfile", "a", "b")]), False),
    ],
)
def test_pods_end_where_their_form_changes_or_there_are_fewer(change: Change, ends: bool, tmp_path: Path) -> None:
    env = environment(cluster(tmp_path), EnvironmentRequest("tcp", 2))
    same = Change("Service", "lab", "same")
    assert active_training.ends_pods(Plan(env, (), [same, change], ())) is ends
