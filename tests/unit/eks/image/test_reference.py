"""Names of images."""

from __future__ import annotations

import pytest

from gpuctl.core.errors import InvalidInput
from gpuctl.eks.image import reference

DIGEST = f"sha256:{'0' * 64}"


@pytest.mark.parametrize(
    ("text", "host", "repository", "tag", "written"),
    [
        ("ubuntu", "", "ubuntu", "", "docker.io/library/ubuntu:latest"),
        ("pytorch/pytorch:2.8.0", "", "pytorch/pytorch", "2.8.0", "docker.io/pytorch/pytorch:2.8.0"),
        ("localhost/a:1", "localhost", "a", "1", "localhost/a:1"),
        ("127.0.0.1:5000/a/b", "127.0.0.1:5000", "a/b", "", "127.0.0.1:5000/a/b:latest"),
        ("nvcr.io/nvidia/cuda:13.0", "nvcr.io", "nvidia/cuda", "13.0", "nvcr.io/nvidia/cuda:13.0"),
        (f"nvcr.io/nvidia/cuda:13.0@{DIGEST}", "nvcr.io", "nvidia/cuda", "", f"nvcr.io/nvidia/cuda@{DIGEST}"),
    ],
)
def test_a_name_has_host_repository_tag_and_digest(
    text: str, host: str, repository: str, tag: str, written: str
) -> None:
    image = reference.read(text, "use it")
    assert (image.host, image.repository, image.tag) == (host, repository, tag)
    assert str(image.qualified) == written


@pytest.mark.parametrize("text", ["", "A", "a:", "a b", "a@sha256:1", "-a", "a//b", "nvcr.io/", "a:b:c", "$X", "a\nb"])
def test_what_is_no_name_is_refused(text: str) -> None:
    with pytest.raises(InvalidInput, match="is no name of an image"):
        reference.read(text, "use it")


@pytest.mark.parametrize("text", ["team/pod", "registry.example.com/a:1", f"registry.example.com/a@{DIGEST}"])
def test_a_place_to_push_to_has_a_host_and_no_tag(text: str) -> None:
    with pytest.raises(InvalidInput, match="is no HOST/REPOSITORY"):
        reference.repository(text, "push it")


@pytest.mark.parametrize(
    ("host", "loopback"),
    [
        ("localhost:5000", True),
        ("127.0.0.1:5000", True),
        ("[::1]:1", True),
        ("127.evil.com", False),
        ("nvcr.io", False),
    ],
)
def test_only_this_machines_registry_needs_no_tls(host: str, loopback: bool) -> None:
    assert reference.is_loopback(host) is loopback
