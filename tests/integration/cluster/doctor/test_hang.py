"""`gpuctl cluster doctor NAME hang` in two real pods: ranks of a stand-in for a training, one of which is stopped.

The pods are made by hand, for a StatefulSet never puts two on the one real node; they have what the doctor looks at:
the environment's ConfigMaps and variables, and names for each other.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from gpuctl.cluster.clusterfile import variables
from gpuctl.cluster.clusterfile.read import load
from gpuctl.cluster.environment import Environment, environment
from gpuctl.cluster.manifests import config
from tests.integration.cluster.inside.lab import NAMESPACE
from tests.integration.cluster.sync.pods import pod, real_node, start
from tests.rig.cluster.files import write
from tests.rig.command import Gpuctl, Said
from tests.rig.kube.plane import Plane
from tests.rig.tmux.screen import wait_until

# Polls, as a rank that waits for others does; the name of its script is told nowhere.
RANK = "import os\nos.nice(19)\nwhile True: pass"
START = 'export RANK=$0 WORLD_SIZE=2 LOCAL_WORLD_SIZE=1; python3 -ISc "$1" >/dev/null 2>&1 & echo $!'


@pytest.fixture(scope="module")
def plane(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Plane]:
    folder = tmp_path_factory.mktemp("disks")
    with real_node(folder) as started:
        started.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}})
        wait_until(
            lambda: started.get("serviceaccounts", namespace=NAMESPACE)["items"], "the namespace has its account"
        )
        env = environment(load(file(started, folder)))
        started.apply(*config.maps(env))
        start(started, *(pod_of(env, rank) for rank in range(env.nodes)))
        introduce(started, env)
        yield started


@pytest.fixture
def gpuctl(tmp_path: Path) -> Gpuctl:
    return Gpuctl(tmp_path)


def file(plane: Plane, folder: Path) -> Path:
    """The cluster file."""
    about = {"api": f"https://{plane.address}:{plane.port}", "namespace": NAMESPACE}
    return write(folder, {"cluster": about, "gpus": {"per_node": 1}})


def pod_of(env: Environment, rank: int) -> dict[str, Any]:
    """A pod as the environment's are, as far as the doctor looks."""
    hosts = {"configMap": {"name": f"{env.name}-hosts"}}
    memory = {"emptyDir": {"medium": "Memory", "sizeLimit": "128Mi"}}
    mounts: dict[str, Any] = {"/job": hosts, "/workspace": {"emptyDir": {}}, "/dev/shm": memory}  # noqa: S108 - in the pod
    found = pod(env.pod_name(rank), env.name, mounts)
    found["metadata"] |= {"namespace": NAMESPACE, "labels": {**env.labels, **env.selector}}
    chosen = [{"name": each.name, "value": each.value} for each in variables.all_of(env.cluster, env.mode)]
    found["spec"]["containers"][0]["env"] = [*chosen, {"name": "PATH", "value": "/usr/bin"}]
    return found


def introduce(plane: Plane, env: Environment) -> None:
    """The one real node has no name server: pods get each other's names as lines of /etc/hosts."""
    pods = {rank: plane.api("GET", f"/api/v1/namespaces/{NAMESPACE}/pods/{env.pod_name(rank)}") for rank in (0, 1)}
    lines = "".join(f"{found['status']['podIP']} {env.host(rank)}\n" for rank, found in pods.items())
    for rank in pods:
        inside(plane, env.pod_name(rank), "sh", "-c", 'printf "%s" "$0" >>/etc/hosts', lines)


def inside(plane: Plane, name: str, *argv: str) -> str:
    return plane.kubectl("exec", name, "-n", NAMESPACE, "--", *argv).strip()


@pytest.fixture
def job(plane: Plane) -> Iterator[list[str]]:
    """The process of the rank in each pod, by its number there."""
    ranks = [inside(plane, f"lab-{rank}", "sh", "-c", START, str(rank), RANK) for rank in (0, 1)]
    yield ranks
    for rank, process in enumerate(ranks):
        inside(plane, f"lab-{rank}", "sh", "-c", "kill -KILL $0 2>/dev/null || :", process)


def doctor(gpuctl: Gpuctl, plane: Plane, *words: str) -> Said:
    path = file(plane, gpuctl.home)
    return gpuctl("cluster", "doctor", path, *words, KUBECONFIG=str(plane.kubeconfig))


def test_a_rank_that_is_stopped_is_named_as_what_the_other_one_waits_for(
    plane: Plane, gpuctl: Gpuctl, job: list[str]
) -> None:
    inside(plane, "lab-1", "sh", "-c", "kill -STOP $0", job[1])
    said = doctor(gpuctl, plane, "hang", "-o", "json")
    assert said.code == 1, said.err
    (found,) = said.json["troubles"]
    assert [(each["check"], each["subject"]) for each in found["cause"]] == [("stopped", "Pod lab-1")], found
    assert found["cause"][0]["message"] == f"rank 1 (python3, process {job[1]}) is stopped"
    waits = [each["message"] for each in found["evidence"] if each["check"] == "waits"]
    assert waits == ["on lab-1 rank 1 is stopped; lab-0 waits for it"]
    assert found["also"] == []
    assert {"names", "hostfile", "settings", "interfaces", "mtu", "shared memory", "ranks"} <= {*found["checked"]}
    # Neither a GPU nor a port of the job is there: that is said, and is no "well".
    assert {each["check"] for each in found["unknown"]} == {"gpus"}
    assert {each["check"] for each in found["unavailable"]} == {"master", "kernel log"}


def test_a_rank_that_is_gone_is_named_and_nothing_of_ours_stays(plane: Plane, gpuctl: Gpuctl, job: list[str]) -> None:
    inside(plane, "lab-1", "sh", "-c", "kill -KILL $0", job[1])
    said = doctor(gpuctl, plane, "hang")
    assert said.code == 1, said.err
    assert "cause:\nFAIL     ranks           Pod lab-1: none of its 1 ranks run\n" in said.out
    assert "FAIL     ranks           lab: no process is rank 1 of the job" in said.out
    assert "zlib" not in inside(plane, "lab-0", "ps", "-eo", "args=")


def test_without_a_word_ready_pods_are_looked_at_for_both_and_silent_ones_are_no_good_news(
    plane: Plane, gpuctl: Gpuctl
) -> None:
    said = doctor(gpuctl, plane, "-o", "json")
    assert said.code == 1, said.err
    hang, slow = said.json["troubles"]
    assert (hang["trouble"], slow["trouble"]) == ("hang", "slow")
    assert "no rank of a job runs in any pod" in str(hang["unknown"])
    assert "guaranteed" in str(slow["warnings"])
    silent = doctor(gpuctl, plane, "slow", "--python", "python9")
    assert silent.code == 3
    assert "cannot look into the pods of lab: its image has no python9 that can be run" in silent.err


def test_a_warning_in_a_log_is_reported_with_the_time_that_the_kubelet_has_of_it(plane: Plane, gpuctl: Gpuctl) -> None:
    line = "lab-1:1:2 [0] net.cc:1 NCCL WARN NET/IB : Got completion from peer 10.0.0.1<1> with error 12, opcode 0"
    inside(plane, "lab-1", "sh", "-c", 'echo "$0" >/proc/1/fd/1', line)
    wait_until(lambda: "error 12" in plane.kubectl("logs", "lab-1", "-n", NAMESPACE), "the log has the line")
    (found,) = doctor(gpuctl, plane, "hang", "-o", "json").json["troubles"]
    (cause,) = found["cause"]
    assert (cause["check"], cause["subject"]) == ("NCCL log", "Pod lab-1")
    assert re.search(r"with error 12, opcode 0; written at \d{4}-\d\d-\d\d \d\d:\d\dZ$", cause["message"])
