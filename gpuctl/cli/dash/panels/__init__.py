"""Panels of the screen, in the order of their digits."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

from gpuctl.cli.dash.model import Panel
from gpuctl.cli.dash.panels.checks import ChecksPanel
from gpuctl.cli.dash.panels.nccl import NcclPanel
from gpuctl.cli.dash.panels.nodes import NodesPanel
from gpuctl.cli.dash.panels.pods import PodsPanel
from gpuctl.cli.dash.panels.refused import RefusedPanel
from gpuctl.cli.dash.panels.reservations import ReservationsPanel
from gpuctl.cli.dash.panels.runs import RunsPanel
from gpuctl.cli.dash.panels.subnets import SubnetsPanel
from gpuctl.cli.dash.request import DashRequest
from gpuctl.core.errors import GpuctlError


class _Kind(Protocol):
    """Class of a panel."""

    name: str
    title: str

    def __call__(self, request: DashRequest, /) -> Panel:
        """Make the panel; errors as in its command."""


PANELS: Mapping[str, _Kind] = {
    "nodes": NodesPanel,
    "checks": ChecksPanel,
    "pods": PodsPanel,
    "runs": RunsPanel,
    "reservations": ReservationsPanel,
    "subnets": SubnetsPanel,
    "nccl": NcclPanel,
}


def build(request: DashRequest) -> Sequence[Panel]:
    """Make all panels. An error of the first one to be shown is raised, that of another is what it shows."""
    return [_build(name, request) for name in PANELS]


def _build(name: str, request: DashRequest) -> Panel:
    try:
        return PANELS[name](request)
    except GpuctlError as error:
        if name == request.panel:
            raise
        return RefusedPanel(name, PANELS[name].title, str(request.command_line(name)), error)
