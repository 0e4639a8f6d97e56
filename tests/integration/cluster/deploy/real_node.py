"""A real node for environments: an image with sshd and Python, devices that it says it has, and volumes in a folder."""

from __future__ import annotations

import contextlib
import hashlib
import json
import subprocess
import tarfile
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path

from tests.integration.cluster.deploy import lab as made
from tests.integration.cluster.deploy.lab import standin_provisioner
from tests.rig import parts, rootfs
from tests.rig.kube import assets, node
from tests.rig.kube.plane import Plane, plane
from tests.rig.needs import need

IMAGE = "localhost/ml:1"
VOLUMES = "volumes"


@contextlib.contextmanager
def real_node(folder: Path, devices: Mapping[str, str] = made.DEVICES) -> Iterator[Plane]:
    """A cluster with the node within this block; a claim's volume is below `folder`, at VOLUMES/UID-OF-THE-CLAIM."""
    need(assets.missing() or node.missing() or parts.missing())
    for name in (VOLUMES, "image"):
        (folder / name).mkdir()
    with node.network() as address, plane(address, standins=False) as started, node.node(started):
        bring_image(folder / "image")
        made.prepare(started, nodes=0)
        has = {"capacity": devices, "allocatable": devices}
        started.api("PATCH", f"/api/v1/nodes/{node.NAME}/status", {"status": has})
        with standin_provisioner(started, folder / VOLUMES):
            yield started


def bring_image(folder: Path) -> None:
    """The root folder of the test hosts, which has sshd and Python, as an image on the node."""
    layer = layer_of(rootfs.base())
    with layer.open("rb") as content:
        digest = hashlib.file_digest(content, "sha256").hexdigest()
    layers = {"type": "layers", "diff_ids": [f"sha256:{digest}"]}
    path = "PATH=/usr/local/bin:/usr/bin:/bin"
    config = {"architecture": "amd64", "os": "linux", "config": {"Env": [path]}, "rootfs": layers}
    (folder / "config.json").write_text(json.dumps(config))
    listed = [{"Config": "config.json", "RepoTags": [IMAGE], "Layers": ["layer.tar"]}]
    (folder / "manifest.json").write_text(json.dumps(listed))
    socket = f"/proc/{containerd()}/root/run/containerd/containerd.sock"
    argv = ["ctr", "--address", socket, "-n", "k8s.io", "images", "import", "-"]
    with subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL) as importing:
        with tarfile.open(fileobj=importing.stdin, mode="w|") as archive:
            for each in (folder / "config.json", folder / "manifest.json", layer):
                archive.add(each, arcname=each.name if each.suffix == ".json" else "layer.tar")
        assert importing.stdin is not None
        importing.stdin.close()
    assert importing.returncode == 0


def layer_of(root: Path) -> Path:
    """A root folder as an archive, beside it in the cache."""
    layer = root.with_suffix(".tar")
    if not layer.exists():
        with tempfile.NamedTemporaryFile(dir=root.parent, prefix=f"{root.name}.part-", delete=False) as made:
            subprocess.run(["tar", "-C", str(root), "--exclude=./dev/*", "-cf", made.name, "."], check=True)
            Path(made.name).rename(layer)
    return layer


def containerd() -> int:
    """The process of the node's container runtime."""
    mine = f"NAME={node.NAME}\0".encode()
    for found in Path("/proc").glob("[0-9]*"):
        try:
            if (found / "cmdline").read_bytes().startswith(b"containerd\0") and mine in (
                found / "environ"
            ).read_bytes():
                return int(found.name)
        except OSError:
            continue
    raise AssertionError("the node has no containerd")
