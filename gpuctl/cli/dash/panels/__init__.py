"""Panels of the screen, in the order of their digits."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from gpuctl.cli.dash.model import Panel
from gpuctl.cli.dash.panels.checks import ChecksPanel
from gpuctl.cli.dash.panels.nccl import NcclPanel
from gpuctl.cli.dash.panels.nodes import NodesPanel
from gpuctl.cli.dash.panels.reservations import ReservationsPanel
from gpuctl.cli.dash.panels.runs import RunsPanel
from gpuctl.cli.dash.panels.subnets import SubnetsPanel
from gpuctl.cli.dash.request import DashRequest

PANELS: Mapping[str, Callable[[DashRequest], Panel]] = {
    "nodes": NodesPanel,
    "checks": ChecksPanel,
    "runs": RunsPanel,
    "reservations": ReservationsPanel,
    "subnets": SubnetsPanel,
    "nccl": NcclPanel,
}
