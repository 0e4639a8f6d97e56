"""What kubectl cannot do, in words that say why."""

from __future__ import annotations

from pathlib import Path

import pytest

from gpuctl.core.errors import GpuctlError, InvalidInput
from gpuctl.edges.kube.kubectl import Kubectl
from gpuctl.edges.programs import gist


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


# As kubectl 1.31 prints a proxy's answer, with its line ends escaped or not.
PAGE = """\
<html>\r
<head><title>502 Bad Gateway</title></head>\r
<body><center><h1>502 Bad Gateway</h1></center><hr><center>nginx</center></body>\r
</html>"""


@pytest.mark.parametrize("page", [PAGE, repr(PAGE)[1:-1]], ids=["lines", "escaped"])
def test_of_a_servers_error_page_the_title_is_told(page: str) -> None:
    failure = (
        f'E1127 memcache.go:265] "Unhandled"\nError from server (InternalError): an error on the server ("{page}")'
    )
    assert gist(f"{failure} has prevented the request from succeeding\n") == "502 Bad Gateway"


def test_of_other_errors_the_last_line_is_told() -> None:
    assert gist("a warning\nerror: the <pod> is gone\n\n") == "the <pod> is gone"
    assert gist("\n") == "it failed without a message"
