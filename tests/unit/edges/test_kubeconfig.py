"""A kubeconfig is read as kubectl reads it, without asking a cluster."""

from __future__ import annotations

from pathlib import Path

import pytest

from gpuctl.core.errors import InvalidInput
from gpuctl.edges.kube import cluster, config

ONE = """apiVersion: v1
kind: Config
current-context: prod
contexts:
- {name: prod, context: {cluster: c1, user: u1, namespace: train}}
- {name: bare, context: {cluster: c1, user: u1}}
"""
OTHER = """current-context: dev
contexts:
- {name: dev, context: {cluster: c2, user: u2}}
- {name: prod, context: {cluster: other, user: other}}
"""


def write(folder: Path, **texts: str) -> list[Path]:
    for name, text in texts.items():
        (folder / name).write_text(text)
    return [folder / name for name in texts]


def test_the_current_context_has_its_namespace_or_default(tmp_path: Path) -> None:
    (one,) = write(tmp_path, one=ONE)
    assert config.current(one) == config.Context("prod", "c1", "u1", "train")
    (bare,) = write(tmp_path, bare=ONE.replace("current-context: prod", "current-context: bare"))
    assert config.current(bare) == config.Context("bare", "c1", "u1", "default")


def test_of_several_files_the_first_that_says_something_counts(tmp_path: Path) -> None:
    one, other = write(tmp_path, one=ONE, other=OTHER)
    assert config.current(one, other) == config.Context("prod", "c1", "u1", "train")
    assert config.current(other, one) == config.Context("dev", "c2", "u2", "default")
    assert [(c.name, c.cluster) for c in config.contexts(one, other)] == [
        ("bare", "c1"),
        ("dev", "c2"),
        ("prod", "c1"),
    ]


@pytest.mark.parametrize("text", ["", "contexts: null\n", "current-context: gone\n"])
def test_no_context_is_none(tmp_path: Path, text: str) -> None:
    assert config.current(*write(tmp_path, file=text)) is None


@pytest.mark.parametrize("text", ["- a list\n", "a: [unclosed\n", "a: b: c\n"])
def test_what_is_no_kubeconfig_is_refused_by_name(tmp_path: Path, text: str) -> None:
    (path,) = write(tmp_path, broken=text)
    with pytest.raises(InvalidInput, match=f"cannot read the kubeconfig {path}"):
        config.current(path)


def test_the_files_are_those_of_the_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    one, other = write(tmp_path, one=ONE, other=OTHER)
    monkeypatch.setenv("KUBECONFIG", f"{one}:{tmp_path}/missing::{other}")
    assert config.files() == [one, other]
    monkeypatch.delenv("KUBECONFIG")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert config.files() == []


@pytest.mark.parametrize("text", ["contexts: 5", "contexts: [{name: a, context: foo}]", "contexts: {a: {}}"])
def test_what_is_no_context_is_said_with_its_file(tmp_path: Path, text: str) -> None:
    (broken,) = write(tmp_path, broken=f"current-context: a\n{text}\n")
    with pytest.raises(InvalidInput, match=r"broken: .*context"):
        config.contexts(broken)
    with pytest.raises(InvalidInput):
        config.current(broken)


@pytest.mark.parametrize("server", ["https://lab.example.org:70000", "https://lab.example.org:https"])
def test_a_server_that_is_no_url_is_refused_before_anything_is_asked_of_it(tmp_path: Path, server: str) -> None:
    known = f"clusters: [{{name: c1, cluster: {{server: '{server}'}}}}]\nusers: [{{name: u1, user: {{token: t}}}}]\n"
    files = write(tmp_path, one=ONE + known)
    with pytest.raises(InvalidInput) as refused:
        cluster.connect(files=files)
    assert refused.value.wrong.startswith(f"the kubeconfig's server {server} is not a valid URL: ")
