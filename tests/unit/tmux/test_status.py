"""The status bar says what the kubeconfig says, in the colour of its stage, and never more than it knows."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
import yaml

from gpuctl.core.settings import Settings
from gpuctl.tmux import status


def kubeconfig(path: Path, current: str, namespace: str = "") -> Path:
    context = {"cluster": "c", "user": "u"} | ({"namespace": namespace} if namespace else {})
    text = {"contexts": [{"name": current, "context": context}], "current-context": current}
    path.write_text(yaml.safe_dump(text))
    return path


@pytest.mark.parametrize(
    ("context", "colour"),
    [("eu-prod-1", "bg=red"), ("staging", "fg=yellow"), ("kind-me", "fg=green"), ("other", "fg=colour250")],
)
def test_the_stage_gives_the_colour(tmp_path: Path, context: str, colour: str) -> None:
    shown = status.text(str(kubeconfig(tmp_path / "config", context, "team")), Settings())
    assert f" {context} team " in shown
    assert shown.startswith(f"#[{colour}")


def test_without_a_namespace_it_is_default(tmp_path: Path) -> None:
    assert " a default " in status.text(str(kubeconfig(tmp_path / "config", "a")), Settings())


@pytest.mark.parametrize("paths", ["", "{}/missing", "{}/missing:{}/gone"])
def test_no_file_is_no_context(tmp_path: Path, paths: str) -> None:
    assert " no context " in status.text(paths.format(tmp_path, tmp_path), Settings())


def test_a_missing_current_context_is_no_context(tmp_path: Path) -> None:
    (tmp_path / "config").write_text("current-context: gone\ncontexts: []\n")
    assert " no context " in status.text(str(tmp_path / "config"), Settings())


def test_an_unreadable_file_is_unknown(tmp_path: Path) -> None:
    (tmp_path / "config").write_text("contexts: [")
    assert " unknown " in status.text(str(tmp_path / "config"), Settings())
    assert " unknown " in status.text(str(tmp_path), Settings())  # a folder


def test_the_first_file_with_a_current_context_wins(tmp_path: Path) -> None:
    files = [kubeconfig(tmp_path / name, name) for name in ("first", "second")]
    assert " first " in status.text(os.pathsep.join(map(str, files)), Settings())


def test_tmux_does_not_interpret_a_context_name(tmp_path: Path) -> None:
    shown = status.text(str(kubeconfig(tmp_path / "config", "a#(reboot)#[fg=red]\nb")), Settings())
    assert "##(reboot)##[fg=red]?b" in shown


def test_a_long_name_is_shortened_but_judged_whole(tmp_path: Path) -> None:
    name = "arn:aws:eks:eu-west-1:123456789012:cluster/prod-training"
    shown = status.text(str(kubeconfig(tmp_path / "config", name)), Settings())
    assert " ..56789012:cluster/prod-training default " in shown
    assert shown.startswith("#[bg=red")
