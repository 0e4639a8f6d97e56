"""What a test does where a part that it needs is missing."""

from __future__ import annotations

import os
import shutil
import subprocess

import pytest

HOSTS, PLANE, RECORDINGS = "GPUCTL_REQUIRE_HOSTS", "GPUCTL_REQUIRE_PLANE", "GPUCTL_REQUIRE_RECORDINGS"


def need(why: str, required_by: str = PLANE) -> None:
    """Skip the test where `why` says that a part is missing; fail it in CI, and where that variable is 1."""
    if why and (os.environ.get("CI") or os.environ.get(required_by) == "1"):
        pytest.fail(why)
    if why:
        pytest.skip(why)


def ordinary_rights() -> list[str]:
    """Words in front of a command that bind root to the modes of files as they bind every other user."""
    words = [] if os.geteuid() else ["setpriv", "--bounding-set=-dac_override,-dac_read_search"]
    if words and (not shutil.which("setpriv") or subprocess.run([*words, "true"], check=False).returncode):
        need("root cannot give up its right to read and write everywhere here (setpriv)", HOSTS)
    return words
