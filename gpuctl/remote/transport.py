"""What brings programs to the nodes of a launch: over ssh, or into pods (kube/in_pods.py)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, Protocol

from gpuctl.core.errors import GpuctlError
from gpuctl.edges import ssh
from gpuctl.edges.background import tied
from gpuctl.edges.kube.kubectl import need
from gpuctl.edges.processes import Done, Processes
from gpuctl.edges.ssh import Failure, Login
from gpuctl.edges.streams import Stream

LOOK_LIMIT_S = 30.0


class Started(Protocol):
    """A program that runs on a node. One thread reads it, any other may end it."""

    def lines(self) -> Iterator[str]:
        """What it prints, as it comes, without line ends."""

    def end(self) -> None:
        """Ask it to end; it may take a moment."""

    def ended(self, patience_s: float = 10) -> tuple[int, str]:
        """Its exit status and its standard error, whatever it takes."""


class Carrier(Protocol):
    """Programs are texts that any Python runs (carried.py)."""

    @property
    def asked(self) -> Mapping[str, Any]:
        """What the first program is asked besides (module_utils/nccl/start.py): what is peculiar to this way."""

    def check(self, nodes: Sequence[str]) -> None:
        """`GpuctlError` where programs cannot be started from here at all."""

    def address(self, node: str) -> str:
        """How the other nodes reach it."""

    def start(self, node: str, program: bytes) -> Started:
        """Start a program that runs for long; `GpuctlError` where that cannot be done from here."""

    def ask(self, node: str, program: bytes, anew: bool) -> bytes | Failure:
        """What a short program prints; with `anew` over a connection that nothing else uses."""

    def why(self, node: str, ended: tuple[int, str], limit_s: float) -> Failure:
        """Why a program said nothing at its end."""

    def unknown(self, nodes: Sequence[str], started: Started, looked: bool) -> str:
        """Why what happened to a launch tells nothing of its nodes; empty where it does.

        `looked`: some of them told what their ranks did when its time was over.
        """


class OverSsh:
    """Hosts that ssh reaches: node -> how we get onto it."""

    asked: Mapping[str, Any] = {}

    def __init__(self, logins: Mapping[str, Login]) -> None:
        # The user that ssh logs in as runs the job, whatever the inventory says of becoming another.
        self.logins = {name: replace(login, sudo_to="") for name, login in logins.items()}

    def check(self, nodes: Sequence[str]) -> None:
        """See Carrier. `InvalidInput` where there is no OpenSSH client."""
        if any(not self.logins[node].local for node in nodes):
            need("ssh")

    def address(self, node: str) -> str:
        """See Carrier."""
        return self.logins[node].address or node

    def start(self, node: str, program: bytes) -> Stream:
        """See Carrier."""
        argv = tied(ssh.command(self.logins[node]))
        try:
            return Stream(argv, program)
        except OSError as error:
            wrong = f"cannot start {error.filename or argv[0]}: {error.strerror or error}"
            raise GpuctlError(f"run a test on {node}", wrong) from error

    def ask(self, node: str, program: bytes, anew: bool) -> bytes | Failure:
        """See Carrier."""
        login = self.logins[node]
        if anew:
            login = replace(login, args=("-o", "ControlPath=none", *login.args))
        return ssh.run_python(Processes(), login, lambda: program, LOOK_LIMIT_S)

    def why(self, node: str, ended: tuple[int, str], limit_s: float) -> Failure:
        """See Carrier."""
        return ssh.explain(self.logins[node], Done(ended[0], b"", ended[1]), limit_s)

    def unknown(self, nodes: Sequence[str], started: Started, looked: bool) -> str:
        """See Carrier. A node that ssh does not reach is a finding."""
        return ""
