"""Where the programs of a Kubernetes control plane are on this machine.

$KUBEBUILDER_ASSETS names their folder (as `setup-envtest` makes it); else they come from the archive (tar, zstd) that
$GPUCTL_CONTROL_PLANE names, or that lies in ../shared/k8s beside the checkout, unpacked once into the cache.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import tempfile
from pathlib import Path

PARTS = ("etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler")


def assets() -> Path | None:
    """The folder with the programs; None where this machine has them not."""
    if named := os.environ.get("KUBEBUILDER_ASSETS"):
        return Path(named)
    archive = Path(
        os.environ.get("GPUCTL_CONTROL_PLANE", Path(__file__).parents[4] / "shared/k8s/control-plane.tar.zst")
    )
    if not archive.is_file():
        return None
    stamp = archive.stat()
    cache = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "gpuctl-tests"
    folder = cache / f"control-plane-{stamp.st_size}-{int(stamp.st_mtime)}"
    if not folder.is_dir():
        cache.mkdir(parents=True, exist_ok=True)
        made = Path(tempfile.mkdtemp(dir=cache))
        subprocess.run(["tar", "--zstd", "-xf", str(archive), "-C", str(made)], check=True)
        with contextlib.suppress(OSError):  # another test may have been faster
            made.rename(folder)
        shutil.rmtree(made, ignore_errors=True)
    return next((path.parent for path in sorted(folder.rglob("kube-apiserver"))), None)


def missing() -> str:
    """Why there can be no cluster here; empty where there can be one."""
    found = assets()
    if found is None:
        return "no control plane: set KUBEBUILDER_ASSETS to a folder with etcd and kube-apiserver"
    lacking = [name for name in PARTS if not (found / name).exists()]
    programs = [name for name in ("openssl", "setpriv") if shutil.which(name) is None]
    return f"missing for a control plane: {', '.join([*lacking, *programs])}" if lacking or programs else ""
