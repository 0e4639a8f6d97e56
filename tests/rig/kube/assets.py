"""Where the programs of a Kubernetes control plane are on this machine.

$KUBEBUILDER_ASSETS names their folder (as `setup-envtest` makes it); else they come from the archive (tar, zstd) that
$GPUCTL_CONTROL_PLANE names, or that lies in ../shared/k8s beside the checkout, unpacked once into the cache; else from
the folder into which `make kubernetes` downloads them.
"""

from __future__ import annotations

import contextlib
import functools
import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Iterable
from pathlib import Path

from tests.rig.kube import download
from tests.rig.rootfs import cache

PARTS = ("etcd", "kube-apiserver")
CONTROLLERS = ("kube-controller-manager", "kube-scheduler")  # setup-envtest brings none of them
HINT = "`make kubernetes` downloads what is missing, or KUBEBUILDER_ASSETS names a folder that has it"


def assets() -> Path | None:
    """The folder with the programs; None where this machine has none."""
    if named := os.environ.get("KUBEBUILDER_ASSETS"):
        return Path(named)
    archive = Path(
        os.environ.get("GPUCTL_CONTROL_PLANE", Path(__file__).parents[4] / "shared/k8s/control-plane.tar.zst")
    )
    if archive.is_file():
        return _unpacked(archive)
    downloaded = download.folder()
    return downloaded if downloaded.is_dir() else None


def _unpacked(archive: Path) -> Path | None:
    stamp = archive.stat()
    folder = cache() / f"control-plane-{stamp.st_size}-{int(stamp.st_mtime)}"
    if not folder.is_dir():
        cache().mkdir(parents=True, exist_ok=True)
        made = Path(tempfile.mkdtemp(dir=cache()))
        subprocess.run(["tar", "--zstd", "-xf", str(archive), "-C", str(made)], check=True)
        with contextlib.suppress(OSError):  # another test may have been faster
            made.rename(folder)
        shutil.rmtree(made, ignore_errors=True)
    return next((path.parent for path in sorted(folder.rglob("kube-apiserver"))), None)


def lacking(folder: Path, names: Iterable[str]) -> list[str]:
    """Those of these programs that are not in the folder."""
    return [name for name in names if not (folder / name).exists()]


def missing(controllers: bool = True) -> str:
    """The reason why there can be no cluster here; empty where there can be one."""
    folder = assets()
    if folder is None:
        return f"no Kubernetes control plane: {HINT}"
    absent = lacking(folder, (*PARTS, *CONTROLLERS) if controllers else PARTS)
    if absent:
        return f"no {', '.join(absent)} in {folder}: {HINT}"
    programs = [name for name in ("openssl", "setpriv") if shutil.which(name) is None]
    programs += ["kubectl"] if not (folder / "kubectl").exists() and shutil.which("kubectl") is None else []
    return f"a control plane needs {', '.join(programs)}" if programs else ""


@functools.cache
def server_version(folder: Path) -> tuple[int, int]:
    """Major and minor version of the kube-apiserver in a folder."""
    output = subprocess.run([folder / "kube-apiserver", "--version"], capture_output=True, text=True, check=True).stdout
    return version_in(output)


def version_in(output: str) -> tuple[int, int]:
    """Major and minor version in what `kube-apiserver --version` prints."""
    version = re.search(r"v(\d+)\.(\d+)", output)
    assert version, f"kube-apiserver --version prints no version: {output!r}"
    return int(version[1]), int(version[2])
