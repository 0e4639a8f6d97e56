"""Images built by a real buildah and pushed to a real registry, with the login of a stand-in for ECR."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.rig import image_registry
from tests.rig.aws_endpoint import LOGIN
from tests.rig.command import Gpuctl, Said
from tests.rig.image_registry import PASSWORD, Registry, StandinEcr
from tests.rig.needs import HOSTS, need

DOCKERFILE = "ARG BASE\nFROM ${BASE}\nARG WORD=none\nRUN echo $WORD >/made\n"
IMAGE = "localhost/gpuctl-gpu-pod:latest"
OLD = "of-yesterday"


@dataclass
class Builder:
    """A user with buildah, a base image in an open registry, and ECR."""

    gpuctl: Gpuctl
    environment: dict[str, str]
    open: Registry
    closed: Registry
    ecr: StandinEcr

    @property
    def base(self) -> str:
        return f"{self.open.host}/base:1"

    @property
    def variables(self) -> dict[str, str]:
        return {**self.environment, **LOGIN, "AWS_ENDPOINT_URL_ECR": self.ecr.url}

    def __call__(self, *words: object) -> Said:
        return self.gpuctl("eks", "image", *words, "--builder", "buildah", **self.variables)

    def build(self, text: str = DOCKERFILE, *words: object) -> Said:
        folder = self.gpuctl.home / "context"
        folder.mkdir(exist_ok=True)
        (folder / "Dockerfile").write_text(text)
        return self("build", folder, *words)

    def images(self) -> list[str]:
        argv = ["buildah", "images", "--format", "{{.Name}}:{{.Tag}}"]
        done = subprocess.run(argv, env={**os.environ, **self.environment}, capture_output=True, text=True, check=True)
        return done.stdout.split()

    def left(self) -> list[str]:
        """Folders with logins or Dockerfiles that a run left behind, and a login in the user's files."""
        at_home = [str(path) for name in (".docker", ".config/containers") for path in [self.gpuctl.home / name]]
        return [str(path) for path in self.gpuctl.temporary.glob("gpuctl-image-*")] + [
            path for path in at_home if Path(path).exists()
        ]


@pytest.fixture(scope="module")
def builder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Builder]:
    need(image_registry.missing(), HOSTS)
    folder = tmp_path_factory.mktemp("images")
    (folder / "home").mkdir()
    environment = image_registry.storage(folder / "storage")
    with (
        image_registry.registry(folder / "open") as open_registry,
        image_registry.registry(folder / "closed", PASSWORD) as closed,
        image_registry.standin_ecr(closed.host) as ecr,
    ):
        image_registry.push_base(folder / "root", environment, f"{open_registry.host}/base:1")
        made = Builder(Gpuctl(folder / "home"), environment, open_registry, closed, ecr)
        built = made.build(DOCKERFILE, "--base", made.base, "--build-arg", "WORD=hello")
        assert (built.code, built.out) == (0, f"{IMAGE}\n"), built.err
        digest = open_registry.digest("base", "1")
        assert f"base {made.base} is {open_registry.host}/base@{digest}" in built.err
        assert f"FROM {open_registry.host}/base@{digest}" in built.err  # as buildah prints the step
        yield made


def test_an_image_is_pushed_to_ecr_and_named_by_the_digest_that_the_registry_has(builder: Builder) -> None:
    missing = builder("push", "--repository", "team/pod")
    assert (missing.code, "ECR in us-east-1 does not have it" in missing.err) == (2, True), missing.err
    pushed = builder("push", "--repository", "team/pod", "--create", "--cluster", "lab", "--tag", "v1")
    assert pushed.code == 0, pushed.err
    assert builder.ecr.tags == {"team/pod": {"gpuctl:cluster": "lab", "gpuctl:region": "us-east-1"}}
    digest = builder.closed.digest("team/pod", "v1")
    assert pushed.out == f"{builder.closed.host}/team/pod@{digest}\n"
    assert f"gpuctl eks pod NAME --image {builder.closed.host}/team/pod@{digest}" in pushed.err
    assert PASSWORD not in pushed.err
    assert builder.left() == []


def test_an_image_is_pushed_to_another_registry_with_the_users_login(builder: Builder) -> None:
    place = f"{builder.open.host}/team/pod"
    pushed = builder("push", IMAGE, "--registry", place)
    (tag,) = {word.removeprefix(f"{place}:") for word in pushed.err.split() if word.startswith(f"{place}:")}
    assert pushed.out == f"{place}@{builder.open.digest('team/pod', tag)}\n", pushed.err
    refused = builder("push", IMAGE, "--registry", f"{builder.closed.host}/team/other")
    assert (refused.code, "cannot push the image" in refused.err) == (3, True)
    assert builder.closed.digest("team/other", "latest") == ""


def test_a_refused_login_or_permission_is_named_and_leaves_nothing(builder: Builder) -> None:
    builder.ecr.repositories.add("team/pod")
    builder.ecr.password = OLD
    refused = builder("push", "--repository", "team/pod", "--tag", "refused")
    builder.ecr.password = PASSWORD
    assert (refused.code, "cannot push the image" in refused.err) == (3, True), refused.err
    builder.ecr.refuse = {"GetAuthorizationToken": "AccessDeniedException"}
    denied = builder("push", "--repository", "team/pod", "--tag", "refused")
    builder.ecr.refuse = {}
    assert (denied.code, "no permission for ecr:GetAuthorizationToken" in denied.err) == (3, True), denied.err
    assert builder.closed.digest("team/pod", "refused") == ""
    assert OLD not in refused.err
    assert builder.left() == []


def test_a_step_that_fails_and_one_that_is_interrupted_leave_no_image(builder: Builder) -> None:
    failed = builder.build("ARG BASE\nFROM $BASE\nRUN false\n", "--base", builder.base, "--tag", "localhost/failed:1")
    assert (failed.code, "buildah ended with exit code" in failed.err) == (3, True), failed.err
    folder = builder.gpuctl.home / "context"
    (folder / "Dockerfile").write_text("ARG BASE\nFROM $BASE\nRUN echo begun; sleep 100\n")
    words = (
        "eks",
        "image",
        "build",
        str(folder),
        "--base",
        builder.base,
        "--tag",
        "localhost/stopped:1",
        "--builder",
        "buildah",
    )
    running = builder.gpuctl.start(*words, stderr=subprocess.STDOUT, **builder.variables)
    assert running.stdout is not None
    assert any("begun" in line and "RUN" not in line for line in running.stdout)
    running.send_signal(signal.SIGINT)
    assert running.wait(30) == 130
    assert not {"localhost/failed:1", "localhost/stopped:1"} & set(builder.images())
    assert builder.left() == []


def test_a_base_that_does_not_exist_and_one_without_a_registry_are_refused(builder: Builder) -> None:
    unknown = builder.build(DOCKERFILE, "--base", f"{builder.open.host}/none:1")
    assert (unknown.code, f"cannot resolve the image {builder.open.host}/none:1" in unknown.err) == (3, True)
    none = builder.build(DOCKERFILE)
    assert (none.code, "line 2: the argument BASE has no value" in none.err) == (2, True)
    local = builder.build(DOCKERFILE, "--base", IMAGE)
    assert (local.code, "it is of this machine alone" in local.err) == (2, True), local.err
    absent = builder("push", "localhost/none:1", "--registry", f"{builder.open.host}/x")
    assert (absent.code, "buildah has no image localhost/none:1" in absent.err) == (2, True)


def test_an_interrupted_push_leaves_no_tag_and_no_login(builder: Builder) -> None:
    builder.ecr.repositories.add("team/stopped")
    words = ("eks", "image", "push", "--repository", "team/stopped", "--tag", "v1", "--builder", "buildah")
    builder.closed.process.send_signal(signal.SIGSTOP)  # a registry that answers no more
    try:
        running = builder.gpuctl.start(*words, stderr=subprocess.STDOUT, **builder.variables)
        assert running.stdout is not None
        assert any(line.startswith("pushing") for line in running.stdout)
        running.send_signal(signal.SIGINT)
        output = running.stdout.read()
        assert (running.wait(30), "the registry may or may not have the tag" in output) == (130, True), output
    finally:
        builder.closed.process.send_signal(signal.SIGCONT)
    assert builder.closed.digest("team/stopped", "v1") == ""
    assert builder.left() == []


def test_a_registry_that_does_not_answer_is_named(builder: Builder) -> None:
    pushed = builder("push", IMAGE, "--registry", "127.0.0.1:1/team/pod")
    assert (pushed.code, "cannot push the image to 127.0.0.1:1/team/pod" in pushed.err) == (3, True), pushed.err
