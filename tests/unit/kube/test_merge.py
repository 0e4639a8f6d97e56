"""Several kubeconfig files as one."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from gpuctl.core.errors import InvalidInput
from gpuctl.kube.merge import EMPTY, added, merged, placed

ONE = """
current-context: a
clusters: [{name: c, cluster: {server: https://one, certificate-authority: ca.crt}}]
contexts: [{name: a, context: {cluster: c, user: u}}]
users: [{name: u, user: {token: "0123", exec: {command: bin/login, env: null}}}]
"""
TWO = """
current-context: b
clusters: [{name: c, cluster: {server: https://two}}, {name: d, cluster: {server: https://three}}]
contexts: [{name: b, context: {cluster: d, user: v}}]
users: [{name: v, user: {client-key: /abs/key, client-certificate: ../crt, exec: {command: aws}}}]
"""


def both(one: str = ONE, two: str = TWO) -> Any:
    return yaml.safe_load(merged({Path("/x/one"): one, Path("/y/two"): two}))


def test_the_first_file_with_an_entry_wins() -> None:
    config = both()
    assert config["current-context"] == "a"
    assert [c["cluster"]["server"] for c in config["clusters"]] == ["https://one", "https://three"]
    assert [c["name"] for c in config["contexts"]] == ["a", "b"]


def test_paths_are_relative_to_their_file() -> None:
    config = both()
    assert config["clusters"][0]["cluster"]["certificate-authority"] == "/x/ca.crt"
    assert config["users"][1]["user"]["client-certificate"] == "/y/../crt"
    assert config["users"][1]["user"]["client-key"] == "/abs/key"


def test_a_login_program_is_resolved_only_if_it_is_a_path() -> None:
    first, second = both()["users"]
    assert first["user"]["exec"] == {"command": "/x/bin/login", "env": None}
    assert second["user"]["exec"] == {"command": "aws"}


def test_a_quoted_number_and_a_date_stay_text() -> None:
    text = merged({Path("/x/one"): 'users: [{name: u, user: {token: "0123", expiry: 2026-01-01T00:00:00Z}}]'})
    assert '"0123"' in text
    assert "2026-01-01T00:00:00Z" in text


def test_an_empty_current_context_does_not_hide_a_later_one() -> None:
    assert both(one='current-context: ""\n')["current-context"] == "b"


def test_no_files_make_a_config_that_kubectl_can_switch_in() -> None:
    assert merged({}) == EMPTY


@pytest.mark.parametrize("text", ["a: [", "- a list"])
def test_a_broken_file_is_named(text: str) -> None:
    with pytest.raises(InvalidInput, match="/x/one"):
        merged({Path("/x/one"): text})


def test_a_copy_can_start_in_another_context() -> None:
    text = placed(merged({Path("/x/one"): ONE, Path("/y/two"): TWO}), "b", "team")
    config = yaml.safe_load(text)
    assert config["current-context"] == "b"
    assert config["contexts"][1] == {"name": "b", "context": {"cluster": "d", "user": "v", "namespace": "team"}}
    assert config["contexts"][0]["context"] == {"cluster": "c", "user": "u"}
    assert config["users"] == both()["users"]


def test_without_the_requested_context_none_is_current() -> None:
    config = yaml.safe_load(placed(ONE, "gone", "team"))
    assert config["current-context"] == ""
    assert config["contexts"] == yaml.safe_load(ONE)["contexts"]


def test_a_namespace_alone_is_that_of_the_current_context() -> None:
    config = yaml.safe_load(placed(ONE, "", "team"))
    assert config["current-context"] == "a"
    assert config["contexts"][0]["context"]["namespace"] == "team"


def test_entries_missing_in_the_other_config_form_a_config() -> None:
    names, text = added(merged({Path("/x/one"): ONE, Path("/y/two"): TWO}), ONE)
    assert names == ["cluster d", "context b", "user v"]
    config = yaml.safe_load(text)
    assert config.pop("users")[0]["user"]["client-key"] == "/abs/key"
    assert config == {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "d", "cluster": {"server": "https://three"}}],
        "contexts": [{"name": "b", "context": {"cluster": "d", "user": "v"}}],
    }
    assert added(ONE, ONE)[0] == []


@pytest.mark.parametrize("text", ["a: " + "[" * 990 + "]" * 990, "a:\n" + "- " * 900 + "b"], ids=["flow", "block"])
def test_a_kubeconfig_that_is_nested_too_deeply_is_refused_by_name(text: str) -> None:
    with pytest.raises(InvalidInput, match="cannot read the kubeconfig /a: it is nested too deeply"):
        merged({Path("/a"): text})


def test_an_alias_of_a_value_inside_itself_is_not_deep() -> None:
    assert merged({Path("/a"): "a: &a [*a, [*a]]"}) == "a: &id001 [*id001, [*id001]]\n"


def test_names_that_kubectl_takes_for_numbers_are_quoted() -> None:
    text = placed("contexts: [{name: '08', context: {cluster: c}}]\n", "08", "09")
    assert "current-context: '08'\n" in text
    assert "namespace: '09'" in text
