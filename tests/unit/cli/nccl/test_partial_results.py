"""What ended before a round that cannot be run is kept and shown, and the command ends as its error says."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import click
import pytest
from click.testing import CliRunner, Result

from gpuctl.cli.nccl.isolate import command as isolate
from gpuctl.cli.nccl.report import report
from gpuctl.cli.nccl.run import command as run
from gpuctl.core.errors import GpuctlError
from gpuctl.nccl import history
from gpuctl.nccl.isolate import record
from gpuctl.nccl.model import Launch, LaunchResult
from gpuctl.nccl.runner import ProgressListener
from gpuctl.workflows import nccl_targets
from gpuctl.workflows.nccl_targets.model import NodeAccess
from tests.rig.nccl.simulated import CALM, net, seeded, slow
from tests.rig.nccl_fleet.runner import SimulatedFleet

NODES = net(16).nodes


@dataclass
class GoesAway(SimulatedFleet):
    """A fleet that no round can be run on after so many."""

    rounds_left: int = 0

    def run(
        self, launches: Sequence[Launch], listener: ProgressListener, broken_off: Callable[[], bool]
    ) -> list[LaunchResult]:
        if len(self.rounds) == self.rounds_left:
            raise GpuctlError("remove what was left over", "the API server gives no answer")
        return super().run(launches, listener, broken_off)


@pytest.fixture
def away(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Result]:
    """`away(2, run, "--kind", "pairs")`: the command on nodes that can be reached for two rounds."""
    for name in ("CACHE", "STATE", "CONFIG"):
        monkeypatch.setenv(f"GPUCTL_{name}_DIR", str(tmp_path / name))

    def asked(rounds: int, command: click.Command, *words: str) -> Result:
        fleet = GoesAway(net(16), CALM, seeded(1), [slow(3, 0.3)], rows=2, rounds_left=rounds)
        monkeypatch.setattr(nccl_targets, "node_access", lambda *_: NodeAccess(fleet, list(NODES), "prod", {}))
        result = CliRunner().invoke(command, words)
        assert isinstance(result.exception, GpuctlError)
        assert "the API server gives no answer" in str(result.exception)
        return result

    return asked


def test_the_rounds_of_a_run_are_shown_and_in_the_history(away: Callable[..., Result]) -> None:
    result = away(8, run, "--kind", "pairs")
    assert result.stdout.count("complete") == 8 * 8
    (kept,) = history.latest(2)
    assert (kept.kind, len(kept.results)) == ("pairs", 8 * 8)
    assert kept.findings


def test_the_rounds_of_a_run_are_told_as_data_too(away: Callable[..., Result]) -> None:
    told = json.loads(away(3, run, "--kind", "pairs", "--output", "json").stdout)
    assert len(told["launches"]) == 3 * 8


def test_the_rounds_of_an_isolation_are_in_the_history(away: Callable[..., Result]) -> None:
    result = away(1, isolate, "--rails", "none")
    assert "it ended after 8 runs; with --record FILE it could continue" in result.stderr
    (kept,) = history.latest(2)
    assert (kept.kind, len(kept.results)) == ("isolate", 8)
    assert "node-3" in CliRunner().invoke(report, [str(kept.id)]).stdout


def test_the_rounds_of_an_isolation_stay_in_its_record(away: Callable[..., Result], tmp_path: Path) -> None:
    result = away(1, isolate, "--rails", "none", "--record", str(tmp_path / "16.json"))
    assert "continue with --record" in result.stderr
    assert len(record.read(tmp_path / "16.json").history) == 8


def test_nothing_is_kept_or_shown_where_not_even_one_round_ended(away: Callable[..., Result]) -> None:
    for command, words in ((run, ()), (isolate, ("--rails", "none"))):
        assert away(0, command, *words).stdout == ""
    assert history.latest(1) == []
