"""Run a program in a pod, stream its output, and end it for certain.

The program and everything it started end when the caller stops it, when this process ends, and when the connection
breaks: nothing stays in the pod.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Protocol

from gpuctl.core.errors import Unreachable
from gpuctl.remote import answer_types
from gpuctl.remote.connection import connect
from gpuctl.remote.model import PodTarget, ProcessExit, Program, process_exit
from gpuctl.remote.supervisor import protocol

CONFIRMS_S = 30.0  # beyond its grace time: how long to wait for the pod to confirm that the program is gone


class StopSignal(Protocol):
    """A flag that ends a wait; `gpuctl.edges.kube.cancel.Stop` and `threading.Event` are such flags."""

    def is_set(self) -> bool: ...


def run(
    target: PodTarget,
    program: Program,
    out: Callable[[bytes], object] = lambda _: None,
    stop: StopSignal | None = None,
    started: Callable[[], object] = lambda: None,
) -> ProcessExit:
    """Run a program to its end; `out` receives its output (stdout and stderr interleaved) in chunks of any length.

    No messages are read while `out` runs: if one call took a minute, the pod would consider us gone and end the
    program.

    When any thread sets `stop`, the program and everything it started are ended (SIGTERM, SIGKILL after
    `program.grace_s`), and this function returns when all of it is gone. `started` is called once the program runs.
    Raises `connection.Refused` (reason "start") if the program or folder does not exist; `Unreachable` if the
    connection broke: the pod then ends the program by itself within a minute and its grace time; `GpuctlError` if the
    pod has no Python.
    """
    stop = stop or threading.Event()
    stopped_at = 0.0
    with connect(target, program.order(protocol.RUN)) as connection:
        while True:
            if stop.is_set() and not stopped_at:
                connection.end()
                stopped_at = time.monotonic()
            for kind, payload in connection.messages():
                if kind == protocol.STARTED:
                    started()
                elif kind == protocol.OUT and payload:
                    out(payload)
                elif kind == protocol.ENDED:
                    return process_exit(connection.decode(payload, answer_types.Exit))
            if stopped_at and time.monotonic() - stopped_at > program.grace_s + CONFIRMS_S:
                raise Unreachable(connection.doing, "it did not confirm that the program ended")
