"""Entry point in a pod: measure its storage, and print the answer as one line."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import sys
import threading
from pathlib import Path
from typing import NoReturn

from ansible_collections.gpuctl.fleet.plugins.module_utils.gpuhost.facts import storage_load
from ansible_collections.gpuctl.fleet.plugins.module_utils.gpuhost.host import Host


def main() -> int:
    """Read the request, and print the answer after its token. It ends by itself even without a client."""
    request = json.loads(_read_input(int(_read_input(10))))
    signal.signal(signal.SIGALRM, lambda *_: _leave())
    signal.alarm(int(request["limit_s"]) + 2)
    threading.Thread(target=_leave_with_the_connection, daemon=True).start()
    try:
        answer = dict(storage_load.read(Host(), request))
    except OSError as error:
        answer = {"unread": {"*": f"{error.filename or ''}: {error.strerror or error}".lstrip(": ")}}
    except (ValueError, LookupError, TypeError, AttributeError, RecursionError) as error:
        answer = {"unread": {"*": f"not understood: {type(error).__name__}: {error}"}}
    sys.stdout.write("\n" + request["token"] + json.dumps(answer) + "\n")
    sys.stdout.flush()
    os._exit(0)  # a read that hangs must not hold it


def _read_input(size: int) -> bytes:
    text = b""
    while len(text) < size:
        more = os.read(0, size - len(text))
        if not more:
            os._exit(1)
        text += more
    return text


def _leave_with_the_connection() -> None:
    """End when the input does, because the connection is gone."""
    os.read(0, 1)
    _leave()


def _leave() -> NoReturn:
    """End with the programs that were started, such as `lfs`: they are in sessions of their own."""
    for task in Path("/proc/self/task").iterdir():
        try:
            children = (task / "children").read_text(encoding="ascii").split()
        except OSError:  # the thread has ended, or the kernel has no such file
            continue
        for child in map(int, children):
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(child, signal.SIGKILL)
    os._exit(1)
