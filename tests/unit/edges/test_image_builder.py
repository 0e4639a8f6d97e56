"""What docker and podman are called with, by stand-ins for them; a real buildah: tests/component/eks/test_image.py."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from gpuctl.core.errors import InvalidInput
from gpuctl.edges import image_builder
from gpuctl.edges.image_builder import Builder, Login

DIGEST = f"sha256:{'1' * 64}"
STANDIN = """#!/usr/bin/env python3
import json, os, sys
words = sys.argv[1:]
with open(os.environ["CALLS"], "a") as calls:
    read = sys.stdin.read() if "--password-stdin" in words else ""
    calls.write(json.dumps({"words": words, "stdin": read, "host": os.environ.get("DOCKER_HOST")}) + "\\n")
if words[:2] == ["context", "inspect"]:
    print("unix:///run/user/docker.sock")
elif words[:2] == ["image", "inspect"]:
    print(json.dumps(["pytorch/pytorch@DIGEST", "registry.example.com/team/pod@DIGEST"]))
elif "--digestfile" in words:
    open(words[words.index("--digestfile") + 1], "w").write("DIGEST")
elif words[:1] in (["version"], ["info"]) and os.environ.get("DOWN"):
    sys.exit("Cannot connect to the Docker daemon")
""".replace("DIGEST", DIGEST)
LOGIN = Login("registry.example.com", "AWS", "a-password")


@pytest.fixture
def calls(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The only programs on the PATH are stand-ins for docker and podman; their calls are written to this file."""
    (tmp_path / "bin").mkdir()
    for name in ("docker", "podman"):
        (tmp_path / "bin" / name).write_text(STANDIN)
        (tmp_path / "bin" / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}/bin:/usr/bin:/bin")
    monkeypatch.setenv("CALLS", str(tmp_path / "calls"))
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.delenv("DOCKER_HOST", raising=False)
    monkeypatch.setattr("tempfile.tempdir", None)
    return tmp_path / "calls"


def read(calls: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in calls.read_text().splitlines()]


@pytest.mark.parametrize("name", ["docker", "podman"])
def test_a_password_stands_on_standard_input_alone_and_the_login_is_of_this_push(name: str, calls: Path) -> None:
    target = "registry.example.com/team/pod:v1"
    assert Builder(name).push("localhost/pod:1", target, LOGIN, plain_http=False) == DIGEST
    made = read(calls)
    assert [one["stdin"] for one in made if "login" in one["words"]] == ["a-password"]
    assert not any("a-password" in word for one in made for word in one["words"])
    option = {"docker": "--config", "podman": "--authfile"}[name]
    places = {one["words"][one["words"].index(option) + 1] for one in made if option in one["words"]}
    assert len(places) == 1
    assert all(option in one["words"] for one in made if {"login", "push"} & set(one["words"]))
    assert not Path(places.pop()).exists()
    assert "--tls-verify=false" not in str(made)


def test_docker_is_reached_as_the_users_context_says_and_keeps_no_further_name(calls: Path) -> None:
    Builder("docker").push("localhost/pod:1", "registry.example.com/team/pod:v1", LOGIN, plain_http=False)
    pushed = next(one for one in read(calls) if "push" in one["words"])
    assert pushed["host"] == "unix:///run/user/docker.sock"
    assert read(calls)[-1]["words"] == ["image", "rm", "--no-prune", "registry.example.com/team/pod:v1"]


@pytest.mark.parametrize("name", ["docker", "podman"])
def test_the_digest_of_a_base_is_that_of_its_repository(name: str, calls: Path) -> None:
    builder = Builder(name)
    assert builder.digest("docker.io/pytorch/pytorch:2", "docker.io/pytorch/pytorch", plain_http=False) == DIGEST
    assert builder.digest("docker.io/other/base:2", "docker.io/other/base", plain_http=False) == ""


def test_a_builder_that_does_not_answer_gives_place_to_the_next(calls: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert image_builder.detect() == Builder("docker")
    assert image_builder.detect("podman") == Builder("podman")
    monkeypatch.setenv("DOWN", "1")
    (calls.parent / "bin/podman").unlink()
    monkeypatch.setattr("shutil.which", lambda name: str(calls.parent / "bin" / name) if name == "docker" else None)
    with pytest.raises(InvalidInput) as refused:
        image_builder.detect()
    for part in ("docker: Cannot connect to the Docker daemon", "podman: not installed", "buildah: not installed"):
        assert part in refused.value.wrong
    assert "apt install buildah" in refused.value.hint
