"""Bases of a Dockerfile, and the text that pins them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from gpuctl.core.errors import InvalidInput
from gpuctl.eks.image import dockerfile

ROOT = Path(__file__).parents[4]
TEXT = """# syntax=docker/dockerfile:1
ARG BASE="nvcr.io/nvidia/pytorch:25.08-py3"
ARG TOOLS=registry.example.com/tools
FROM --platform=linux/amd64 ${BASE} AS made
COPY --from=registry.example.com/more:2 /a /b
FROM $TOOLS:${VERSION:-3}
ARG BASE=later
COPY --chown=1:1 --from=made /a /b
COPY --from=0 /a /b
FROM scratch
FROM Made
"""


def test_each_image_of_elsewhere_is_a_base_and_stages_are_none() -> None:
    found = dockerfile.bases(TEXT, {}, "use it")
    assert [(base.line, str(base.image)) for base in found] == [
        (4, "nvcr.io/nvidia/pytorch:25.08-py3"),
        (5, "registry.example.com/more:2"),
        (6, "registry.example.com/tools:3"),
    ]


def test_only_the_images_are_replaced() -> None:
    found = dockerfile.bases(TEXT, {"BASE": "ubuntu"}, "use it")
    digests = {base: replace(base.image.qualified, tag="", digest=f"sha256:{base.line:064x}") for base in found}
    lines = dockerfile.pinned(TEXT, digests).splitlines()
    assert lines[3] == f"FROM --platform=linux/amd64 docker.io/library/ubuntu@sha256:{4:064x} AS made"
    assert lines[4] == f"COPY --from=registry.example.com/more@sha256:{5:064x} /a /b"
    changed = {number for number, line in enumerate(TEXT.splitlines(), 1) if line != lines[number - 1]}
    assert changed == {4, 5, 6}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("ARG BASE\nFROM ${BASE}\nFROM A\n", "line 2: the argument BASE has no value; line 3: 'A' is no name"),
        ("FROM ${BASE%x}\n", "line 1: .* is no name of an image"),
        ("RUN true\n", "it has no line FROM"),
        ("", "it has no line FROM"),
    ],
)
def test_every_line_whose_image_is_not_known_is_named(text: str, message: str) -> None:
    with pytest.raises(InvalidInput, match=message):
        dockerfile.bases(text, {}, "use it")


@pytest.mark.parametrize("name", ["eks/image", "training"])
def test_the_dockerfiles_that_come_with_gpuctl_have_one_base(name: str) -> None:
    text = (ROOT / "examples" / name / "Dockerfile").read_text()
    (base,) = dockerfile.bases(text, {"BASE": "nvcr.io/nvidia/pytorch:25.08-py3"}, "use it")
    assert str(base.image) == "nvcr.io/nvidia/pytorch:25.08-py3"
