"""gpuctl's kubeconfig of an EKS cluster: a file that cannot be written is an error of gpuctl."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from gpuctl.core.errors import GpuctlError
from gpuctl.edges.aws import Aws, Request
from gpuctl.workflows import eks_access
from gpuctl.workflows.eks_access import AccessRequest

CLUSTER = {
    "name": "lab",
    "arn": "arn:aws:eks:us-east-1:123456789012:cluster/lab",
    "status": "ACTIVE",
    "endpoint": "https://example.com",
    "certificateAuthority": {"data": "QQ=="},
}


class StandInAws(Aws):
    """Stand-in of AWS with one cluster."""

    def __init__(self, region: str, profile: str) -> None:
        self.region, self.profile = region, profile

    def read(self, request: Request, convert: Callable[[Any], Any]) -> list[Any]:
        return [convert({"cluster": CLUSTER})]


def test_a_config_folder_that_cannot_be_written_is_an_error_in_words(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    blocked = tmp_path / "file"
    blocked.write_text("")
    monkeypatch.setattr(eks_access, "Aws", StandInAws)
    monkeypatch.setenv("GPUCTL_CONFIG_DIR", str(blocked))
    with pytest.raises(GpuctlError, match=r"kubeconfig of lab: .*Not a directory") as caught:
        eks_access.place(AccessRequest("lab", "gpu", "", "", "us-east-1", ""))
    assert "HOME" in caught.value.hint
