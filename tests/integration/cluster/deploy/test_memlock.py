"""How much memory a pod's user may lock, asked in real containers on a real node."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from gpuctl.cluster.deploy import memlock
from gpuctl.cluster.environment import Environment
from gpuctl.edges.kube import cluster as kube
from tests.integration.cluster.sync.pods import pod, real_node, start
from tests.rig.cluster.files import ROCE
from tests.rig.cluster.snapshots import env_of
from tests.rig.kube.plane import Plane

RDMA = {"network": {"rdma": ROCE}}


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Plane]:
    with real_node(tmp_path_factory.mktemp("disks")) as started:
        locks = pod("locks-0", "locks", {})
        locks["spec"]["containers"][0]["securityContext"] = {"capabilities": {"add": ["IPC_LOCK"]}}
        start(started, pod("plain-0", "plain", {}), locks)
        yield started


def look(cluster: Plane, env: Environment, name: str) -> tuple[str, str]:
    found = kube.connect(files=[cluster.kubeconfig])
    live = found.get(found.kind("v1", "Pod"), name)
    assert live is not None
    (finding,) = memlock.check_limit(found, env, [live])
    return str(finding.verdict), finding.message


def test_the_limit_is_the_one_that_holds_in_the_pod(cluster: Plane, tmp_path: Path) -> None:
    env = env_of(tmp_path, RDMA)
    limit = cluster.kubectl("exec", "plain-0", "--", "sh", "-c", "ulimit -l").strip()
    expected = ("OK", "unlimited")
    if limit != "unlimited":
        expected = ("WARN", f"its user may lock {int(limit) / 1024:g} MiB: RDMA fails beyond that")
    assert look(cluster, env, "plain-0") == expected
    assert look(cluster, env, "locks-0") == ("OK", "IPC_LOCK is in effect: no limit applies")


def test_tcp_does_not_ask(cluster: Plane, tmp_path: Path) -> None:
    found = kube.connect(files=[cluster.kubeconfig])
    assert memlock.check_limit(found, env_of(tmp_path, RDMA, mode="tcp"), []) == []
    (nobody,) = memlock.check_limit(found, env_of(tmp_path, RDMA), [])
    assert nobody.verdict == "UNKNOWN"
    assert nobody.message == "no pod runs yet in which to check it; deploy checks once one does"
