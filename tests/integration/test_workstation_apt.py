"""The apt family: a check on a machine whose package lists are empty, as on a fresh one, tells what a run would do."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.rig import parts

CALL = """
import os
from ansible_collections.gpuctl.fleet.plugins.module_utils.workstation.machine import Machine
from ansible_collections.gpuctl.fleet.plugins.module_utils.workstation.packages import Packages
packages = Packages(Machine("/root", "/usr/local/bin", check=True))
for name, minimal in (("tmux", "3.2"), ("tmux", "99"), ("no-such-package", "1")):
    print(packages.why_not({"name": name, "minimal": minimal, "packages": {"debian": name}}, check=True) or "will do")
print(os.listdir("/var/lib/apt/lists"))
"""
EMPTY = 'mount -t tmpfs none /var/lib/apt/lists && exec "$@"'
pytestmark = [
    pytest.mark.skipif(not shutil.which("apt-get"), reason="a machine with apt"),
    pytest.mark.skipif(bool(why := parts.missing()), reason=why or ""),
]


def test_a_check_gets_lists_of_its_own_and_leaves_the_machines_empty() -> None:
    argv = ["unshare", "--mount", "sh", "-c", EMPTY, "sh", sys.executable, "-c", CALL]
    root = Path(__file__).parents[2]
    said = subprocess.run(argv, capture_output=True, text=True, check=True, cwd=root).stdout.splitlines()
    assert said[0] == "will do"
    assert said[1].startswith("the package tmux 3.")
    assert said[2:] == ["the package no-such-package is not in the package lists", "[]"]
