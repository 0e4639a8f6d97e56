"""Run Python programs in pods by exec. The text arrives on standard input, whose end a pod may never see."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass

from gpuctl.core.errors import GpuctlError, Unreachable
from gpuctl.domain.kube_errors import Forbidden
from gpuctl.edges.kube import pod_exec
from gpuctl.edges.kube.cancel import Stop
from gpuctl.edges.kube.cluster import Cluster
from gpuctl.edges.ssh import Failure

LOST = -1  # for an exit status: nobody knows how it ended
SLICE_S = 0.2
PING_S = 10.0  # balancers and proxies in between close what is silent for long, some after a minute
END_S = 20.0  # for a program that was told to end; then it is left alone, and finds the end of its input
KILLED = (137, 143)  # exit codes of a program that was ended with its container: ours ends by itself when told to
NO_PYTHON = "gpuctl-no-python"
PYTHONS = "python3 /usr/libexec/platform-python python3.13 python3.12 python3.11 python3.10 python3.9"
# Tried in turn. Plain POSIX shell: the program is its first argument, and nothing else goes into it.
ANY_PYTHON = (
    f"""for p in {PYTHONS}; do q=$(command -v "$p") && exec "$q" -ISc "$1"; done; echo {NO_PYTHON} >&2; exit 127"""
)
# Takes so many bytes of the input and no more: what comes after them is for others to read.
TAKE = """
import os, sys
def take(count):
    found = b""
    while len(found) < count:
        part = os.read(0, count - len(found))
        if not part:
            sys.exit(0)
        found += part
    return found
"""


@dataclass(frozen=True)
class Container:
    """A container of a pod, by their names."""

    cluster: Cluster
    pod: str
    name: str


def command(program: bytes, container: str = "", silent_s: float = 60, stop: Stop | None = None) -> pod_exec.Command:
    """The command that reads a program of this length from standard input and runs it."""
    taken = f"""{TAKE}exec(compile(take({len(program)}), "gpuctl", "exec"), {{"__name__": "__main__"}})"""
    return pod_exec.Command(["/bin/sh", "-c", ANY_PYTHON, "sh", taken], container, silent_s, stop or Stop())


def run(at: Container, program: bytes, limit_s: float, stop: Stop | None = None) -> bytes | Failure:
    """The output of a program that runs to its end, or the failure. `Forbidden` without the right to exec."""
    out: list[bytes] = []
    try:
        done = pod_exec.run(at.cluster, at.pod, command(program, at.name, limit_s, stop), [program], out.append)
    except Forbidden:
        raise
    except GpuctlError as error:
        return failure(error)
    return b"".join(out) if done.code == 0 else explain(done.code, done.err)


def failure(error: GpuctlError) -> Failure:
    return Failure(error.wrong, error.hint, unreachable=isinstance(error, Unreachable))


def explain(code: int, output: str) -> Failure:
    """Why a program did not run to its end, from what it and the shell said."""
    if NO_PYTHON in output:
        return Failure("it has no Python", "use an image with python3")
    lines = [line for line in output.splitlines() if line.strip()]
    return Failure(lines[-1].strip() if lines else f"exit status {code}")


class Running:
    """A program that runs for long. It is begun by who reads its `lines`, in one thread; any other may `end` it.

    Its input stays open as long as we are there: whatever it reads there, also the end, tells it to end. `wrong`: what
    went wrong with the way to it.
    """

    def __init__(self, at: Container, program: bytes) -> None:
        self._at, self._text = at, program
        self._program: pod_exec.Program | None = None
        self._end_requested = threading.Event()
        self._told_at: float | None = None
        self._heard = time.monotonic()
        self.wrong: GpuctlError | None = None

    def lines(self) -> Iterator[str]:
        """Output lines as they arrive, without line ends. `Forbidden` without the right to exec."""
        self._start()
        rest = b""
        while part := self._next():
            *whole, rest = (rest + part).split(b"\n")
            for line in whole:
                yield line.decode(errors="replace").rstrip("\r")
        if rest:
            yield rest.decode(errors="replace")

    def end(self) -> None:
        """Request its end, which may take a moment."""
        self._end_requested.set()

    def wait(self, patience_s: float = END_S) -> tuple[int, str]:
        """Return (exit status, standard error), or (LOST, reason); the program is not contacted afterwards."""
        if self._program is None:
            return LOST, self.wrong.wrong if self.wrong else "it was not started"
        late = time.monotonic() + patience_s
        try:
            while time.monotonic() < late and self._next():
                pass  # late output has no reader
            done = self._program.done()
            if done.code in KILLED:
                wrong = f"our program in the pod {self._at.pod} was ended from outside (exit code {done.code})"
                raise Unreachable(self._program.doing, wrong)
            return done.code, done.err
        except GpuctlError as error:
            self.wrong = error
            return LOST, error.wrong
        finally:
            self._program.close()

    def _start(self) -> None:
        if self._end_requested.is_set():
            return
        try:
            self._program = pod_exec.start(self._at.cluster, self._at.pod, command(self._text, self._at.name))
            with contextlib.suppress(EOFError):  # it ended at once; what it said tells why
                self._program.send(self._text)
        except Forbidden:
            raise
        except GpuctlError as error:
            self.wrong = error

    def _next(self) -> bytes:
        """The next output; empty at its end, or if the program does not end although it was told to."""
        program = self._program
        if program is None or self.wrong:
            return b""
        while not program.waiting(SLICE_S):
            if self._end_requested.is_set() and not self._tell_to_end(program):
                return b""
            if time.monotonic() - self._heard > PING_S:
                self._heard = time.monotonic()
                program.ping()
        self._heard = time.monotonic()
        return program.read()

    def _tell_to_end(self, program: pod_exec.Program) -> bool:
        """Tell the program to end; False once its time for that is over."""
        if self._told_at is None:
            self._told_at = time.monotonic()
            with contextlib.suppress(EOFError, GpuctlError):
                program.send(b"\n")
        return time.monotonic() - self._told_at < END_S
