"""Keep files on a host for one session: unpacked from standard input, removed when that closes or stays silent.

Runs by itself on the host, as the text of this file. Input: a line of JSON, the files one after the other, then a
byte from time to time.
"""

from __future__ import annotations

import hashlib
import io
import json
import os
import platform
import select
import shutil
import signal
import sys
import tempfile
import zipfile

SILENT_S = 60.0  # the other end is gone then: it sends a byte every ten seconds
# Not in memory first: /dev/shm may forbid to load libraries from it.
PARENTS = ("/tmp", "/var/tmp", "/dev/shm")  # noqa: S108 - only for folders that mkdtemp makes private


def main() -> int:
    """Unpack, print where, and wait; a line of JSON with `folder` and `python`, or with `error`."""
    for number in (signal.SIGHUP, signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: sys.exit(1))
    signal.signal(signal.SIGPIPE, signal.SIG_IGN)
    parent = next((path for path in PARENTS if _serves(path)), None)
    if parent is None:
        return _answer({"error": f"programs cannot be run in any of {', '.join(PARENTS)}"})
    folder = tempfile.mkdtemp(prefix="gpuctl-session-", dir=parent)
    try:
        error = _unpack(folder)
        if error:
            return _answer({"error": error})
        _answer({"folder": folder, "python": sys.executable})
        while select.select([0], [], [], SILENT_S)[0] and os.read(0, 4096):
            pass
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    return 0


def _serves(path: str) -> bool:
    return os.access(path, os.W_OK | os.X_OK) and not os.statvfs(path).f_flag & os.ST_NOEXEC


def _unpack(folder: str) -> str:
    """Unpack the files that this machine needs; the reason if one is not what it should be."""
    source, machine, served = sys.stdin.buffer, platform.machine(), set()
    for row in json.loads(source.readline()):
        data = source.read(row["size"])
        if len(data) != row["size"] or hashlib.sha256(data).hexdigest() != row["sha256"]:
            return f"{row['name']} arrived with another content"
        if row["machine"] in ("", machine):
            served.add(row["machine"])
            with zipfile.ZipFile(io.BytesIO(data)) as archive:
                archive.extractall(folder)
    return "" if machine in served else f"no build of it is for a {machine} machine"


def _answer(answer: dict[str, str]) -> int:
    sys.stdout.write(json.dumps(answer) + "\n")
    sys.stdout.flush()
    return 1 if "error" in answer else 0


if __name__ == "__main__":
    sys.exit(main())
