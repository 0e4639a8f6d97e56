"""Files from an address: a path of the host, or a server, by apt's own downloader and with apt's proxy."""

from __future__ import annotations

import os
import re
import shutil

from .host import Host

HELPER = "/usr/lib/apt/apt-helper"
LIMIT_S = 120.0


def download(host: Host, address: str, target: str, limit_s: float = LIMIT_S) -> str:
    """Copy the file at an address to `target`, a path on this machine; return what is wrong, "" if nothing."""
    if address.startswith("file:"):
        path = re.sub("^file:(//)?", "", address)
        try:
            shutil.copyfile(host.real(path), target)
        except OSError as error:
            return f"{path}: {error.strerror}"
        return ""
    options = ("-o", "APT::Sandbox::User=root", "-o", "Acquire::Retries=2")
    done = host.run(HELPER, *options, "download-file", address, target, limit=limit_s)
    if done.ok and os.path.exists(target):
        return ""
    reason = re.search(r"^Err:\d+ .*\n\s+(.+)$|^E: (Failed to fetch .+)$", f"{done.out}\n{done.err}", re.MULTILINE)
    return f"{address}: {(reason[1] or reason[2]) if reason else done.last_line}"
