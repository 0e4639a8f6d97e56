"""Names are completed: tools, versions, contexts, templates."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.shell_completion import ShellComplete

from gpuctl.cli.app import app


@pytest.fixture
def config(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("GPUCTL_CONFIG_DIR", str(tmp_path))
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "kubeconfig"))
    return tmp_path


def completed(*words: str) -> list[str]:
    """Return the completions of the last word."""
    *before, last = words
    return [item.value for item in ShellComplete(app, {}, "gpuctl", "_GPUCTL_COMPLETE").get_completions(before, last)]


def test_tools_are_completed(config: Path) -> None:
    assert "kubectl" in completed("bootstrap", "laptop", "--tool", "kube")
    assert "k9s" in completed("bootstrap", "laptop", "--remove", "")
    (config / "tools.yml").write_text("- name: [broken")
    assert completed("bootstrap", "laptop", "--tool", "kube") == []


def test_versions_are_completed(config: Path) -> None:
    for name in ("v1", "v2"):
        (config / "tmux/versions" / name).mkdir(parents=True)
    assert completed("tmux", "promote", "v") == ["v1", "v2"]
    assert completed("tmux", "rollback", "--to", "") == ["v1", "v2"]
    assert completed("tmux", "diff", "v1", "") == ["v1", "v2", "current", "newest"]


def test_contexts_are_completed(config: Path) -> None:
    (config / "kubeconfig").write_text(
        "contexts:\n- {name: prod, context: {cluster: a, user: b}}\n- {name: lab, context: {cluster: a, user: b}}\n"
    )
    assert completed("kube", "watch", "--context", "") == ["lab", "prod"]
    assert completed("kube", "context", "p") == ["prod"]
