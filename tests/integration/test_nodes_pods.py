"""Owners of processes in real pods: containerd, runc and a real kubelet (cgroupfs, below a root of its own).

Stand-in: nvidia-smi, whose list of processes points at true pids of the node.
"""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.gpuctl.fleet.plugins.module_utils.gpuhost.facts import gpu_use
from ansible_collections.gpuctl.fleet.plugins.module_utils.gpuhost.host import Host, Result
from click.testing import CliRunner

from gpuctl.cli.audit import audit
from gpuctl.cli.nodes import command
from gpuctl.nodes.model import User
from gpuctl.nodes.node_use import node as use_of
from tests.rig.gpu_user_facts import misfit
from tests.rig.gpu_user_trees import row, xml_with
from tests.rig.kube import assets, node
from tests.rig.kube.forwarding import pods
from tests.rig.kube.plane import Plane, plane
from tests.rig.needs import need
from tests.rig.tmux.screen import wait_until


@pytest.fixture(scope="module")
def cluster() -> Iterator[Plane]:
    need(assets.missing() or node.missing())
    with node.network() as address, plane(address, standins=False) as started, node.node(started):
        started.apply(node.serving("train", 2))
        started.kubectl("wait", "--for=condition=Available", "deployment", "--all", "--timeout=120s")
        yield started


class StandinSmi(Host):
    """The files of the node, as its kubelet sees them; nvidia-smi lists these processes."""

    def __init__(self, on: Mapping[int, int]) -> None:
        super().__init__(f"/proc/{kubelet()}/root")
        self.on = on

    def run(self, *argv: str, **more: Any) -> Result:
        """See Host."""
        if argv[0] != "nvidia-smi":
            return Result(127, "", f"{argv[0]}: not on this host")
        return Result(0, xml_with({gpu: [row(pid)] for gpu, pid in self.on.items()}), "")


def kubelet() -> int:
    """Pid of the node's kubelet on this machine."""
    mark = f"\0--hostname-override\0{node.NAME}\0"
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            if mark in path.read_text() and "kubelet" in path.read_text().partition("\0")[0]:
                return int(path.parent.name)
        except (OSError, UnicodeDecodeError):
            continue
    raise ProcessLookupError("the node has no kubelet")


def uid_of(cluster: Plane, pod: str) -> str:
    return str(json.loads(cluster.kubectl("get", "pod", pod, "-o", "json"))["metadata"]["uid"])


def pid_in(uid: str) -> int:
    """Pid, in the node, of the program of a pod; the pause container runs none of /usr."""
    for path in Path(f"/proc/{kubelet()}/root/proc").glob("[0-9]*/cgroup"):
        try:
            if uid in path.read_text() and "/usr/bin/python3" in (path.parent / "cmdline").read_text():
                return int(path.parent.name)
        except OSError:
            continue
    raise ProcessLookupError(f"no process of {uid}")


def users(on: Mapping[int, int]) -> dict[int, User]:
    facts = json.loads(json.dumps(gpu_use.read(StandinSmi(on), {})))
    assert misfit(facts) == ""
    return {gpu: user for user in use_of("node", facts).users for gpu in user.gpus}


def test_each_process_is_its_pods(cluster: Plane) -> None:
    names = pods(cluster, "train")
    uids = [uid_of(cluster, name) for name in names]
    found = users({gpu: pid_in(uid) for gpu, uid in enumerate(uids)})
    for gpu, (name, uid) in enumerate(zip(names, uids, strict=True)):
        assert (found[gpu].kind, found[gpu].who, found[gpu].what) == ("pod", f"default/{name}", "main")
        assert found[gpu].details["pod_uid"] == uid
        assert found[gpu].processes[0].command.startswith("/usr/bin/python3 -ISc")
        assert found[gpu].since is not None


def test_after_a_pod_is_replaced_the_owner_is_its_successor(cluster: Plane) -> None:
    first, second = pods(cluster, "train")
    before = pid_in(uid_of(cluster, first))
    cluster.kubectl("delete", "pod", first, "--wait=true")
    wait_until(lambda: len(set(pods(cluster, "train")) - {first, second}) == 1, "a successor", 60)
    cluster.kubectl("wait", "--for=condition=Available", "deployment", "--all", "--timeout=120s")
    [successor] = set(pods(cluster, "train")) - {first, second}
    found = users({0: pid_in(uid_of(cluster, successor)), 1: before})
    assert found[0].who == f"default/{successor}"
    assert (found[1].kind, found[1].why) == ("unknown", "it has ended, or is hidden there")


@pytest.fixture
def context(cluster: Plane, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """The name of the cluster's context, whose node has eight GPUs to give."""
    (tmp_path / "config").write_text(json.dumps(cluster.context("dev-eu")))
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "config"))
    monkeypatch.setenv("GPUCTL_STATE_DIR", str(tmp_path / "state"))
    room = {"nvidia.com/gpu": "8"}
    cluster.api("PATCH", f"/api/v1/nodes/{node.NAME}/status", {"status": {"capacity": room, "allocatable": room}})
    return "dev-eu"


@pytest.fixture
def asked(context: str) -> Any:
    """Run the command against this cluster, whose node has a stand-in for nvidia-smi."""

    def run(*words: str, image: str = node.IMAGE) -> Any:
        probe = ["--context", context, "--probe", "--probe-image", image]
        return CliRunner().invoke(command.nodes, [*probe, *words])

    return run


def install(on: Mapping[int, int]) -> None:
    """Give the node a stand-in for nvidia-smi that lists these processes; its mounts are its own."""
    lines = xml_with({gpu: [row(pid)] for gpu, pid in on.items()})
    put = "mount -t tmpfs tmpfs /usr/local/sbin; cat > /usr/local/sbin/nvidia-smi; chmod 755 /usr/local/sbin/nvidia-smi"
    script = f"#!/bin/sh\ncat <<'END'\n{lines}\nEND\n"
    inside = ["nsenter", "--mount", f"--target={kubelet()}", "sh", "-ec", put]
    subprocess.run(inside, input=script.encode(), check=True)


def probes(cluster: Plane) -> str:
    return cluster.kubectl("get", "pods", "-A", "-l", "app.kubernetes.io/component=node-probe", "-o", "name").strip()


def test_a_probe_asks_the_node_itself_and_is_removed(cluster: Plane, asked: Any) -> None:
    first = pods(cluster, "train")[0]
    install({0: pid_in(uid_of(cluster, first))})
    result = asked("-o", "json")
    [one] = json.loads(result.stdout)["nodes"]
    assert (one["source"], one["gpus"][0]["state"], len(one["gpus"])) == ("node", "used", 8), result.output
    [user] = [user for user in one["users"] if user["processes"]]
    assert (user["kind"], user["who"], user["what"]) == ("pod", f"default/{first}", "main")
    assert probes(cluster) == ""


def test_a_probe_that_cannot_run_is_removed_and_the_api_is_shown(cluster: Plane, asked: Any) -> None:
    result = asked("--timeout", "15", image="localhost/none:1")
    assert result.exit_code == 3, result.output
    assert "the node itself gave no answer: its pod does not run: " in result.output
    assert "the API shows which pods have GPUs" in result.output
    assert probes(cluster) == ""


def test_an_audit_by_pods_has_the_facts_of_the_node_and_its_state_by_the_api(
    cluster: Plane, context: str, tmp_path: Path
) -> None:
    first = pods(cluster, "train")[0]
    install({0: pid_in(uid_of(cluster, first))})
    cluster.kubectl("cordon", node.NAME)
    saved = tmp_path / "facts.json"
    words = ["--context", context, "--probe", "--probe-image", node.IMAGE, "--window", "0.1", "--save", str(saved)]
    try:
        result = CliRunner().invoke(audit, [*words, "-o", "json"])
    finally:
        cluster.kubectl("uncordon", node.NAME)
    assert result.exit_code == 1, result.output
    report = json.loads(result.stdout)
    state = {one["message"]: one["verdict"] for one in report["findings"] if one["check"] == "kubernetes-state"}
    assert state["it is cordoned: no further pod starts there"] == "WARN"
    assert report["nodes"] == [node.NAME]
    facts = json.loads(saved.read_text())["nodes"][node.NAME]
    assert len(facts["gpu"]["gpus"]) == 8
    assert probes(cluster) == ""


def test_an_audit_by_pods_that_cannot_run_reaches_no_node_and_leaves_no_pod(cluster: Plane, context: str) -> None:
    words = ["--context", context, "--probe", "--probe-image", "localhost/none:1", "--timeout", "15", "--window", "0.1"]
    result = CliRunner().invoke(audit, words)
    assert result.exit_code == 3, result.output
    assert "its pod does not run: " in result.output
    assert probes(cluster) == ""
