"""An environment of two real pods for NCCL tests: its own start script, keys and sshd, a real mpirun, a stand-in test.

Both run on the one real node. What a cluster's DNS would say stands in the pods' hosts files: this cluster has none.
"""

from __future__ import annotations

import contextlib
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gpuctl.cluster import manifests
from gpuctl.cluster.deploy import apply
from gpuctl.cluster.environment import Environment, environment
from gpuctl.domain import kube_errors as errors
from tests.integration.cluster.deploy import lab as made
from tests.integration.cluster.deploy.lab import Lab
from tests.integration.cluster.deploy.real_node import IMAGE, containerd, real_node
from tests.integration.nccl.cluster import FABRIC, build
from tests.rig.kube import node
from tests.rig.needs import need

LABELS = tuple(f"lab-{rank} on {node.NAME}" for rank in (0, 1))
RAIL = "mlx5_2"
FILE = {
    "image": {"name": IMAGE},
    "resources": {"cpu": "600m", "memory": "512Mi", "shm": "64Mi"},
    "gpus": {"per_node": 2, "default_nodes": 2},
    # What training pods have and the test has to have, too: the stand-in takes this one adapter then.
    "network": {"tcp": {"environment": {"NCCL_IB_HCA": f"={RAIL}"}}},
}
NO_POLICY = "PodDisruptionBudget"  # the test server has no policy/v1


@dataclass(frozen=True)
class Deployed:
    """The environment, and the file that says what its network is like."""

    lab: Lab
    env: Environment
    path: Path
    network: Path

    def fabric(self, *faults: str) -> None:
        """How the network is from now on: whole, but for these lines (see the stand-in)."""
        provider = FABRIC.replace("provider efa", "provider ib")
        self.network.write_text(provider + "".join(f"{line}\n" for line in faults))

    def inside(self, rank: int, *argv: str) -> str:
        return self.lab.plane.kubectl("exec", f"lab-{rank}", "-n", self.lab.namespace, "--", *argv)

    def left(self) -> list[str]:
        """What of a test still runs in the pods."""
        words = ("mpirun", "orted", "_perf", "ssh ")
        lines = [line for rank in (0, 1) for line in self.inside(rank, "ps", "-eo", "args=").splitlines()]
        return [line for line in lines if any(word in line for word in words) and "[" not in line]


@contextlib.contextmanager
def deployed(folder: Path) -> Iterator[Deployed]:
    """The environment within this block; below `folder` is what it needs."""
    lacking = [name for name in ("mpicc", "mpirun") if shutil.which(name) is None]
    need(f"no {lacking}" if lacking else "")
    for name in ("programs", "files"):
        (folder / name).mkdir()
    for path in (folder, *folder.parents[:2]):
        path.chmod(0o755)
    build(folder / "programs")
    with real_node(folder, {"nvidia.com/gpu": "16"}) as started:
        labs = made.namespaces(started, folder / "files")
        yield _brought(next(labs), folder / "programs")  # the pods go with their node


def _brought(lab: Lab, programs: Path) -> Deployed:
    env = environment(lab.file(FILE))
    found = Deployed(lab, env, lab.path(FILE), programs / "fabric")
    found.fabric()
    cluster = lab.cluster()
    wanted = manifests.everything(env)
    for each in apply.filled(env, wanted, [None] * len(wanted)):
        if each["kind"] == "StatefulSet":
            _furnish(each["spec"]["template"]["spec"], programs)
        with contextlib.suppress(*((errors.NotFound,) if each["kind"] == NO_POLICY else ())):
            cluster.apply(each)
    made.wait_for(lambda: ready(lab) == 2, 120)
    _name(lab, env)
    return found


def _furnish(spec: dict[str, Any], programs: Path) -> None:
    """Both pods on one node, and programs that the image has not."""
    spec["affinity"].pop("podAntiAffinity")
    container = spec["containers"][0]
    for name, inside, outside in (
        ("programs", "/opt/nccl-tests/bin", programs),
        ("network", "/etc/standin-fabric", programs / "fabric"),
    ):
        spec["volumes"].append({"name": name, "hostPath": {"path": str(outside)}})
        container["volumeMounts"].append({"name": name, "mountPath": inside, "readOnly": True})


def ready(lab: Lab) -> int:
    return int(lab.get("statefulset", "lab")["status"].get("readyReplicas") or 0)


def _name(lab: Lab, env: Environment) -> None:
    """Tell each pod where the others are, as DNS would; the kubelet writes their hosts files but once."""
    pods = {each["metadata"]["name"]: each for each in lab.get("pods")["items"]}
    names = "".join(f"{pods[env.pod_name(rank)]['status']['podIP']} {env.host(rank)}\n" for rank in (0, 1))
    for pod in pods.values():
        hosts = Path(f"/proc/{containerd()}/root/var/lib/kubelet/pods/{pod['metadata']['uid']}/etc-hosts")
        with hosts.open("a") as file:
            file.write(names)
