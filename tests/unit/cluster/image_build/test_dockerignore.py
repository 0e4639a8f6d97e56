"""What .dockerignore leaves out, by the rules of Docker's own documentation."""

from __future__ import annotations

from pathlib import Path

import pytest

from gpuctl.cluster.image_build import dockerignore
from gpuctl.cluster.image_build.dockerignore import Ignored
from gpuctl.core.errors import InvalidInput


@pytest.mark.parametrize(
    ("patterns", "out", "stays"),
    [
        # The examples of docs.docker.com, build context, .dockerignore files.
        (["*/temp*"], ["a/temporary.txt", "a/temp", "a/temp/x"], ["temp", "a/b/temp"]),
        (["*/*/temp*"], ["a/b/temporary.txt"], ["a/temp"]),
        (["temp?"], ["tempa", "tempb"], ["temp", "tempab", "a/tempa"]),
        (["*.md", "!README.md"], ["a.md"], ["README.md", "docs/a.md"]),
        (["*.md", "!README*.md", "README-secret.md"], ["README-secret.md", "a.md"], ["README-a.md"]),
        (["*.md", "README-secret.md", "!README*.md"], ["a.md"], ["README-secret.md"]),
        (["**/*.go"], ["a.go", "a/b/c.go"], ["a.gob"]),
        # Unlike .gitignore a pattern counts from the top, and what is in a folder that is out can come back.
        (["secret.txt"], ["secret.txt"], ["a/secret.txt"]),
        (["*", "!src", "!src/**"], ["a", "b/c"], ["src", "src/a", "src/b/c"]),
        (["data", "!data/keep"], ["data", "data/a"], ["data/keep", "data/keep/x"]),
        (["/a/", "./b", "c/../d"], ["a", "a/x", "b", "d"], ["c"]),
        (["../d", "c/../../d", "/../e"], ["e"], ["c", "d"]),
        (["a/**"], ["a/b", "a/b/c"], ["a", "ab"]),
        (["**"], ["a", "a/b"], []),
        (["a/**/b"], ["a/b", "a/x/b", "a/x/y/b"], ["a/xb"]),
        (["[ab].txt", "c[^d]"], ["a.txt", "b.txt", "ce"], ["c.txt", "cd"]),
        (["a.b", r"\*x"], ["a.b", "*x"], ["aXb", "yx"]),
        (["# no", "", "   ", "!"], [], ["# no", "no", "a"]),
        ([" #a", "  b  "], ["#a", "b"], []),
        (["."], [], ["a"]),
    ],
    ids=str,
)
def test_patterns_are_taken_as_docker_takes_them(patterns: list[str], out: list[str], stays: list[str]) -> None:
    left_out = Ignored(patterns)
    assert [path for path in [*out, *stays] if left_out(path)] == out


def test_the_file_of_podman_comes_first_and_none_leaves_nothing_out(tmp_path: Path) -> None:
    assert not dockerignore.read_patterns(tmp_path)("a")
    (tmp_path / ".dockerignore").write_text("﻿a\n", encoding="utf-8")
    assert dockerignore.read_patterns(tmp_path)("a")
    (tmp_path / ".containerignore").write_text("b\n")
    assert [dockerignore.read_patterns(tmp_path)(name) for name in ("a", "b")] == [False, True]


@pytest.mark.parametrize("content", [b"\xff\n", b"[z-a]\n"], ids=["not UTF-8", "no pattern"])
def test_a_file_that_cannot_be_used_is_an_error(tmp_path: Path, content: bytes) -> None:
    (tmp_path / ".dockerignore").write_bytes(content)
    with pytest.raises(InvalidInput, match="dockerignore"):
        dockerignore.read_patterns(tmp_path)
