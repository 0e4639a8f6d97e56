"""Network file systems of a host: whether they answer, how full their targets are, and how jobs read them."""

from __future__ import annotations

from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

from ..host import Host
from . import lustre

if TYPE_CHECKING:
    from .answer_types import LustreImport, LustreReads, LustreTarget, NetworkMount, StorageFacts

TYPES = frozenset({"lustre", "nfs", "nfs4", "beegfs", "gpfs", "ceph", "cifs", "smb3", "wekafs"})
MOST_MOUNTS = 32
ANSWER_S, LFS_S = 5, 15  # a server that is lost never answers, and nothing else notices it
# Older clients have these files in /proc, newer ones in debugfs, which root may read.
CLIENTS = ("/proc/fs/lustre", "/sys/kernel/debug/lustre", "/sys/fs/lustre")


def read(host: Host, request: Mapping[str, Any]) -> StorageFacts:
    """{mounts, targets, imports, reads, unread}; the last three are of Lustre, and empty without it."""
    unread: dict[str, str] = {}
    mounts = _mounts(host)
    with ThreadPoolExecutor(8) as pool:
        for mount, error in zip(mounts, pool.map(lambda mount: _error(host, mount["path"]), mounts)):
            mount["error"] = error
    if not any(mount["type"] == "lustre" for mount in mounts):
        return {"mounts": mounts, "targets": [], "imports": [], "reads": [], "unread": unread}
    paths = [mount["path"] for mount in mounts if mount["type"] == "lustre" and not mount["error"]]
    targets = [target for path in paths for target in _targets(host, path, unread)]
    return {
        "mounts": mounts,
        "targets": targets,
        "imports": _imports(host, unread),
        "reads": _reads(host, unread),
        "unread": unread,
    }


def _mounts(host: Host) -> list[NetworkMount]:
    """Each path once: the mount that covers the others is the last."""
    mounts: dict[str, NetworkMount] = {}
    for line in host.read("/proc/mounts").splitlines():
        source, path, kind, options = line.split()[:4]
        path = path.encode().decode("unicode_escape")
        mounts.pop(path, None)
        if kind in TYPES:
            mounts[path] = {"path": path, "type": kind, "source": source, "options": options.split(","), "error": None}
    return list(mounts.values())[:MOST_MOUNTS]


def _error(host: Host, path: str) -> str | None:
    """Why a file system does not answer; None if it does. Asked by a process that may hang alone."""
    result = host.run("stat", "-f", "-c", "%T", host.real(path), limit=ANSWER_S)
    return None if result.ok else result.last_line


def _targets(host: Host, path: str, unread: dict[str, str]) -> list[LustreTarget]:
    found: list[LustreTarget] = []
    for options in ((), ("-i",)):
        result = host.run("lfs", "df", *options, path, limit=LFS_S)
        targets, odd, ends = lustre.parse_df(result.out)
        found += targets
        if not result.ok or odd or not ends:
            command = " ".join(("lfs df", *options, path))
            unread[command] = (
                result.last_line if not result.ok else f"not understood: {(odd or ['no summary'])[0][:200]}"
            )
    return found


def _files(host: Host, name: str) -> dict[str, str]:
    """Folder of a client's connection -> path of its file of this name."""
    found: dict[str, str] = {}
    for client in CLIENTS:
        for path in host.glob(f"{client}/[om][sd]c/*/{name}"):
            found.setdefault(path.split("/")[-2], path)
    return found


def _imports(host: Host, unread: dict[str, str]) -> list[LustreImport]:
    found = []
    for folder, path in _files(host, "state").items():
        try:
            state = lustre.parse_state(folder, host.read(path))
        except OSError as error:
            unread[f"state of {folder}"] = error.strerror or str(error)
            continue
        if state is None:
            unread[f"state of {folder}"] = f"{path} has none"
        else:
            found.append(state)
    if not found:
        unread.setdefault("states of its Lustre targets", "the client shows none; in debugfs only root can read them")
    return found


def _reads(host: Host, unread: dict[str, str]) -> list[LustreReads]:
    """Reads of each file system, summed over its targets."""
    found: dict[str, dict[str, int]] = {}
    for folder, path in _files(host, "rpc_stats").items():
        try:
            sizes = lustre.parse_rpc_stats(host.read(path))
        except OSError as error:
            unread[f"reads of {folder}"] = error.strerror or str(error)
            continue
        if sizes is not None and "-OST" in folder:
            total = found.setdefault(folder.partition("-OST")[0], {})
            for pages, count in sizes.items():
                total[pages] = total.get(pages, 0) + count
    return [{"filesystem": name, "rpcs_by_pages": sizes} for name, sizes in found.items()]
