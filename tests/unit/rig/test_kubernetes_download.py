"""Programs for the Kubernetes tests are downloaded whole, with the hash that is expected, or not at all."""

from __future__ import annotations

import functools
import hashlib
import http.server
import io
import subprocess
import sys
import tarfile
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.rig.kube import assets, download
from tests.rig.kube.download import DownloadError, Part

REPOSITORY = Path(__file__).parents[3]


class Quiet(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *_: object) -> None:
        """Tests have enough to print."""


@pytest.fixture
def served(tmp_path: Path) -> Path:
    """The folder that the mirror serves."""
    (tmp_path / "served").mkdir()
    return tmp_path / "served"


@pytest.fixture
def mirror(served: Path) -> Iterator[str]:
    """A mirror on this machine alone."""
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Quiet, directory=str(served))) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


def offer(served: Path, name: str, content: bytes) -> Part:
    """Put a program onto the mirror, etcd in an archive as its own project publishes it."""
    architecture = "amd64"
    (part,) = [part for part in download.parts(architecture) if part.name == name]
    if name == "etcd":
        packed = io.BytesIO()
        with tarfile.open(fileobj=packed, mode="w:gz") as archive:
            for path, data in (
                ("etcd-v0/README.md", b"read me"),
                ("etcd-v0/etcd", content),
                ("etcd-v0/etcdctl", b"no"),
            ):
                entry = tarfile.TarInfo(path)
                entry.size = len(data)
                archive.addfile(entry, io.BytesIO(data))
        content = packed.getvalue()
    file = served / part.path
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_bytes(content)
    return Part(name, part.server, part.path, hashlib.sha256(content).hexdigest())


def test_every_program_is_pinned_by_its_hash_for_both_architectures() -> None:
    for architecture in download.HASHES:
        parts = download.parts(architecture)
        assert {part.name for part in parts} == {*assets.PARTS, *assets.CONTROLLERS, "kubectl"}
        assert all(len(bytes.fromhex(part.sha256)) == 32 for part in parts)
        assert all(f"linux{'-' if part.name == 'etcd' else '/'}{architecture}" in part.path for part in parts)
    assert len({digest for hashes in download.HASHES.values() for digest in hashes.values()}) == 10


def test_all_programs_come_from_the_mirror_and_can_be_run(tmp_path: Path, served: Path, mirror: str) -> None:
    wanted = [
        offer(served, name, f"#!/bin/sh\necho {name}\n".encode()) for name in ("etcd", "kube-apiserver", "kubectl")
    ]
    target = tmp_path / "cache/programs"
    download.download(wanted, target, mirror)
    assert sorted(path.name for path in target.iterdir()) == ["etcd", "kube-apiserver", "kubectl"]
    for path in target.iterdir():
        assert subprocess.run([path], capture_output=True, text=True, check=True).stdout == f"{path.name}\n"
    assert [path.name for path in target.parent.iterdir()] == ["programs"]


def test_a_file_with_another_hash_is_refused_and_nothing_is_left(tmp_path: Path, served: Path, mirror: str) -> None:
    good, changed = offer(served, "kubectl", b"good"), offer(served, "kube-scheduler", b"good")
    (served / changed.path).write_bytes(b"evil")
    with pytest.raises(DownloadError, match=r"kube-scheduler has the SHA-256 [0-9a-f]{64}, expected " + changed.sha256):
        download.download([good, changed], tmp_path / "cache/programs", mirror)
    assert list((tmp_path / "cache").iterdir()) == []


def test_a_missing_file_and_a_server_that_does_not_answer_are_named(tmp_path: Path, served: Path, mirror: str) -> None:
    part = offer(served, "kubectl", b"x")
    (served / part.path).unlink()
    with pytest.raises(DownloadError, match=r"bin/linux/amd64/kubectl: HTTP 404"):
        download.download([part], tmp_path / "programs", mirror)
    with pytest.raises(DownloadError, match=r"kubectl: .*refused"):
        download.download([part], tmp_path / "programs", "http://127.0.0.1:1")


def test_an_archive_without_the_program_is_refused(tmp_path: Path, served: Path, mirror: str) -> None:
    part = offer(served, "etcd", b"")
    with pytest.raises(DownloadError, match="holds no etcd"):
        download.download([part], tmp_path / "programs", mirror)


def run(tmp_path: Path, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """`make kubernetes` on a machine without a control plane."""
    variables = {"PATH": "/usr/bin:/bin", "GPUCTL_TEST_CACHE": str(tmp_path / "cache"), "HOME": str(tmp_path)}
    variables |= {"GPUCTL_CONTROL_PLANE": str(tmp_path / "none"), **environment}
    argv = [sys.executable, "-m", "tests.rig.kube.download", *arguments]
    return subprocess.run(argv, cwd=REPOSITORY, env=variables, capture_output=True, text=True, check=False)


def test_where_nothing_can_be_downloaded_one_line_says_what_is_skipped_and_how_to_get_it(tmp_path: Path) -> None:
    offline = run(tmp_path, "--optional", GPUCTL_KUBERNETES_MIRROR="http://127.0.0.1:1")
    assert (offline.returncode, offline.stderr.count("\n")) == (0, 1)
    assert offline.stderr.startswith("the Kubernetes tests will be skipped: cannot download Kubernetes v1.")
    for way in ("GPUCTL_KUBERNETES_MIRROR", "KUBEBUILDER_ASSETS"):
        assert way in offline.stderr
    assert run(tmp_path, GPUCTL_KUBERNETES_MIRROR="http://127.0.0.1:1").returncode == 1


def test_a_folder_that_somebody_names_is_taken_as_it_is(tmp_path: Path) -> None:
    for name in ("etcd", "kube-apiserver", "kubectl"):
        (tmp_path / name).touch()
    partial = run(tmp_path, "--optional", KUBEBUILDER_ASSETS=str(tmp_path))
    assert partial.returncode == 0
    assert f"no kube-controller-manager, kube-scheduler in {tmp_path}" in partial.stderr
    assert not (tmp_path / "cache").exists()


def test_what_was_downloaded_is_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GPUCTL_TEST_CACHE", str(tmp_path))
    monkeypatch.setenv("GPUCTL_CONTROL_PLANE", str(tmp_path / "none"))
    monkeypatch.delenv("KUBEBUILDER_ASSETS", raising=False)
    assert "make kubernetes" in assets.missing()
    download.folder().mkdir()
    for name in (*assets.PARTS, "kubectl"):
        (download.folder() / name).touch()
    assert assets.assets() == download.folder()
    assert assets.missing(controllers=False) == ""
    assert "kube-controller-manager, kube-scheduler" in assets.missing()
