"""Probe all pods concurrently while the first one listens on the port that the others try to reach."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from gpuctl.cluster.probe import answer_types
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
        order = request.order(target.pod, first, target.runs)
        with connect(target, order, MODULES) as connection:
            answer = connection.answer(answer_types.PodAnswer)
            return Facts(target.pod, answer, unread=_incomplete(order, answer))
    except GpuctlError as error:
        return Facts(target.pod, unread=error.wrong, hint=error.hint)


def _incomplete(order: Mapping[str, Any], answer: answer_types.PodAnswer) -> str:
    """First part of an order that the answer leaves out, as a reason; empty if there is none."""
    programs = ["gpus", *(["details"] if order["whole"] else ()), *(f"ssh {host}" for host in order["ssh"])]
    missing = [f"answers.{name}" for name in programs if name not in answer["answers"]]
    missing += [f"names.{name}" for name in order["hosts"] if name not in answer["names"]]
    missing += [f"programs.{name}" for name in order["programs"] if name not in answer["programs"]]
    missing += ["script"] if order["script"] and answer["script"] is None else []
    missing += ["reached"] if order["reach"] and answer["reached"] is None else []
    return f"unexpected answer from the pod: {missing[0]} is missing" if missing else ""


@contextlib.contextmanager
def _listening(target: PodTarget, port: int) -> Iterator[PortCheck | None]:
    if not port:
        yield None
        return
    with contextlib.ExitStack() as stack:
        try:
            connection = stack.enter_context(connect(target, {"what": "hold", "port": port}, MODULES))
            port_check = PortCheck(connection.answer(answer_types.Hold)["wrong"])
        except GpuctlError as error:
            port_check = PortCheck(error.wrong)
        yield port_check
