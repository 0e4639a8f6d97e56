"""Two real pods of an environment on the one real node: they see each other's names, and share a workspace."""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gpuctl.cluster.environment import EnvironmentRequest, environment
from gpuctl.cluster.manifests import config
from tests.integration.cluster.deploy.lab import Lab, wait_for
from tests.rig.kube import node

PATIENCE = 240.0
PATH = "/usr/local/bin:/usr/bin:/bin"
DNS = Path(__file__).with_name("standin_dns.py")


@contextlib.contextmanager
def names(folder: Path) -> Iterator[Path]:
    """A stand-in for the cluster's DNS, on the node's address; the file of what it knows."""
    file = folder / "names"
    file.touch()
    inside = ["setpriv", "--pdeathsig", "KILL", "nsenter", f"--net=/run/netns/{node.NAME}"]
    process = subprocess.Popen([*inside, sys.executable, str(DNS), str(file), node.ITS])
    try:
        yield file
    finally:
        process.kill()
        process.wait()


@dataclass(frozen=True)
class Env:
    """An environment that runs; `path`: its cluster file, `workspace`: what its pods have at /workspace."""

    lab: Lab
    path: Path
    workspace: Path

    def inside(self, pod: str, *argv: str, check: bool = True) -> str:
        return self.lab.plane.kubectl("exec", pod, "-n", self.lab.namespace, "--", *argv, check=check)


def two(lab: Lab, names: Path, volumes: Path, *changes: Mapping[str, Any]) -> Env:
    """Deploy it with one pod, and make it two on one node, which it would never do by itself; with our DNS and PATH."""
    lab.deploy(*changes, mode="tcp", nodes=1, limit_s=0)
    env = environment(lab.file(*changes), EnvironmentRequest("tcp", 2))
    searches = [f"{lab.namespace}.svc.cluster.local", "svc.cluster.local", "cluster.local"]
    dns = {"dnsPolicy": "None", "dnsConfig": {"nameservers": [node.ITS], "searches": searches}}
    path = {"name": "ml", "env": [{"name": "PATH", "value": f"/workspace/bin:{PATH}"}]}
    spec = {"affinity": None, **dns, "containers": [path]}
    _patch(lab, "cm/lab-hosts", {"data": {"hostfile": config.hostfile(env)}})
    # None first: a pod that keeps others off its node would keep off those that do not mind, too.
    _patch(lab, "sts/lab", {"spec": {"replicas": 0, "template": {"spec": spec}}})
    wait_for(lambda: not lab.get("pods")["items"], PATIENCE)
    _patch(lab, "sts/lab", {"spec": {"replicas": 2}})
    wait_for(lambda: _ready(lab, names), PATIENCE)
    claim = next(each for each in lab.get("pvc")["items"] if "workspace" in each["metadata"]["name"])
    return Env(lab, lab.path(*changes), volumes / claim["metadata"]["uid"])


def _patch(lab: Lab, what: str, patch: Mapping[str, Any]) -> None:
    lab.plane.kubectl("patch", what, "-n", lab.namespace, "--type=strategic", "-p", json.dumps(patch))


def _ready(lab: Lab, names: Path) -> bool:
    found = {each["metadata"]["name"]: each for each in lab.get("pods")["items"]}
    addresses = {name: each["status"].get("podIP") for name, each in found.items()}
    known = [f"{name}.lab.{lab.namespace}.svc {address}\n" for name, address in addresses.items() if address]
    names.write_text("".join(known))
    return len(known) == 2 and all(_is_ready(each) for each in found.values())


def _is_ready(pod: Mapping[str, Any]) -> bool:
    return any(each["type"] == "Ready" and each["status"] == "True" for each in pod["status"].get("conditions", []))
