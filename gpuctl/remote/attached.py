"""Run a program in a pod to its end, with what it prints as it comes, and end it for certain.

It ends with all that it started when it is told to, when this process ends, and when the connection breaks: nothing of
it, and nothing of ours, stays in the pod.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Protocol

from gpuctl.core.errors import Unreachable
from gpuctl.remote.connection import link
from gpuctl.remote.model import Ended, Program, There, ended
from gpuctl.remote.supervisor import frames, protocol

CONFIRMS_S = 30.0  # beyond its grace time: so long we wait to hear that it is gone


class Asks(Protocol):
    """Whether it is to end; `gpuctl.edges.kube.cancel.Stop` and `threading.Event` are such."""

    def is_set(self) -> bool: ...


def run(
    there: There,
    program: Program,
    out: Callable[[bytes], object] = lambda _: None,
    stop: Asks | None = None,
    started: Callable[[], object] = lambda: None,
) -> Ended:
    """Run it to its end; `out` gets what it prints, errors among the rest, in pieces of any length.

    While `out` is at work nothing is heard from us: were that a minute, the pod would take us for gone, and end it.

    Once `stop` is set, by any thread, it is ended with everything it started (SIGTERM, after `program.grace_s`
    SIGKILL), and this returns when all of it is gone. `started` is called once it runs.
    `link.Refused` (word "start") where there is no such program or folder; `Unreachable` where the connection broke:
    the pod then ends it by itself within a minute and its grace time. `GpuctlError` where the pod has no Python.
    """
    stop = stop or threading.Event()
    told_s = 0.0
    with link(there, program.order(protocol.RUN)) as found:
        while True:
            if stop.is_set() and not told_s:
                found.end()
                told_s = time.monotonic()
            for kind, payload in found.messages():
                if kind == protocol.STARTED:
                    started()
                elif kind == protocol.OUT and payload:
                    out(payload)
                elif kind == protocol.ENDED:
                    return ended(frames.unpack(payload))
            if told_s and time.monotonic() - told_s > program.grace_s + CONFIRMS_S:
                raise Unreachable(found.doing, "it was told to end, and has not said that it did")
