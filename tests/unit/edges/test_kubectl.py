"""What kubectl cannot do, in words that say why."""

from __future__ import annotations

from pathlib import Path

import pytest

from gpuctl.core.errors import GpuctlError, InvalidInput
from gpuctl.edges.kube.kubectl import Kubectl


@pytest.fixture
def refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A stand-in for kubectl that finds no cluster; returns where a kubeconfig may be put."""
    program = tmp_path / "kubectl"
    program.write_text("#!/bin/sh\necho 'The connection to the server localhost:8080 was refused' >&2\nexit 1\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "config"))
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
    return tmp_path / "config"


def test_a_missing_kubeconfig_is_not_told_as_a_dead_server(refused: Path) -> None:
    with pytest.raises(InvalidInput, match=f"there is no kubeconfig {refused}"):
        Kubectl().ask("explain the pod x", "get", "pod", "x")


def test_with_a_kubeconfig_it_is_the_server_that_does_not_answer(refused: Path) -> None:
    refused.write_text("apiVersion: v1\nkind: Config\n")
    with pytest.raises(GpuctlError, match="was refused") as told:
        Kubectl().ask("explain the pod x", "get", "pod", "x")
    assert not isinstance(told.value, InvalidInput)
