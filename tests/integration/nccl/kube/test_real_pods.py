"""Real containers: workers with a real sshd, a launcher with a real mpirun, as an ordinary user without any rights.

The one test node takes two workers and the launcher; the test itself is the stand-in of tests/standins.
"""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from gpuctl.edges.kube import cluster as kube
from gpuctl.edges.kube import watch
from gpuctl.edges.kube.cancel import Stop
from gpuctl.edges.kube.cluster import Cluster, Object
from gpuctl.nccl.model import Launch, LaunchResult, Outcome, Sweep
from gpuctl.nccl.runners.kube.model import Settings
from gpuctl.nccl.runners.kube.runner import KubeRunner
from tests.integration.nccl.cluster import FABRIC, build
from tests.rig import parts, rootfs
from tests.rig.kube import assets, node
from tests.rig.kube.plane import Plane, plane
from tests.rig.needs import need

OTHER = "another-node"  # its worker runs on the real node, too
MIB = 1 << 20
# Processors are few: whoever waits leaves them to others.
YIELD = {"OMPI_MCA_mpi_yield_when_idle": "1"}
SWEEP = Sweep(begin_bytes=8 * MIB, end_bytes=64 * MIB, gpus_per_node=2, limit_s=120, env=YIELD)
# Of the root folder of the test hosts, which has sshd and Open MPI: a machine that runs tests may have no sshd.
SHARED = ("/usr", "/bin", "/sbin", "/lib", "/lib64", "/etc/alternatives", "/etc/openmpi")


@pytest.fixture(scope="module")
def real(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Plane, Path]]:
    lacking = "" if shutil.which("mpicc") else "no mpicc; see tests/rig/packages.txt"
    need(assets.missing() or node.missing() or parts.missing() or lacking)
    folder = tmp_path_factory.mktemp("programs")
    build(folder)
    (folder / "fabric").write_text(FABRIC)
    for path in (folder, *folder.parents[:2]):
        path.chmod(0o755)
    with node.network() as address, plane(address, standins=False) as started, node.node(started):
        room = {"nvidia.com/gpu": "16"}
        started.api("PATCH", f"/api/v1/nodes/{node.NAME}/status", {"status": {"capacity": room, "allocatable": room}})
        yield started, folder


# 12 MB at a time, more than the 10 MiB at which a kubelet rotates a log; and time enough for it to do so. What is
# rotated before anybody listens is nowhere to be had.
TALKS = """
import os, sys, time
print("begins", flush=True)
while not os.path.exists("/programs/heard"):
    time.sleep(0.1)
for part in range(3):
    for number in range(120000):
        print(part * 120000 + number, "x" * 100)
    sys.stdout.flush()
    time.sleep(12)
"""


class Furnished(Cluster):
    """Gives pods what this test has no image for; all else goes to the API as it came."""

    folder: Path

    def apply(self, desired: Object, *, dry_run: bool = False, force: bool = False) -> Object:
        if desired["kind"] == "Pod":
            self._furnish(desired["spec"])
        return super().apply(desired, dry_run=dry_run, force=force)

    def _furnish(self, spec: dict[str, Any]) -> None:
        root = rootfs.base()
        mounts = {**{path: root / path[1:] for path in SHARED}, "/opt/nccl-tests/bin": self.folder}
        mounts["/etc/standin-fabric"] = self.folder / "fabric"
        (container,) = spec["containers"]
        container["imagePullPolicy"] = "Never"
        for number, (inside, outside) in enumerate(mounts.items()):
            spec["volumes"].append({"name": f"shared-{number}", "hostPath": {"path": str(outside.resolve())}})
            container["volumeMounts"].append({"name": f"shared-{number}", "mountPath": inside, "readOnly": True})
        (term,) = spec.get("affinity", {}).get("nodeAffinity", {}).get(REQUIRED, {}).get("nodeSelectorTerms", [{}])
        for field in term.get("matchFields", []):
            field["values"] = [node.NAME]


REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"


def run(real: tuple[Plane, Path], launch: Launch, **more: Any) -> tuple[LaunchResult, list[str]]:
    cluster, folder = real
    found = kube.connect(files=[cluster.kubeconfig])
    furnished = Furnished(found.client, found.namespace)
    furnished.folder = folder
    settings = {"image": node.IMAGE, "cpu": "400m", "memory": "512Mi", "shm": "64Mi", "start_s": 60.0, **more}
    texts = folder / "texts"
    texts.mkdir(exist_ok=True)
    said: list[str] = []
    runner = KubeRunner(furnished, Settings(**settings), texts)
    (ended,) = runner.run([launch], lambda _, words: said.append(words), lambda: False)
    said += [path.read_text() for path in sorted(texts.iterdir())]
    ours = ("-l", "app.kubernetes.io/managed-by=gpuctl", "-o", "name")
    assert cluster.kubectl("get", "pods,services,secrets", *ours) == ""
    return ended, said


def test_two_workers_are_reached_by_ssh_and_measured(real: tuple[Plane, Path]) -> None:
    ended, said = run(real, Launch((node.NAME, OTHER), SWEEP))
    assert ended.run.outcome is Outcome.COMPLETE, (ended.run.cause, said)
    assert [row.size_bytes for row in ended.run.rows] == [8 * MIB, 16 * MIB, 32 * MIB, 64 * MIB]
    assert {rank.host for rank in ended.run.ranks} == {node.NAME, OTHER}
    assert "64M done" in said


def test_a_single_node_needs_no_ssh(real: tuple[Plane, Path]) -> None:
    ended, _ = run(real, Launch((node.NAME,), SWEEP))
    assert ended.run.outcome is Outcome.COMPLETE, ended.run.cause
    assert len(ended.run.rows) == 4


def test_a_log_that_the_kubelet_rotates_is_read_whole(real: tuple[Plane, Path]) -> None:
    cluster, folder = real
    paths = {"usr": "/usr", "programs": str(folder)}
    mounts = [{"name": name, "mountPath": f"/{name}", "readOnly": True} for name in paths]
    container = {"name": "main", "image": node.IMAGE, "imagePullPolicy": "Never", "volumeMounts": mounts}
    container["command"] = ["/usr/bin/python3", "-ISc", TALKS]
    spec = {"restartPolicy": "Never", "containers": [container], "automountServiceAccountToken": False}
    spec["volumes"] = [{"name": name, "hostPath": {"path": path}} for name, path in paths.items()]
    cluster.apply({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "talks"}, "spec": spec})
    cluster.kubectl("wait", "--for=condition=Ready", "pod/talks", "--timeout=60s")
    try:
        found = kube.connect(files=[cluster.kubeconfig])
        log = watch.logs(found, "talks", lambda: phase(cluster) != "Running", Stop())
        assert next(log) == "begins"
        (folder / "heard").touch()
        # A line in whose middle the log was rotated has the time of its second half in it, with this kubelet.
        heard = [re.sub(r"\d{4}-\d\d-\d\dT[\d:.]+Z ", "", line).split()[0] for line in log]
    finally:
        cluster.kubectl("delete", "pod", "talks", "--wait=false")
    assert heard == [str(number) for number in range(360000)]


def phase(cluster: Plane) -> str:
    return cluster.kubectl("get", "pod", "talks", "-o", "jsonpath={.status.phase}")


def test_root_is_let_in_where_it_was_asked_for(real: tuple[Plane, Path]) -> None:
    ended, said = run(real, Launch((node.NAME, OTHER), replace(SWEEP, end_bytes=8 * MIB)), user=0)
    assert ended.run.outcome is Outcome.COMPLETE, (ended.run.cause, said)


def test_ranks_that_hang_are_named_and_ended_at_the_limit_with_their_pods(real: tuple[Plane, Path]) -> None:
    fabric = real[1] / "fabric"
    fabric.write_text(f"{FABRIC}hang w1 {16 * MIB}\n")
    try:
        ended, said = run(real, Launch((node.NAME, OTHER), replace(SWEEP, limit_s=25)))
    finally:
        fabric.write_text(FABRIC)
    assert ended.run.outcome is Outcome.HUNG
    assert str(ended.run.cause).startswith(f"no end within 25 s, after 8M: on {OTHER} rank"), said
    assert ended.waiting == {node.NAME: "waiting", OTHER: "gone"}
    assert [row.size_bytes for row in ended.run.rows] == [8 * MIB]
    assert ended.lost == ()
