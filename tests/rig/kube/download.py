"""Downloads the programs of a Kubernetes control plane for the tests: pinned versions, each file verified by its hash.

    python -m tests.rig.kube.download       # `make kubernetes`, and `make test` before the tests

$GPUCTL_KUBERNETES_MIRROR names another server than dl.k8s.io and github.com; it has the same paths as they have:
release/VERSION/bin/linux/ARCH/PROGRAM and etcd-io/etcd/releases/download/VERSION/etcd-VERSION-linux-ARCH.tar.gz.
"""

from __future__ import annotations

import argparse
import contextlib
import hashlib
import http.client
import io
import os
import platform
import shutil
import sys
import tarfile
import tempfile
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from tests.rig.rootfs import cache

MIRROR = "GPUCTL_KUBERNETES_MIRROR"
KUBERNETES = "v1.34.3"
ETCD = "v3.5.18"
# As kops and kubespray pin them; the publishers' own lists could not be reached. A wrong one refuses the download.
HASHES = {
    "amd64": {
        "etcd": "6ddde039a7a506badf34e7edfb38e1ea90e36f05c8cfceba602045df623d86fa",
        "kube-apiserver": "3f676e71f2c933bc7cabb771f7c8d1c07803fcf1475affc9844587d780baee24",
        "kube-controller-manager": "17fcb41d1dd2217b104d3069aeec173475a2cf06c26e69582ea3971093114df8",
        "kube-scheduler": "0432f37ce0e55367dc291f6da8d5a81d0d8cdb0047d20dfefb8d795911852acd",
        "kubectl": "ab60ca5f0fd60c1eb81b52909e67060e3ba0bd27e55a8ac147cbc2172ff14212",
    },
    "arm64": {
        "etcd": "c2bcaf465537d6d47c8bb82a69e31f786f32257050e3bca445bc4e63479ec714",
        "kube-apiserver": "b414b6554f1d20d778f0f68011d99a2d20045f850dd495fe86e82c131a104bbf",
        "kube-controller-manager": "5883f9ee65d3a33a6fd80fcade70dd76cd8ff36bd964bd5d5d5b448f431517b1",
        "kube-scheduler": "7ffeea8f78c52470a4e12f5a70298155fe1f5bb285180053fa5b426e26213e66",
        "kubectl": "46913a7aa0327f6cc2e1cc2775d53c4a2af5e52f7fd8dacbfbfd098e757f19e9",
    },
}
ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64"}
SKIPPED = "the Kubernetes tests will be skipped"
BLOCK = 1 << 20


class DownloadError(Exception):
    """The reason why a program could not be had."""


@dataclass(frozen=True)
class Part:
    """A program, where it comes from, and the hash of what is downloaded."""

    name: str
    server: str
    path: str
    sha256: str

    def url(self, mirror: str) -> str:
        return f"{(mirror or self.server).rstrip('/')}/{self.path}"


def parts(architecture: str) -> list[Part]:
    """All programs, for linux on this architecture."""
    made = []
    for name, sha256 in HASHES[architecture].items():
        if name == "etcd":
            path = f"etcd-io/etcd/releases/download/{ETCD}/etcd-{ETCD}-linux-{architecture}.tar.gz"
            made.append(Part(name, "https://github.com", path, sha256))
        else:
            path = f"release/{KUBERNETES}/bin/linux/{architecture}/{name}"
            made.append(Part(name, "https://dl.k8s.io", path, sha256))
    return made


def folder() -> Path:
    """The folder that the programs are downloaded into; it is there once all of them are."""
    return cache() / f"kubernetes-{KUBERNETES}-etcd-{ETCD}-{platform.machine()}"


def download(wanted: list[Part], target: Path, mirror: str = "", timeout_s: float = 20) -> None:
    """Bring all programs into a folder, which appears whole or not at all."""
    target.parent.mkdir(parents=True, exist_ok=True)
    work = Path(tempfile.mkdtemp(prefix=f"{target.name}.part-", dir=target.parent))
    try:
        for part in wanted:
            _fetch(part, work, mirror, timeout_s)
        with contextlib.suppress(OSError):  # another one was faster
            work.rename(target)
    finally:
        shutil.rmtree(work, ignore_errors=True)
    if not target.is_dir():
        raise DownloadError(f"cannot write {target}")


def _fetch(part: Part, work: Path, mirror: str, timeout_s: float) -> None:
    url = part.url(mirror)
    file = work / f"{part.name}.download"
    digest = hashlib.sha256()
    try:
        with urllib.request.urlopen(url, timeout=timeout_s) as answer, file.open("wb") as out:  # noqa: S310
            for block in _blocks(answer.read):
                digest.update(block)
                out.write(block)
    except (OSError, http.client.HTTPException) as error:
        raise DownloadError(f"{url}: {_reason(error)}") from error
    if digest.hexdigest() != part.sha256:
        raise DownloadError(f"{url} has the SHA-256 {digest.hexdigest()}, expected {part.sha256}")
    program = work / part.name
    if part.path.endswith(".tar.gz"):
        _extract(file, part.name, program)
    else:
        file.rename(program)
    program.chmod(0o755)
    file.unlink(missing_ok=True)


def _reason(error: Exception) -> str:
    if isinstance(error, urllib.error.HTTPError):
        return f"HTTP {error.code}"
    return str(error.reason if isinstance(error, urllib.error.URLError) else error) or type(error).__name__


def _extract(archive: Path, name: str, target: Path) -> None:
    """Only this one program, whatever else the archive holds."""
    with tarfile.open(archive) as opened, target.open("wb") as out:
        member = next((entry for entry in opened if entry.isfile() and Path(entry.name).name == name), None)
        content: IO[bytes] = (opened.extractfile(member) if member else None) or io.BytesIO()
        shutil.copyfileobj(content, out)
    if not target.stat().st_size:
        raise DownloadError(f"{archive.name} holds no {name}")


def _blocks(read: Callable[[int], bytes]) -> Iterator[bytes]:
    while block := read(BLOCK):
        yield block


def main(argv: list[str] | None = None) -> int:
    """Download what is missing; with --optional, one line and exit code 0 where that cannot be."""
    parser = argparse.ArgumentParser(prog="python -m tests.rig.kube.download", description=__doc__)
    parser.add_argument("--optional", action="store_true", help="a failure is one line and no error")
    optional = parser.parse_args(argv).optional
    from tests.rig.kube.assets import missing

    reason = missing()
    if not reason:
        return 0
    if os.environ.get("KUBEBUILDER_ASSETS"):
        return _tell(reason, optional)
    architecture = ARCHITECTURES.get(platform.machine())
    if architecture is None:
        return _tell(f"no download of Kubernetes for {platform.machine()}: set KUBEBUILDER_ASSETS", optional)
    try:
        download(parts(architecture), folder(), os.environ.get(MIRROR, ""))
    except DownloadError as error:
        how = f"set {MIRROR} to a mirror of dl.k8s.io, or KUBEBUILDER_ASSETS to a folder with the programs"
        return _tell(f"cannot download Kubernetes {KUBERNETES}: {error}: {how}", optional)
    return _tell(reason, optional) if (reason := missing()) else 0


def _tell(reason: str, optional: bool) -> int:
    sys.stderr.write(f"{SKIPPED}: {reason}\n" if optional else f"{reason}\n")
    return 0 if optional else 1


if __name__ == "__main__":
    sys.exit(main())
