"""What a test does where a part that it needs is missing."""

from __future__ import annotations

import os

import pytest

HOSTS, PLANE, RECORDINGS = "GPUCTL_REQUIRE_HOSTS", "GPUCTL_REQUIRE_PLANE", "GPUCTL_REQUIRE_RECORDINGS"


def need(why: str, required_by: str = PLANE) -> None:
    """Skip the test where `why` says that a part is missing; fail it in CI, and where that variable is 1."""
    if why and (os.environ.get("CI") or os.environ.get(required_by) == "1"):
        pytest.fail(why)
    if why:
        pytest.skip(why)
