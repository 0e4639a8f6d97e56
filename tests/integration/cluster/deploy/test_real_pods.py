"""An environment on a real kubelet: its containers run the start script, go again, and are told of when they cannot."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from gpuctl.cluster.deploy import destroy, status
from tests.integration.cluster.deploy import lab as made
from tests.integration.cluster.deploy.lab import Lab
from tests.integration.cluster.deploy.real_node import IMAGE, real_node
from tests.rig.cluster.files import ROCE
from tests.rig.kube.plane import Plane

HERE = {
    "image": {"name": IMAGE},
    "resources": {"cpu": "100m", "memory": "512Mi", "shm": "64Mi"},
    "gpus": {"default_nodes": 1},
}
RDMA = {"network": {"rdma": ROCE}, "security": {"ipc_lock": True, "rdma_as_root": True}}


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Plane]:
    with real_node(tmp_path_factory.mktemp("node")) as started:
        yield started


@pytest.fixture
def lab(cluster: Plane, tmp_path: Path) -> Iterator[Lab]:
    # A pod takes a kubelet ten seconds and more to end: who comes next waits until there is room.
    yield from made.namespaces(cluster, tmp_path, wait=False)


def test_an_environment_runs_its_start_script_and_a_second_deploy_leaves_it_alone(lab: Lab) -> None:
    others = lab.names()
    plan = lab.deploy(HERE, RDMA, mode="tcp", limit_s=120)
    log = lab.plane.kubectl("logs", "lab-0", "-n", lab.namespace)
    assert "gpuctl: rank 0, mode tcp" in log
    hosts = lab.plane.kubectl("exec", "lab-0", "-n", lab.namespace, "--", "cat", "/job/hostfile")
    assert hosts == f"lab-0.lab.{lab.namespace}.svc slots=8\n"
    assert lab.plane.kubectl("exec", "lab-0", "-n", lab.namespace, "--", "id", "-u").strip() == "1000"
    before = lab.get("pod", "lab-0")["metadata"]["uid"]
    assert [each for each in lab.deploy(HERE, RDMA, mode="tcp").changes if each.action != "same"] == []
    assert lab.get("pod", "lab-0")["metadata"]["uid"] == before
    found = destroy.find(lab.cluster(), plan.env)
    destroy.remove(lab.cluster(), plan.env, found, lab.tell, 90)
    assert lab.names() == others


def test_by_rdma_memory_can_be_locked_as_the_file_says(lab: Lab) -> None:
    lab.deploy(HERE, RDMA, mode="rdma", limit_s=120)
    again = lab.plan(HERE, RDMA, mode="rdma")
    assert [each.message for each in again.findings if each.check == "memlock"] == [
        "IPC_LOCK is in effect: no limit applies"
    ]
    assert status.read_status(lab.cluster(), lab.file(HERE, RDMA)).mode == "rdma"


def test_what_pods_of_one_mode_write_the_other_may_change(lab: Lab) -> None:
    def run(program: str) -> str:
        return lab.plane.kubectl(
            "exec", "lab-0", "-n", lab.namespace, "--", "sh", "-c", f". /run/gpuctl/env; {program}"
        )

    lab.deploy(HERE, RDMA, mode="rdma", limit_s=120)
    assert run("id -u; id -g").split() == ["0", "1000"]
    # The root of the volume is like a server's that ignores fsGroup, and everybody may write it.
    run("chmod 777 /workspace; mkdir /workspace/runs; echo root >/workspace/runs/a")
    lab.deploy(HERE, RDMA, mode="tcp", limit_s=180)
    assert run("id -u; id -g").split() == ["1000", "1000"]
    run("echo user >>/workspace/runs/a; mkdir /workspace/runs/tcp; echo user >/workspace/runs/tcp/b")
    lab.deploy(HERE, RDMA, mode="rdma", limit_s=180)
    run("echo root >>/workspace/runs/a; echo root >>/workspace/runs/tcp/b; rm /workspace/runs/tcp/b")
    assert run("cat /workspace/runs/a").split() == ["root", "user", "root"]


def test_an_image_that_is_not_there_is_reported(lab: Lab) -> None:
    missing = {"image": {"name": "localhost:1/ml:none"}}
    told = r"lab-0 does not start on \S+: the image localhost:1/ml:none cannot be pulled"
    made.until_told(lab, lab.plan(HERE, missing), told)
    assert any("connection refused" in each for each in lab.said)
