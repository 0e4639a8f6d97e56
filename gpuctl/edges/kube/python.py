"""Run Python programs in pods by exec. The text arrives on standard input, whose end a pod may never see."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace

from gpuctl.core.errors import GpuctlError, Unreachable
from gpuctl.domain.kube_errors import Forbidden
from gpuctl.edges.kube import pod_exec
from gpuctl.edges.kube.cancel import Stop
from gpuctl.edges.kube.cluster import Cluster
from gpuctl.edges.ssh import Failure
from gpuctl.edges.streams import LONGEST_LINE

LOST = -1  # exit status of a program whose end is unknown
SLICE_S = 0.2
PING_S = 10.0  # load balancers and proxies close idle connections, some after a minute
END_S = 20.0  # for a program to end on request; then the connection is closed, and with it the program's input
KILLED = (137, 143)  # exit codes of a program that was killed with its container; ours exits normally on request
NO_PYTHON = "gpuctl-no-python"
PYTHONS = "python3 /usr/libexec/platform-python python3.14 python3.13 python3.12 python3.11 python3.10 python3.9"
# Tries the interpreters in turn, those last that are links to a version before 3.8. Plain POSIX shell, with the program
# as its first argument.
ANY_PYTHON = (
    f"""o=; for p in {PYTHONS}; do q=$(command -v "$p") || continue; """
    """case $(readlink -f "$q") in *3.[0-7]) o=${o:-$q}; continue;; esac; exec "$q" -ISc "$1"; done; """
    f"""test -n "$o" && exec "$o" -ISc "$1"; echo {NO_PYTHON} >&2; exit 127"""
)
# Reads exactly this many bytes of the input; the program reads the rest.
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
    """A container of a pod."""

    cluster: Cluster
    pod: str
    name: str


def command(program: bytes, container: str = "", silent_s: float = 60, stop: Stop | None = None) -> pod_exec.Command:
    """Return the command that reads a program of this length from standard input, and runs it."""
    taken = f"""{TAKE}exec(compile(take({len(program)}), "gpuctl", "exec"), {{"__name__": "__main__"}})"""
    return pod_exec.Command(["/bin/sh", "-c", ANY_PYTHON, "sh", taken], container, silent_s, stop or Stop())


def run(at: Container, program: bytes, limit_s: float, stop: Stop | None = None) -> bytes | Failure:
    """Run a program to its end; return its output, or the failure. Raises `Forbidden` if the user may not exec."""
    return _run(at, command(program, at.name, limit_s, stop), program)


def _run(at: Container, command: pod_exec.Command, program: bytes) -> bytes | Failure:
    try:
        done, output = pod_exec.read(at.cluster, at.pod, command, [program])
    except Forbidden:
        raise
    except GpuctlError as error:
        return failure(error)
    return output if done.code == 0 else explain(done.code, done.err)


# The namespaces of the node, from a privileged container that sees its processes. The image's nsenter may know no
# control groups; the node's own does.
ON_NODE = (
    'if nsenter -t 1 -C true 2>/dev/null; then exec nsenter -t 1 -u -i -n -C /bin/sh -c "$1" sh "$2"; '
    'else exec /bin/sh -c "$1" sh "$2"; fi'
)


def run_on_node(at: Container, program: bytes, limit_s: float, stop: Stop | None = None) -> bytes | Failure:
    """Like `run`, with the node's own Python, files and namespaces; `at`: privileged, with hostPID."""
    inside = command(program, at.name, limit_s, stop)
    outer = ["nsenter", "-t", "1", "-m", "--", "/bin/sh", "-c", ON_NODE, "sh", ANY_PYTHON, inside.argv[-1]]
    return _run(at, replace(inside, argv=outer), program)


def failure(error: GpuctlError) -> Failure:
    return Failure(error.wrong, error.hint, unreachable=isinstance(error, Unreachable))


def explain(code: int, output: str) -> Failure:
    """Return why a program failed, from its own or the shell's output."""
    if NO_PYTHON in output:
        return Failure("it has no Python", "use an image with python3")
    lines = [line for line in output.splitlines() if line.strip()]
    return Failure(lines[-1].strip() if lines else f"exit status {code}")


class Running:
    """A long-running program. Reading `lines` in one thread starts it; any other thread may `end` it.

    Its input stays open as long as we run: any input, and its end, tell the program to exit. `wrong`: an error of the
    connection.
    """

    def __init__(self, at: Container, program: bytes) -> None:
        self._at, self._text = at, program
        self._program: pod_exec.Program | None = None
        self._end_requested = threading.Event()
        self._end_sent_at: float | None = None
        self._last_contact = time.monotonic()
        self.wrong: GpuctlError | None = None

    def lines(self) -> Iterator[str]:
        """Yield output lines as they arrive, without line ends; a line longer than LONGEST_LINE comes in parts.

        `Forbidden` without the right to exec.
        """
        self._start()
        rest = b""
        while part := self._next():
            *whole, rest = (rest + part).split(b"\n")
            for line in whole:
                yield line.decode(errors="replace").rstrip("\r")
            if len(rest) > LONGEST_LINE:
                yield rest.decode(errors="replace")
                rest = b""
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
            with contextlib.suppress(EOFError):  # it ended at once; its output says why
                self._program.send(self._text)
        except Forbidden:
            raise
        except GpuctlError as error:
            self.wrong = error

    def _next(self) -> bytes:
        """Return the next output; empty at its end, or if the program does not end on request."""
        program = self._program
        if program is None or self.wrong:
            return b""
        while not program.waiting(SLICE_S):
            if self._end_requested.is_set() and not self._tell_to_end(program):
                return b""
            if time.monotonic() - self._last_contact > PING_S:
                self._last_contact = time.monotonic()
                program.ping()
        self._last_contact = time.monotonic()
        return program.read()

    def _tell_to_end(self, program: pod_exec.Program) -> bool:
        """Request the program's end; False once its time for that is over."""
        if self._end_sent_at is None:
            self._end_sent_at = time.monotonic()
            with contextlib.suppress(EOFError, GpuctlError):
                program.send(b"\n")
        return time.monotonic() - self._end_sent_at < END_S
