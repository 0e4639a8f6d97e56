"""What the rig needs of this machine, and what of it is missing."""

from __future__ import annotations

import importlib.util
import os
import shutil
import subprocess
from pathlib import Path

PROGRAMS = ("mmdebstrap", "ip", "nft", "unshare", "nsenter", "setpriv", "ssh", "ssh-keygen", "mount")


def missing() -> str:
    """Why no host can be started here, in words; "" where one can."""
    if os.geteuid() != 0:
        return "test hosts need root"
    lacking = [program for program in PROGRAMS if shutil.which(program) is None]
    if lacking:
        return f"test hosts need {', '.join(lacking)}; see tests/rig/packages.txt"
    if not Path("/dev/fuse").exists():
        return "test hosts need FUSE (/dev/fuse)"
    if importlib.util.find_spec("mfusepy") is None:
        return "test hosts need the Python package mfusepy"
    if subprocess.run(["unshare", "--mount", "true"], capture_output=True, check=False).returncode:
        return "test hosts need the right to make namespaces and mounts (CAP_SYS_ADMIN)"
    return ""
