"""k9s is read-only in production, whatever the settings allow elsewhere; else its configuration decides."""

from __future__ import annotations

from pathlib import Path

import pytest

from gpuctl.core.errors import InvalidInput
from gpuctl.core.settings import Settings
from gpuctl.kube import k9s


@pytest.mark.parametrize(
    ("context", "readonly", "mode"),
    [("prod-eu", False, "--readonly"), ("dev-eu", False, ""), ("dev-eu", True, "--readonly")],
)
def test_context_namespace_and_mode(
    context: str, readonly: bool, mode: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "k9s").touch(mode=0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    command = k9s.command(context, "train", Settings(k9s_readonly=readonly))
    assert command == ["k9s", "--context", context, "--namespace", "train", "--command", "pods", *mode.split()]
    assert "all" in k9s.command(context, "", Settings())


def test_without_k9s_its_installation_is_advised(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(InvalidInput, match="not installed"):
        k9s.command("dev", "", Settings())
