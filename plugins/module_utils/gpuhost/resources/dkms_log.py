"""DKMS's reason for a module that it could not build. Package managers show that a script failed, and not why."""

from __future__ import annotations

import os
import re

from ..host import Host

LOGS = "/var/lib/dkms/*/*/build/make.log"
_ERROR = re.compile(r"\berror:", re.IGNORECASE)  # of the compiler, the linker and modpost
_ENDED = re.compile(r"\*\*\* .*\bError \d+|\*\*\* .*\bStop\.")  # of make
MOST_BYTES = 64 << 20  # of a log
MOST_SHOWN = 240  # characters


def reason(host: Host, since: float) -> str:
    """First error in the newest log of a build since then, with the log's path, to follow a message; "" without one.

    `since`: seconds since the epoch.
    """
    logs = []
    for path in host.glob(LOGS):
        try:
            logs.append((os.stat(host.real(path)).st_mtime, path))
        except OSError:
            continue  # removed with its module
    at, path = max(logs, default=(0.0, ""))
    if not path or at < since - 1:  # a file system may keep whole seconds
        return ""
    error = _first_error(host, path)
    return f"; DKMS: {error} ({path})" if error else f"; see {path}"


def _first_error(host: Host, path: str) -> str:
    """The line of the first error, else that with which make ended; "" if the log has neither."""
    ended = ""
    try:
        text = host.read_regular(path, MOST_BYTES) or ""
    except (OSError, OverflowError):
        return ""
    for line in text.splitlines():
        if _ERROR.search(line):
            return line.strip()[:MOST_SHOWN]
        if not ended and _ENDED.search(line):
            ended = line.strip()[:MOST_SHOWN]
    return ended
