"""Check a requested sync, and find its pods."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from gpuctl.cluster.access import open_access
from gpuctl.cluster.manifests.storage import WHERE
from gpuctl.cluster.sync import excludes, pods
from gpuctl.cluster.sync.flow import PodConnector
from gpuctl.cluster.sync.local import Local
from gpuctl.cluster.sync.push import SyncRequest
from gpuctl.cluster.sync.request import FolderRequest, PodsRequest, SyncCommand
from gpuctl.cluster.sync.targets import Target
from gpuctl.core.errors import InvalidInput
from gpuctl.edges.kube import cluster as kube
from gpuctl.edges.kube.cluster import Cluster


@dataclass(frozen=True)
class PreparedSync:
    connector: PodConnector
    targets: Sequence[Target]
    local: Local
    request: SyncRequest


def prepare(command: SyncCommand) -> PreparedSync:
    """Check the folders, then find the pods; `InvalidInput` before a cluster is contacted if a folder is wrong."""
    folder = command.folder
    local, target = local_folder(folder), pod_folder(folder.target)
    cluster, targets = _find_pods(command.targets, target)
    request = SyncRequest(target, folder.force, command.check)
    return PreparedSync(PodConnector(cluster, folder.python), targets, local, request)


def local_folder(request: FolderRequest) -> Local:
    source = _source(request.source)
    return Local(source, excludes.read_patterns(source, request.exclude))


def _source(text: str) -> Path:
    path = Path(text).expanduser().absolute()
    doing = f"sync the folder {text}"
    if not path.is_dir():
        raise InvalidInput(doing, "the folder does not exist", "pass an existing folder with --source")
    path = path.resolve()
    if path in (Path("/"), Path.home().resolve()):
        hint = "change to the folder of your project, or give it with --source"
        raise InvalidInput(doing, f"that is all of {path}", hint)
    return path


def pod_folder(text: str) -> str:
    """Return the folder in the pods; "" is the workspace."""
    target = text or WHERE["workspace"]
    if not target.startswith("/") or ".." in target.split("/") or not target.strip("/"):
        hint = "use a path such as /workspace/code"
        raise InvalidInput(f"sync to {target}", "it is not the absolute path of a folder", hint)
    return target


def _find_pods(request: PodsRequest, target: str) -> tuple[Cluster, list[Target]]:
    if request.names:
        cluster = kube.connect(request.selection.context, request.namespace)
        return cluster, pods.named(cluster, request.names, target, request.container)
    access = open_access(request.selection)
    return access.cluster, pods.labelled(access.cluster, access.env.selector, target, request.container)
