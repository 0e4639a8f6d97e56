"""Owners of processes in real pods: containerd, runc and a real kubelet (cgroupfs, below a root of its own).

Stand-in: nvidia-smi, whose list of processes points at true pids of the node.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.gpuctl.fleet.plugins.module_utils.gpuhost.facts import gpu_use
from ansible_collections.gpuctl.fleet.plugins.module_utils.gpuhost.host import Host, Result

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
