"""`gpuctl kube forward` beside a test: start it, ask through it, see what it says and what it leaves."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.rig.kube.plane import Plane
from tests.rig.tmux.screen import User, wait_until


def five_free_ports() -> int:
    """The first of five local ports that are free; other tests run at the same time."""
    for first in range(20000 + os.getpid() % 200 * 50, 32000, 5):
        with contextmanager(_bound)(range(first, first + 5)) as free:
            if free:
                return first
    raise AssertionError("no five free ports")


def _bound(ports: range) -> Iterator[bool]:
    held = []
    try:
        for port in ports:
            held.append(socket.socket())
            held[-1].bind(("127.0.0.1", port))
        yield True
    except OSError:
        yield False
    finally:
        for each in held:
            each.close()


def pods(cluster: Plane, app: str) -> list[str]:
    told = cluster.kubectl("get", "pods", "-l", f"app={app}", "-o", "name").split()
    return sorted(name.removeprefix("pod/") for name in told)


def who_answers(port: int) -> str:
    try:
        with socket.create_connection(("127.0.0.1", port), timeout=2) as found:
            return found.recv(100).decode()
    except OSError:
        return ""


@contextmanager
def forwarding(me: User, *words: object) -> Iterator[subprocess.Popen[str]]:
    """`gpuctl kube forward` in the background; it must leave nothing behind, however it is ended."""
    argv = [str(me.program_path), "kube", "forward", "--probe-every", "0.5", *map(str, words)]
    output = (me.home / "output").open("w")
    running = subprocess.Popen(
        argv, env=me.environment, stdin=subprocess.DEVNULL, stdout=output, stderr=output, text=True
    )
    try:
        yield running
    finally:
        if running.poll() is None:
            running.send_signal(signal.SIGTERM)
        running.wait(60)
        output.close()
    wait_until(lambda: not children(me), "every child has ended")


def children(me: User) -> list[str]:
    """What runs for this user."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            if f"\0HOME={me.home}\0".encode() in b"\0" + (folder / "environ").read_bytes():
                found.append((folder / "cmdline").read_text().replace("\0", " "))
        except OSError:
            continue
    return [line for line in found if line.strip()]


def said(me: User) -> str:
    return (me.home / "output").read_text()
