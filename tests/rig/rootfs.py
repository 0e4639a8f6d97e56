"""Builds the root folder every test host starts from, once, out of Debian packages; later runs find it in a cache."""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

SUITE = "bookworm"
PACKAGES = [
    *("systemd", "systemd-sysv", "dbus", "openssh-server", "sudo", "python3"),
    *("iproute2", "procps", "kmod", "util-linux", "ca-certificates", "numactl", "irqbalance"),
    *("openmpi-bin", "openssh-client"),  # nodes that run programs together
]
LEFT_OUT = ["/usr/share/doc/*", "/usr/share/man/*", "/usr/share/locale/*", "/usr/share/info/*"]
CUSTOMIZE = Path(__file__).with_name("customize.sh")
# A Debian machine's own choice of mirror; elsewhere mmdebstrap knows Debian's.
SOURCES = Path("/etc/apt/sources.list.d/debian.sources")


def cache() -> Path:
    """Where built root folders are kept, outside the tree."""
    return Path(os.environ.get("GPUCTL_TEST_CACHE") or Path.home() / ".cache/gpuctl-tests")


def base() -> Path:
    """The root folder, built first (about a minute) where it is not in the cache yet."""
    target = cache() / f"rootfs-{_key()}"
    with _only_one_builder(target):
        if not target.is_dir():
            _build(target)
    return target


def _key() -> str:
    sources = SOURCES.read_text() if SOURCES.exists() else ""
    inputs = "\0".join([SUITE, *PACKAGES, *LEFT_OUT, CUSTOMIZE.read_text(), sources])
    return hashlib.sha256(inputs.encode()).hexdigest()[:16]


@contextmanager
def _only_one_builder(target: Path) -> Iterator[None]:
    target.parent.mkdir(parents=True, exist_ok=True)
    with target.with_suffix(".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _build(target: Path) -> None:
    work = Path(tempfile.mkdtemp(prefix=f"{target.name}.part-", dir=target.parent))
    try:
        root = work / "root"
        _mmdebstrap(root)
        root.rename(target)
    finally:
        shutil.rmtree(work, ignore_errors=True)


def _mmdebstrap(root: Path) -> None:
    argv = ["mmdebstrap", "--quiet", "--mode=root", "--variant=minbase", f"--include={','.join(PACKAGES)}"]
    argv += ["--dpkgopt=force-unsafe-io", *(f"--dpkgopt=path-exclude={pattern}" for pattern in LEFT_OUT)]
    # The lists that stay are those of the host's own small repository.
    argv += ["--skip=cleanup/apt/lists", f'--customize-hook=sh {CUSTOMIZE} "$1"', SUITE, str(root)]
    argv += [str(SOURCES)] if SOURCES.exists() else []
    done = subprocess.run(argv, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"mmdebstrap could not build the root folder of the test hosts:\n{done.stderr[-3000:]}")
