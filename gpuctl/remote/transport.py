"""Start programs on nodes: over ssh, or in pods (nccl/runners/kube/exec_transport.py).

Every transport keeps the promises of tests/rig/transport_promises.py.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, Protocol

from gpuctl.core.errors import GpuctlError
from gpuctl.edges import ssh
from gpuctl.edges.background import tied
from gpuctl.edges.processes import Done, Processes
from gpuctl.edges.programs import need
from gpuctl.edges.ssh import Failure, Login
from gpuctl.edges.streams import Stream

PROBE_LIMIT_S = 30.0


class RunningProgram(Protocol):
    """A program that runs on a node. One thread reads it; any other may end it."""

    def lines(self) -> Iterator[str]:
        """Yield its output line by line as it arrives, without line ends."""

    def end(self) -> None:
        """Ask it to end; this may take a moment."""

    def wait(self, patience_s: float = 10) -> tuple[int, str]:
        """Wait for the end; return the exit status and standard error."""


class Transport(Protocol):
    """Starts programs, which are text that any Python runs (payload.py), on nodes."""

    @property
    def start_options(self) -> Mapping[str, Any]:
        """Transport-specific options of the start program (module_utils/launch/start.py)."""

    def check(self, nodes: Sequence[str]) -> None:
        """Raise `GpuctlError` if programs cannot be started from here at all."""

    def address(self, node: str) -> str:
        """Return the address under which other nodes reach this one."""

    def start(self, node: str, program: bytes) -> RunningProgram:
        """Start a long-running program; `GpuctlError` if that is not possible from here."""

    def query(self, node: str, program: bytes, fresh: bool) -> bytes | Failure:
        """Return the output of a short program; `fresh` uses a new connection."""

    def why(self, node: str, result: tuple[int, str], limit_s: float) -> Failure:
        """Explain why a program ended without an answer."""

    def inconclusive(self, nodes: Sequence[str], started: RunningProgram, ranks_reported: bool) -> str:
        """Return why the outcome of a launch says nothing about its nodes; "" if it does.

        `ranks_reported`: some nodes reported what their ranks did at the timeout.
        """


class OverSsh:
    """Hosts over ssh. `logins`: node -> its login."""

    start_options: Mapping[str, Any] = {}

    def __init__(self, logins: Mapping[str, Login]) -> None:
        # The job runs as the login user, even if the inventory names a user to become.
        self.logins = {name: replace(login, sudo_to="") for name, login in logins.items()}

    def check(self, nodes: Sequence[str]) -> None:
        """See Transport. `InvalidInput` if no OpenSSH client is installed."""
        if any(not self.logins[node].local for node in nodes):
            need("ssh")

    def address(self, node: str) -> str:
        """See Transport."""
        return self.logins[node].address or node

    def start(self, node: str, program: bytes) -> Stream:
        """See Transport."""
        argv = tied(ssh.command(self.logins[node]))
        try:
            return Stream(argv, program)
        except OSError as error:
            wrong = f"cannot start {error.filename or argv[0]}: {error.strerror or error}"
            raise GpuctlError(f"run a test on {node}", wrong) from error

    def query(self, node: str, program: bytes, fresh: bool) -> bytes | Failure:
        """See Transport."""
        login = self.logins[node]
        if fresh:
            login = replace(login, args=("-o", "ControlPath=none", *login.args))
        return ssh.run_python(Processes(), login, lambda: program, PROBE_LIMIT_S)

    def why(self, node: str, result: tuple[int, str], limit_s: float) -> Failure:
        """See Transport."""
        return ssh.explain(self.logins[node], Done(result[0], b"", result[1]), limit_s)

    def inconclusive(self, nodes: Sequence[str], started: RunningProgram, ranks_reported: bool) -> str:
        """See Transport. A node that ssh does not reach is a finding."""
        return ""
