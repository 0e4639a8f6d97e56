"""Errors of the cluster, as the commands of a smart shell tell them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from gpuctl.core.errors import GpuctlError
from gpuctl.edges.kube import config
from gpuctl.edges.kube.config import Context
from gpuctl.edges.kube.kubectl import Kubectl
from gpuctl.kube import explain, pod, switch
from gpuctl.kube.selected_pod import SelectedPod

PAGE = "<html>\n<head><title>502 Bad Gateway</title></head>\n<body>nginx</body>\n</html>\n"


@pytest.fixture(autouse=True)
def proxy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A stand-in for kubectl behind a proxy that answers with an error page."""
    (tmp_path / "page").write_text(PAGE)
    program = tmp_path / "kubectl"
    program.write_text(f"#!/bin/sh\ncat {tmp_path}/page >&2\nexit 1\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    monkeypatch.setattr(switch, "private_copy", lambda: tmp_path / "copy")
    monkeypatch.setattr(config, "current", lambda *_: Context("lab", "c", "u", "team"))


@pytest.mark.parametrize(
    "ask",
    [
        lambda: switch.to_namespace("other"),
        lambda: pod._exists(SelectedPod("lab", "team", "x", "")),
    ],
    ids=["switch", "pod"],
)
def test_of_a_servers_error_page_one_line_is_told(ask: Callable[[], object]) -> None:
    with pytest.raises(GpuctlError) as told:
        ask()
    assert told.value.wrong == "502 Bad Gateway"


def test_an_explanation_has_one_line_of_a_servers_error_page() -> None:
    assert explain._output(Kubectl("lab", "team"), "get", "events") == "(unknown: 502 Bad Gateway)"
