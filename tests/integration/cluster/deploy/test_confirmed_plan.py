"""Only the plan that was shown and confirmed is applied: a cluster that changed in between is left as it is."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.integration.cluster.deploy.lab import Lab
from tests.integration.cluster.deploy.test_play import play
from tests.rig.command import AT_HOME, GPUCTL, Gpuctl

CHANGED = "the cluster or the cluster file changed after the plan was shown, so nothing was applied"
CONTROLLED = ("Pod/", "StatefulSet/", "PersistentVolumeClaim/")  # controllers write their status at any time
OWN_VOLUMES = {"mode": "volumeClaimTemplates", "class_rwo": "rbd"}


@pytest.fixture
def terminal() -> Iterator[tuple[int, int]]:
    """Both ends of a pseudo-terminal: the user's, and the command's."""
    user, command = os.openpty()
    yield user, command
    os.close(user)
    os.close(command)


def digest(lab: Lab, gpuctl: Gpuctl, path: Path) -> str:
    """The digest of the plan that `diff` shows."""
    shown = gpuctl("cluster", "diff", path, "-o", "json", KUBECONFIG=str(lab.plane.kubeconfig))
    assert shown.code == 0, shown.err
    return str(shown.json["digest"])


def objects(lab: Lab) -> tuple[list[str], int]:
    """All objects with their UIDs and versions, and how often the StatefulSet's spec was written."""
    rows = [row.rpartition(" ")[0] if row.startswith(CONTROLLED) else row for row in lab.names()]
    return rows, int(lab.get("statefulset", "lab")["metadata"]["generation"])


def test_the_playbook_applies_a_confirmed_plan_and_no_other(lab: Lab, gpuctl: Gpuctl) -> None:
    path = lab.path()
    confirmed = digest(lab, gpuctl, path)
    assert digest(lab, gpuctl, path) == confirmed  # generated passwords are no difference
    code, output = play(lab, cluster_file=path, cluster_plan=confirmed, cluster_timeout=0)
    assert (code, "changed=1" in output) == (0, True), output
    deployed = objects(lab)
    code, output = play(lab, cluster_file=path, cluster_plan=confirmed, cluster_timeout=0)
    assert (code, CHANGED in output, "nothing changes" in output) == (2, True, True), output
    assert objects(lab) == deployed


def test_an_object_that_is_deleted_after_the_plan_was_shown_stops_the_deployment(lab: Lab, gpuctl: Gpuctl) -> None:
    lab.deploy(nodes=1, limit_s=0)
    path = lab.path({"resources": {"shm": "16Gi"}})
    confirmed = digest(lab, gpuctl, path)
    lab.plane.kubectl("delete", "service", "lab", "-n", lab.namespace)
    before = objects(lab)
    code, output = play(lab, cluster_file=path, cluster_plan=confirmed, cluster_timeout=0)
    assert (code, CHANGED in output, "create Service lab" in output) == (2, True, True), output
    assert objects(lab) == before
    code, output = play(lab, cluster_file=path, cluster_plan=digest(lab, gpuctl, path), cluster_timeout=0)
    assert code == 0, output


def test_the_command_applies_nothing_if_the_cluster_changes_while_it_asks(
    lab: Lab, gpuctl: Gpuctl, terminal: tuple[int, int]
) -> None:
    lab.deploy({"storage": OWN_VOLUMES}, nodes=1, limit_s=0)
    path = lab.path({"storage": {**OWN_VOLUMES, "class_rwo": "nfs"}})
    user, command = terminal
    with subprocess.Popen(
        [*AT_HOME, str(gpuctl.home), str(GPUCTL), "cluster", "deploy", str(path), "--timeout", "0"],
        env=gpuctl.environment(KUBECONFIG=str(lab.plane.kubeconfig)),
        cwd=gpuctl.home,
        stdin=command,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as running:
        assert running.stderr is not None
        question = ""
        while not question.endswith("[y/N]: "):
            letter = running.stderr.read(1)
            assert letter, question
            question += letter
        assert "Recreate StatefulSet lab, which ends its pods?" in question
        lab.plane.kubectl("delete", "service", "lab", "-n", lab.namespace)
        before = objects(lab)
        os.write(user, b"y\n")
        out, err = running.communicate(timeout=120)
    assert (running.returncode, CHANGED in err) == (3, True), out + err
    assert objects(lab) == before
