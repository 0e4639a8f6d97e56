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


ODD = """# syntax=docker/dockerfile:1
FROM \\
  # a comment inside
  ubuntu:24.04 \\

  AS base
COPY --chown=1:1 --link --from=registry.example.com/tools:1 /from=a /b
RUN --mount=type=cache,target=/from --mount=type=bind,from=registry.example.com/data:2,target=/x \\
    --mount=type=bind,FROM=base,target=/y echo --from=none $((1<<3))
RUN <<EOF
FROM nothing:1
COPY --from=nothing:2 /a /b
EOF
RUN echo a && \\
    echo FROM b
COPY --from=registry.example.com/last:3 /a /b
"""


def test_lines_that_are_joined_mounts_and_flags_in_any_order_are_read() -> None:
    bases = dockerfile.bases(ODD, {}, "use it")
    assert [(base.line, str(base.image)) for base in bases] == [
        (2, "ubuntu:24.04"),
        (7, "registry.example.com/tools:1"),
        (8, "registry.example.com/data:2"),
        (16, "registry.example.com/last:3"),
    ]
    digest = f"sha256:{1:064x}"
    digests = {base: replace(base.image.qualified, tag="", digest=digest) for base in bases}
    expected = ODD
    for name in ("ubuntu:24.04", *(f"registry.example.com/{one}" for one in ("tools:1", "data:2", "last:3"))):
        qualified = f"docker.io/library/{name}" if "/" not in name else name
        expected = expected.replace(name, f"{qualified.rpartition(':')[0]}@{digest}")
    assert dockerfile.pinned(ODD, digests) == expected


def test_another_sign_may_join_lines() -> None:
    (base,) = dockerfile.bases("# escape=`\nFROM `\n  ubuntu:24.04\n", {}, "use it")
    assert str(base.image) == "ubuntu:24.04"


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
        ("FROM a AS b c\n", "line 1: this FROM is not understood"),
        ("FROM a\nCOPY --from= x /y\n", "line 2: the image of this COPY is not understood"),
        ("FROM a\nCOPY --from='x y' /y\n", "line 2: the image of this COPY is not understood"),
        ('FROM a\nRUN --mount="type=bind, from=b" true\n', "line 2: the image of this RUN is not understood"),
        ("FROM a\nRUN --mount=type=bind,from=$B true\n", "line 2: the argument B has no value"),
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
