"""Software of a run: nccl-tests, NCCL, MPI, and /etc/nccl.conf."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ..host import PATH, Host
from .folders import FOLDERS
from .login import User

if TYPE_CHECKING:
    from .answer_types import ProgramsFacts

TEST = "all_reduce_perf"
LIBRARIES = (
    "/usr/lib/*-linux-gnu/libnccl.so.2",
    "/usr/lib64/libnccl.so.2",
    "/usr/local/lib/libnccl.so.2",
    "/usr/local/cuda/lib64/libnccl.so.2",
    "/usr/local/nccl*/lib/libnccl.so.2",
    "/opt/nccl/build/lib/libnccl.so.2",
)
OFI = (
    "/opt/amazon/ofi-nccl/lib*/libnccl-net*.so",
    "/opt/amazon/ofi-nccl/lib/*/libnccl-net*.so",
    "/opt/aws-ofi-nccl/lib/libnccl-net*.so",
)
NET_PLUGINS = (
    *OFI,
    "/opt/hpcx*/*/lib/libnccl-net*.so",  # nccl_rdma_sharp_plugin, in newer versions ncclnet_plugin
    "/usr/local/*/lib*/libnccl-net*.so",
    "/usr/local/lib*/libnccl-net*.so",
    "/usr/lib/*-linux-gnu/libnccl-net*.so",
    "/usr/lib64/libnccl-net*.so",
)
CONF = "/etc/nccl.conf"
LARGEST = 256 * 2**20  # bytes; a statically linked test with kernels for every GPU is large


def read(host: Host, request: Mapping[str, Any]) -> ProgramsFacts:
    """{test, test_sha256, test_mpi, nccl, plugin, net_plugins, mpirun, mpi, conf}.

    `test_sha256` identifies builds, as old ones print no version; `test_mpi`: built with MPI; `nccl`: version in
    the library's file name; `plugin`: path of aws-ofi-nccl; `net_plugins`: all that NCCL could load; `mpi`:
    "Open MPI 4.1.4"; `conf`: variables in /etc/nccl.conf.
    """
    unread: dict[str, str] = {}
    user: User = request["user"]
    home = f"~{user.name or ''}/"  # of the job's user, not ours
    # In the order of a run's search.
    places = (*request.get("folders", ()), *PATH.split(":"), *FOLDERS)
    folders = [re.sub("^~/", home, folder) for folder in places]
    test, mpirun = _find(host, TEST, folders), _find(host, "mpirun", folders)
    sha256, with_mpi = _build(host, test, unread)
    mpi = _mpi(host, mpirun, unread)
    for name, path in ((TEST, test), ("mpirun", mpirun)):
        if path is None:
            unread["test" if name == TEST else "mpirun"] = f"{name}: not found on the PATH nor in the usual folders"
    return {
        "test": test,
        "mpirun": mpirun,
        "test_sha256": sha256,
        "test_mpi": with_mpi,
        "mpi": mpi,
        "nccl": _nccl(host, unread),
        "plugin": _first(host, OFI),
        "net_plugins": _net_plugins(host),
        "conf": _conf(host),
        "unread": unread,
    }


def _find(host: Host, program: str, folders: Sequence[str]) -> str | None:
    for folder in folders:
        path = f"{os.path.expanduser(folder)}/{program}"
        if host.which(path):
            return path
    return None


def _build(host: Host, test: str | None, unread: dict[str, str]) -> tuple[str | None, bool | None]:
    """Hash of the test, and True if it was built with MPI."""
    if test is None:
        return None, None
    try:
        with open(host.real(test), "rb") as stream:
            content = stream.read(LARGEST + 1)
    except OSError as error:
        unread["test_sha256"] = f"{test}: {error.strerror}"
        return None, None
    if len(content) > LARGEST:
        unread["test_sha256"] = f"{test} is larger than {LARGEST} bytes"
        return None, None
    import hashlib  # slow to load, and an audit reads no programs

    return hashlib.sha256(content).hexdigest(), b"libmpi" in content or b"MPI_Init" in content


def _mpi(host: Host, mpirun: str | None, unread: dict[str, str]) -> str | None:
    """The first line of `mpirun --version`, without "mpirun" and brackets: "Open MPI 4.1.4"."""
    if mpirun is None:
        return None
    result = host.run(mpirun, "--version", limit=20)
    if not result.ok or not result.out.strip():
        unread["mpi"] = result.last_line
        return None
    return re.sub(r"^mpirun\s*|[()]", "", result.out.strip().splitlines()[0]).strip()


def _nccl(host: Host, unread: dict[str, str]) -> str | None:
    path = _first(host, LIBRARIES)
    if path is None:
        unread["nccl"] = "libnccl.so.2 is in none of the usual folders; the test may be linked statically"
        return None
    version = re.search(r"libnccl\.so\.(\d+\.\d+\.\d+)", os.path.realpath(host.real(path)))
    if version is None:
        unread["nccl"] = f"{path} has no version in its file name"
    return version.group(1) if version else None


def _net_plugins(host: Host) -> list[str]:
    """Every libnccl-net*.so in the usual folders and in the linker's cache."""
    usual = {path for pattern in NET_PLUGINS for path in host.glob(pattern)}
    linked = re.findall(
        r"^\s*libnccl-net\S*\.so\S* .*=> (\S+)$", host.run("ldconfig", "-p", limit=10).out, re.MULTILINE
    )
    return sorted({*usual, *linked})


def _first(host: Host, patterns: Sequence[str]) -> str | None:
    return next((path for pattern in patterns for path in host.glob(pattern)), None)


def _conf(host: Host) -> dict[str, str]:
    rows = (line.split("#")[0].partition("=") for line in (host.read_or_none(CONF) or "").splitlines())
    return {name.strip(): value.strip() for name, equals, value in rows if equals and name.strip()}
