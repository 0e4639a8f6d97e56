"""Container runtimes know NVIDIA's beside the user's own settings: by the dump of a real containerd; Docker, CRI-O."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path

import pytest
from ansible_collections.gpuctl.fleet.plugins.module_utils.gpuhost.host import Host
from ansible_collections.gpuctl.fleet.plugins.module_utils.gpuhost.kinds import _container_runtimes as runtimes
from ansible_collections.gpuctl.fleet.plugins.module_utils.gpuhost.model import Refused, Unreadable
from ansible_collections.gpuctl.fleet.plugins.module_utils.gpuhost.resources.file import File

from tests.rig.needs import HOSTS, need
from tests.rig.trees.host import put

USERS = """version = 2
# our registry
[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = "registry.example/pause:3.9"
  [plugins."io.containerd.grpc.v1.cri".containerd]
    snapshotter = "native"
    [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
      runtime_type = "io.containerd.runc.v2"
      [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc.options]
        SystemdCgroup = true
"""
OTHER = 'version = 2\n[plugins."io.containerd.internal.v1.opt"]\n  path = "/opt/other"\n'


def program(root: Path, name: str, real: str = "/bin/true") -> None:
    put(root, f"/usr/bin/{name}", f'#!/bin/sh\nexec {real} "$@"\n')
    (root / "usr/bin" / name).chmod(0o755)


@pytest.fixture
def containerd(tmp_path: Path) -> Path:
    """A host with the real containerd, whose user has settings of their own."""
    real = shutil.which("containerd")
    need("" if real else "containerd is not installed", HOSTS)
    assert real
    program(tmp_path, "containerd", real)
    (tmp_path / "tmp").mkdir()
    put(tmp_path, runtimes.CONTAINERD, USERS)
    return tmp_path


def dump(root: Path) -> set[str]:
    """The lines of the configuration in force; its paths are those of the host in a folder."""
    text = (root / runtimes.CONTAINERD[1:]).read_text().replace('"/etc/', f'"{root}/etc/')
    path = root / "tmp/as-it-is.toml"
    path.write_text(text)
    argv = ["containerd", "--config", str(path), "config", "dump"]
    done = subprocess.run(argv, check=True, capture_output=True, text=True)
    path.unlink()
    return {line.strip() for line in done.stdout.splitlines() if not line.startswith("imports")}


def apply(root: Path) -> set[str]:
    host = Host(root)
    due = {path: text for path, text in runtimes.files(host).items() if File(path).read(host) != text}
    for path, text in due.items():
        File(path).write(host, text)
    return set(due)


@pytest.mark.parametrize("imported", [False, True])
def test_containerd_has_the_runtime_and_every_setting_of_the_user(containerd: Path, imported: bool) -> None:
    if imported:
        main = USERS.replace("version = 2\n", 'version = 2\nimports = ["/etc/containerd/site/*.toml"]\n')
        put(containerd, runtimes.CONTAINERD, main)
        put(containerd, "/etc/containerd/site/10-opt.toml", OTHER)
    before = dump(containerd)
    assert apply(containerd) == {runtimes.CONTAINERD, runtimes.DROP_IN}
    after = dump(containerd)
    assert before - after == set()
    assert f'BinaryName = "{runtimes.RUNTIME}"' in after
    assert '[plugins."io.containerd.grpc.v1.cri".containerd.runtimes.nvidia]' in after
    assert 'sandbox_image = "registry.example/pause:3.9"' in after
    assert ('path = "/opt/other"' in after) is imported
    assert "# our registry" in (containerd / runtimes.CONTAINERD[1:]).read_text()
    assert apply(containerd) == set()
    # What the user changes later counts again after the next run.
    path = containerd / runtimes.CONTAINERD[1:]
    path.write_text(path.read_text().replace("pause:3.9", "pause:3.10"))
    assert apply(containerd) == {runtimes.DROP_IN}
    assert 'sandbox_image = "registry.example/pause:3.10"' in dump(containerd)


def test_a_runtime_that_somebody_has_set_stays_theirs(containerd: Path) -> None:
    own = USERS.replace(".runtimes.runc", ".runtimes.nvidia")
    put(containerd, runtimes.CONTAINERD, own)
    assert apply(containerd) == set()


def test_a_file_of_version_1_is_refused(containerd: Path) -> None:
    put(containerd, runtimes.CONTAINERD, "[plugins.cri]\n")
    with pytest.raises(Refused, match="containerd config migrate"):
        runtimes.files(Host(containerd))


def test_docker_and_crio_keep_the_users_settings(tmp_path: Path) -> None:
    program(tmp_path, "dockerd")
    program(tmp_path, "crio")
    put(tmp_path, runtimes.DOCKER, '{\n  "log-driver": "local",\n  "runtimes": {"other": {"path": "/bin/other"}}\n}\n')
    assert apply(tmp_path) == {runtimes.DOCKER, runtimes.CRIO}
    settings = json.loads((tmp_path / runtimes.DOCKER[1:]).read_text())
    assert settings["log-driver"] == "local"
    assert settings["runtimes"] == {
        "other": {"path": "/bin/other"},
        "nvidia": {"path": runtimes.RUNTIME, "args": []},
    }
    assert apply(tmp_path) == set()


def test_a_docker_file_that_is_no_json_is_left_alone(tmp_path: Path) -> None:
    program(tmp_path, "dockerd")
    put(tmp_path, runtimes.DOCKER, "{")
    with pytest.raises(Unreadable, match=r"daemon\.json is not understood"):
        runtimes.files(Host(tmp_path))
