"""What docker and podman are called with, by stand-ins for them; a real buildah: tests/component/eks/test_image.py."""

from __future__ import annotations

import base64
import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

from gpuctl.core.errors import GpuctlError, InvalidInput, Unreachable
from gpuctl.edges import image_builder
from gpuctl.edges.image_builder import Builder, Login

DIGEST = f"sha256:{'1' * 64}"
STANDIN = """#!/usr/bin/env python3
import json, os, pathlib, sys
words = sys.argv[1:]
kept = pathlib.Path(os.environ["CALLS"]).with_name("images")
images = json.loads(kept.read_text()) if kept.exists() else {}
option = "--config" if "--config" in words else "--authfile"
login = words[words.index(option) + 1] if option in words else ""
file = pathlib.Path(login, "config.json") if option == "--config" else pathlib.Path(login)
state = {"words": words, "host": os.environ.get("DOCKER_HOST")}
if login:
    state["login"], state["mode"] = json.loads(file.read_text()), oct(file.stat().st_mode)
with open(os.environ["CALLS"], "a") as calls:
    calls.write(json.dumps(state) + "\\n")
if words[:2] == ["context", "inspect"]:
    print("unix:///run/user/docker.sock")
elif words[:2] == ["image", "inspect"] and "RepoDigests" in words[3]:
    print(json.dumps(["pytorch/pytorch@DIGEST", "registry.example.com/team/pod@DIGEST"]))
elif words[:2] == ["image", "inspect"]:
    name = words[-1]
    if name not in images:
        sys.exit("No such image")
    print("sha256:" + images[name] if "Id" in words[3] else "")
elif words[:1] == ["tag"]:
    images[words[2]] = images.get(words[1], words[1].replace("sha256:", ""))
elif words[:2] == ["image", "rm"]:
    del images[words[-1]]
elif words[:1] == ["build"]:
    pathlib.Path(words[words.index("--iidfile") + 1]).write_text("sha256:" + "2" * 64)
    if not os.environ.get("CACHE_ALONE"):
        images[words[words.index("--tag") + 1]] = "2" * 64
elif words[:1] == ["pull"] and os.environ.get("DOWN"):
    sys.exit("no route to host")
elif "--digestfile" in words:
    open(words[words.index("--digestfile") + 1], "w").write("DIGEST")
elif words[:1] in (["version"], ["info"]) and os.environ.get("DOWN"):
    sys.exit("Cannot connect to the Docker daemon")
kept.write_text(json.dumps(images))
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
    monkeypatch.delenv("XDG_RUNTIME_DIR", raising=False)
    monkeypatch.setattr("tempfile.tempdir", None)
    return tmp_path / "calls"


def read(calls: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in calls.read_text().splitlines()]


@pytest.mark.parametrize("name", ["docker", "podman"])
def test_a_password_is_in_a_private_file_of_this_push_alone_and_no_helper_gets_it(name: str, calls: Path) -> None:
    target = "registry.example.com/team/pod:v1"
    assert Builder(name).push("localhost/pod:1", target, LOGIN, plain_http=False) == DIGEST
    made = read(calls)
    assert not any("a-password" in word for one in made for word in one["words"])
    assert not any("login" in one["words"] for one in made)
    (pushed,) = [one for one in made if "push" in one["words"]]
    auth = base64.b64encode(b"AWS:a-password").decode()
    assert (pushed["login"], pushed["mode"]) == ({"auths": {LOGIN.host: {"auth": auth}}}, "0o100600")
    option = {"docker": "--config", "podman": "--authfile"}[name]
    assert not Path(pushed["words"][pushed["words"].index(option) + 1]).exists()
    assert "--tls-verify=false" not in str(made)


TARGET = "registry.example.com/team/pod:v1"


@pytest.mark.parametrize("before", [None, "1", "3"], ids=["absent", "the image", "another"])
def test_docker_is_reached_as_the_users_context_says_and_names_are_as_before(before: str | None, calls: Path) -> None:
    kept = {"localhost/pod:1": "1" * 64, **({TARGET: before * 64} if before else {})}
    calls.with_name("images").write_text(json.dumps(kept))
    Builder("docker").push("localhost/pod:1", TARGET, LOGIN, plain_http=False)
    made = read(calls)
    pushed = next(one for one in made if "push" in one["words"])
    assert pushed["host"] == "unix:///run/user/docker.sock"
    after = json.loads(calls.with_name("images").read_text())
    assert after == kept
    assert any(one["words"][:2] == ["image", "rm"] for one in made) is (before is None)


def test_a_push_of_an_image_by_its_name_in_the_registry_leaves_it(calls: Path) -> None:
    calls.with_name("images").write_text(json.dumps({TARGET: "1" * 64}))
    Builder("docker").push(TARGET, TARGET, LOGIN, plain_http=False)
    assert json.loads(calls.with_name("images").read_text()) == {TARGET: "1" * 64}


@pytest.mark.parametrize("name", ["docker", "podman"])
def test_an_image_that_stayed_in_the_builders_cache_is_not_built(
    name: str, calls: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    Builder(name).build(calls.parent, calls.parent / "Dockerfile", "localhost/pod:1", {})
    monkeypatch.setenv("CACHE_ALONE", "1")
    for kept in ({}, {"localhost/pod:1": "1" * 64}):
        calls.with_name("images").write_text(json.dumps(kept))
        with pytest.raises(GpuctlError, match="does not have the image that it built"):
            Builder(name).build(calls.parent, calls.parent / "Dockerfile", "localhost/pod:1", {})


def test_a_base_that_is_not_pulled_is_refused_even_if_this_machine_has_one(
    calls: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DOWN", "1")
    with pytest.raises(Unreachable, match="no route to host"):
        Builder("docker").digest("docker.io/pytorch/pytorch:2", "docker.io/pytorch/pytorch", plain_http=False)


def test_a_login_of_a_push_that_was_killed_goes_with_the_next(calls: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    runtime = calls.parent / "runtime"
    ended = subprocess.Popen(["true"])
    ended.wait()
    left, used, other = (runtime / f"gpuctl-image-{one}-x" for one in (ended.pid, os.getpid(), "of-somebody"))
    for folder in (left, used, other):
        folder.mkdir(parents=True)
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(runtime))
    Builder("podman").push("localhost/pod:1", TARGET, LOGIN, plain_http=False)
    assert set(runtime.iterdir()) == {used, other}
    (pushed,) = [one["words"] for one in read(calls) if "push" in one["words"]]
    assert Path(pushed[pushed.index("--authfile") + 1]).is_relative_to(runtime)


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
