"""Real pods to sync to: containers on the one real node, each with folders of its own, some with one they share."""

from __future__ import annotations

import contextlib
import hashlib
import json
import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from tests.rig.kube import assets, node
from tests.rig.kube.plane import Plane, plane
from tests.rig.needs import need

LABELS = {"app.kubernetes.io/name": "ml-environment", "app.kubernetes.io/component": "worker"}
SHARED, SMALL_BYTES = "shared", 1 << 20


@contextlib.contextmanager
def real_node(folder: Path) -> Iterator[Plane]:
    """A cluster with one real node. Below `folder` is what pods share, and a disk that is soon full."""
    need(assets.missing() or node.missing())
    (folder / SHARED).mkdir()
    with (
        small_disk(folder / "small"),
        node.network() as address,
        plane(address, standins=False) as started,
        node.node(started),
    ):
        yield started


@contextlib.contextmanager
def small_disk(at: Path) -> Iterator[None]:
    """A disk of 1 MiB."""
    at.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={SMALL_BYTES},mode=777", "tmpfs", str(at)], check=True)
    try:
        yield
    finally:
        subprocess.run(["umount", "--lazy", str(at)], check=True)


def pod(name: str, environment: str, mounts: Mapping[str, Mapping[str, Any]], cpu: str = "100m") -> dict[str, Any]:
    """A pod of an environment. `mounts`: what is at which path, besides the programs of this machine."""
    volumes = {"/usr": {"hostPath": {"path": "/usr"}}, **mounts}
    listed = [{"name": f"at-{number}", **volume} for number, volume in enumerate(volumes.values())]
    mounted = [{"name": f"at-{number}", "mountPath": path} for number, path in enumerate(volumes)]
    container: dict[str, Any] = {"name": "ml", "image": node.IMAGE, "imagePullPolicy": "Never"}
    # A pod that asks for no processors gets what nobody else on this machine wants.
    container |= {"volumeMounts": mounted, "resources": {"requests": {"cpu": cpu}}}
    spec = {"containers": [container], "volumes": listed, "automountServiceAccountToken": False}
    labels = {**LABELS, "app.kubernetes.io/instance": environment}
    meta = {"name": name, "labels": labels}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": {**spec, "terminationGracePeriodSeconds": 0}}


def start(cluster: Plane, *pods: dict[str, Any]) -> None:
    """Make pods and wait until they run."""
    cluster.apply(*pods)
    for each in pods:
        meta = each["metadata"]
        words = (f"pod/{meta['name']}", "--timeout=120s", "-n", meta.get("namespace", "default"))
        cluster.kubectl("wait", "--for=condition=Ready", *words)


# What is in a folder of a pod, hashed by nothing of ours.
LIST = """
import hashlib, json, os, sys
found = {}
for top, folders, names in os.walk(sys.argv[1]):
    folders[:] = [name for name in folders if name != ".gpuctl-sync"]
    for name in names:
        path = os.path.join(top, name)
        found[os.path.relpath(path, sys.argv[1])] = hashlib.sha256(open(path, "rb").read()).hexdigest()
json.dump(found, sys.stdout)
"""


def inside(cluster: Plane, name: str, program: str, *words: str) -> str:
    """What a Python program prints in a pod."""
    return cluster.kubectl("exec", name, "--", "/usr/bin/python3", "-ISc", program, *words)


def files_in(cluster: Plane, name: str, folder: str) -> dict[str, str]:
    """The files of a folder in a pod, each with its SHA-256."""
    found: dict[str, str] = json.loads(inside(cluster, name, LIST, folder))
    return found


def hashes(folder: Path) -> dict[str, str]:
    """The same of a folder here."""
    paths = [path for path in folder.rglob("*") if path.is_file()]
    return {path.relative_to(folder).as_posix(): hashlib.sha256(path.read_bytes()).hexdigest() for path in paths}
