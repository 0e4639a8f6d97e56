"""NCCL: measurements that this machine took, as `gpuctl nccl history` and `gpuctl nccl report`."""

from __future__ import annotations

import time
from collections.abc import Sequence

import click

from gpuctl.cli.dash.model import Detail, Line, PanelKey, View, shell_text
from gpuctl.cli.dash.request import DashRequest
from gpuctl.cli.nccl import report
from gpuctl.cli.shared import output
from gpuctl.nccl import history
from gpuctl.nccl.history import Measured

PAUSE_S = 30.0
MOST = 50
MAP_WIDTH = 78  # of the map of pairs: the narrowest screen


class NcclPanel:
    """Measurements, the newest first; a new one is started by the commands below them."""

    name, title = "nccl", "NCCL"
    command = shell_text(["nccl", "history", "--last", str(MOST)])

    def __init__(self, request: DashRequest) -> None:
        place = ["--inventory", request.inventory] if request.inventory is not None else []
        self._start = [shell_text(["nccl", kind, *place]) for kind in ("run", "isolate")]
        self._measured: dict[str, Measured] = {}
        self._read_at = ""
        self.keys: Sequence[PanelKey] = ()

    def read(self) -> float:
        """Read the history of this machine."""
        self._measured = {str(one.id): one for one in history.latest(MOST)}
        self._read_at = time.strftime("%H:%M:%S")
        return PAUSE_S

    def view(self) -> View:
        if not self._read_at:
            return View()
        measured = list(self._measured.values())
        head, *texts = output.columns(report.HEAD, report.rows(measured))
        rows = zip(texts, self._measured, measured, strict=True)
        lines = [Line(text, number, report.worst(one)) for text, number, one in rows]
        start = f"start one (not run from here): {'   '.join(self._start)}"
        return View(lines or [Line("nothing was measured from this machine yet")], head, [start], self._read_at)

    def detail(self, subject: str) -> Detail | None:
        """Return a measurement: findings, the map of pairs, and the runs."""
        measured = self._measured.get(subject)
        if measured is None:
            return None
        lines = [Line(click.unstyle(text)) for text in report.lines(measured, MAP_WIDTH)]
        return Detail(f"measurement {subject}", lines, shell_text(["nccl", "report", subject]))
