"""A real node for environments: an image with sshd and Python, devices that it says it has, and volumes in a folder."""

from __future__ import annotations

import contextlib
import hashlib
import json
import subprocess
import tarfile
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from tests.integration.cluster.deploy import lab as made
from tests.integration.cluster.deploy.lab import standin_provisioner
from tests.rig import parts, rootfs
from tests.rig.kube import assets, node, standin_jupyter_lab
from tests.rig.kube.plane import Plane, plane
from tests.rig.needs import need

IMAGE, WITH_JUPYTER = "localhost/ml:1", "localhost/ml-with-jupyter:1"
VOLUMES = "volumes"


@contextlib.contextmanager
def real_node(
    folder: Path, devices: Mapping[str, str] = made.DEVICES, layers: Mapping[str, Path] | None = None
) -> Iterator[Plane]:
    """A cluster with the node within this block; a claim's volume is below `folder`, at VOLUMES/UID-OF-THE-CLAIM.

    `layers`: further images, each of the root folder of the test hosts with this archive on top.
    """
    need(assets.missing() or node.missing() or parts.missing())
    for name in (VOLUMES, "image"):
        (folder / name).mkdir()
    with node.network() as address, plane(address, standins=False) as started, node.node(started):
        bring_image(folder / "image", layers or {})
        made.prepare(started, nodes=0)
        has = {"capacity": devices, "allocatable": devices}
        started.api("PATCH", f"/api/v1/nodes/{node.NAME}/status", {"status": has})
        with standin_provisioner(started, folder / VOLUMES):
            yield started


def bring_image(folder: Path, layers: Mapping[str, Path]) -> None:
    """The root folder of the test hosts, which has sshd and Python, as images; one has a stand-in Jupyter."""
    layer, jupyter = layer_of(rootfs.base()), folder / "jupyter.tar"
    with tarfile.open(jupyter, "w") as made:
        made.add(Path(standin_jupyter_lab.__file__), "usr/local/bin/jupyter-lab", filter=_executable)
    more = {name: [layer, path] for name, path in layers.items()}
    images = {IMAGE: [layer], WITH_JUPYTER: [layer, jupyter], **more}
    listed = [_image(folder, name, layers) for name, layers in images.items()]
    (folder / "manifest.json").write_text(json.dumps(listed))
    socket = f"/proc/{containerd()}/root/run/containerd/containerd.sock"
    argv = ["ctr", "--address", socket, "-n", "k8s.io", "images", "import", "-"]
    with subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL) as importing:
        with tarfile.open(fileobj=importing.stdin, mode="w|") as archive:
            for each in (*folder.glob("*.json"), layer, jupyter, *layers.values()):
                archive.add(each, arcname=each.name)
        assert importing.stdin is not None
        importing.stdin.close()
    assert importing.returncode == 0


def _executable(entry: tarfile.TarInfo) -> tarfile.TarInfo:
    entry.mode, entry.uid, entry.gid = 0o755, 0, 0
    return entry


def _image(folder: Path, name: str, layers: Sequence[Path]) -> dict[str, object]:
    """The entry of an image in the archive's manifest; its configuration is a file in the folder."""
    digests = []
    for layer in layers:
        with layer.open("rb") as content:
            digests.append(f"sha256:{hashlib.file_digest(content, 'sha256').hexdigest()}")
    of_layers = {"type": "layers", "diff_ids": digests}
    path = "PATH=/usr/local/bin:/usr/bin:/bin"
    config = {"architecture": "amd64", "os": "linux", "config": {"Env": [path]}, "rootfs": of_layers}
    file = folder / f"config-{layers[-1].stem}.json"
    file.write_text(json.dumps(config))
    return {"Config": file.name, "RepoTags": [name], "Layers": [layer.name for layer in layers]}


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
