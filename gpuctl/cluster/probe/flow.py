"""Probe all pods concurrently while the first one listens on the port that the others try to reach."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from gpuctl.cluster.probe.model import Facts, ProbeRequest
from gpuctl.core.errors import GpuctlError
from gpuctl.remote.connection import MODULES as CARRIED
from gpuctl.remote.connection import connect, run_in_all
from gpuctl.remote.model import PodTarget

PACKAGE = "gpuctl.cluster.probe.pod"
MODULES = (*CARRIED[:-1], *(f"{PACKAGE}.{name}" for name in ("run_programs", "network", "container", "main")))


@dataclass(frozen=True)
class PortCheck:
    """Result of listening on the port in the first pod. `wrong`: "busy", another reason, or "" if it succeeded."""

    wrong: str


def probe(pods: Sequence[PodTarget], request: ProbeRequest) -> tuple[list[Facts], PortCheck | None]:
    """Return each pod's answer in order, and the port check (None if no port was requested)."""
    with _listening(pods[0], request.port) as port_check:
        return run_in_all(pods, lambda target: _one(target, request, pods[0].pod)), port_check


def _one(target: PodTarget, request: ProbeRequest, first: str) -> Facts:
    try:
        with connect(target, request.order(target.pod, first, target.runs), MODULES) as connection:
            return Facts(target.pod, connection.answer())
    except GpuctlError as error:
        return Facts(target.pod, unread=error.wrong, hint=error.hint)


@contextlib.contextmanager
def _listening(target: PodTarget, port: int) -> Iterator[PortCheck | None]:
    if not port:
        yield None
        return
    with contextlib.ExitStack() as stack:
        try:
            connection = stack.enter_context(connect(target, {"what": "hold", "port": port}, MODULES))
            port_check = PortCheck(str(connection.answer()["wrong"]))
        except GpuctlError as error:
            port_check = PortCheck(error.wrong)
        yield port_check
