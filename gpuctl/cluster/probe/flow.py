"""Asks all pods at the same time, while the first one holds the port that the others try."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from gpuctl.cluster.probe.model import Facts, Wanted
from gpuctl.core.errors import GpuctlError
from gpuctl.remote.connection import MODULES as CARRIED
from gpuctl.remote.connection import in_all, link
from gpuctl.remote.model import There

HERE = "gpuctl.cluster.probe.pod"
MODULES = (*CARRIED[:-1], *(f"{HERE}.{name}" for name in ("run_programs", "network", "container", "main")))


@dataclass(frozen=True)
class Held:
    """Whether the first pod could listen on the port: `wrong` is "busy", another reason, or empty where it could."""

    wrong: str


def ask(pods: Sequence[There], wanted: Wanted) -> tuple[list[Facts], Held | None]:
    """What each pod answers, in their order; of the port, None where none was asked for."""
    with _holding(pods[0], wanted.port) as held:
        return in_all(pods, lambda there: _one(there, wanted, pods[0].pod)), held


def _one(there: There, wanted: Wanted, first: str) -> Facts:
    try:
        with link(there, wanted.order(there.pod, first, there.runs), MODULES) as found:
            return Facts(there.pod, found.answer())
    except GpuctlError as error:
        return Facts(there.pod, unread=error.wrong, hint=error.hint)


@contextlib.contextmanager
def _holding(there: There, port: int) -> Iterator[Held | None]:
    if not port:
        yield None
        return
    with contextlib.ExitStack() as stack:
        try:
            found = stack.enter_context(link(there, {"what": "hold", "port": port}, MODULES))
            held = Held(str(found.answer()["wrong"]))
        except GpuctlError as error:
            held = Held(error.wrong)
        yield held
