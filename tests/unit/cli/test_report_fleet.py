"""gpuctl report fleet: one page of what is wrong, who uses what, and the last NCCL measurement."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner

from gpuctl.cli.report import report
from gpuctl.core.errors import GpuctlError
from gpuctl.domain.findings import Finding, Verdict
from gpuctl.nccl import history
from gpuctl.nodes.model import Node
from gpuctl.workflows import fleet_state
from gpuctl.workflows.fleet_state import FleetState
from tests.rig.nccl.builders import ended


@pytest.fixture
def state(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> list[FleetState]:
    """The answer of the fleet, which a test may replace."""
    monkeypatch.setenv("GPUCTL_STATE_DIR", str(tmp_path / "state"))
    answers = [FleetState([], [], None, unreached=False)]
    monkeypatch.setattr(fleet_state, "ask", lambda *_: answers[-1])
    return answers


def written(tmp_path: Path) -> tuple[int, str]:
    result = CliRunner().invoke(report, ["fleet", "--html", str(tmp_path / "fleet.html")])
    return result.exit_code, (tmp_path / "fleet.html").read_text()


def test_what_is_wrong_stands_first_and_decides_the_exit_code(state: list[FleetState], tmp_path: Path) -> None:
    findings = [
        Finding("xid", "gpu-2", Verdict.FAIL, "Xid 79", hint="drain the node"),
        Finding("gpus", "gpu-1", Verdict.OK, "8 of 8 GPUs"),
    ]
    state.append(FleetState(findings, [Node("gpu-3", why="no answer", reached=False)], None, unreached=False))
    code, page = written(tmp_path)
    assert code == 1
    assert page.index("Xid 79") < page.index("<h2>Nodes</h2>")
    assert "8 of 8 GPUs" not in page
    assert "UNKNOWN: no answer" in page
    assert "No NCCL test of localhost was run from this machine" in page
    state.append(FleetState(findings, [], None, unreached=True))
    assert written(tmp_path)[0] == 3


def test_the_last_measurement_of_this_inventory_is_on_the_page(state: list[FleetState], tmp_path: Path) -> None:
    history.save_results("pairs", "localhost", [ended("gpu-1", "gpu-2", busbw=350)], [])
    history.save_results("pairs", "other", [ended("gpu-8", "gpu-9", busbw=350)], [])
    measured = fleet_state.last_measured("localhost")
    assert measured is not None
    state.append(FleetState([], [], measured, unreached=False))
    code, page = written(tmp_path)
    assert code == 0
    assert "gpu-1 + gpu-2" in page
    assert "gpu-8" not in page
    assert "Every check of every node is OK." not in page  # nothing was judged at all


@pytest.mark.usefixtures("state")
def test_a_folder_that_does_not_exist_is_an_error_before_any_node_is_asked(tmp_path: Path) -> None:
    result = CliRunner().invoke(report, ["fleet", "--html", str(tmp_path / "none" / "fleet.html")])
    assert isinstance(result.exception, GpuctlError)
    assert "no such folder" in str(result.exception)
