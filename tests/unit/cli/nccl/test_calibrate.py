"""gpuctl nccl calibrate with a runner of this file instead of nodes."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import click
import pytest
from click.testing import CliRunner, Result

from gpuctl.cli.nccl.baselines import baselines
from gpuctl.cli.nccl.calibrate import calibrate
from gpuctl.core.errors import GpuctlError, InvalidInput
from gpuctl.nccl import history
from gpuctl.nccl.baselines import load
from gpuctl.nccl.model import Launch, LaunchResult, Outcome, Run
from gpuctl.nccl.runner import ProgressListener
from gpuctl.workflows import nccl_targets
from gpuctl.workflows.nccl_targets.model import NodeAccess
from tests.rig.nccl.judged import GIB, run, said

NODES = ["node-0", "node-1", "node-2", "node-3"]
SIZES = {1 * GIB: 331.0, 4 * GIB: 364.9, 8 * GIB: 367.2}


@dataclass
class Played:
    """Gives one run after the other, whatever is launched."""

    runs: list[Run]
    lost: tuple[str, ...] = ()
    left: str = ""
    launched: list[Launch] = field(default_factory=list)

    def run(
        self, launches: Sequence[Launch], listener: ProgressListener, broken_off: Callable[[], bool]
    ) -> list[LaunchResult]:
        (launch,) = launches
        self.launched.append(launch)
        listener(launch, "started")
        return [LaunchResult(launch, self.runs[len(self.launched) - 1], 30.0, self.lost, left=self.left)]


def speeds(*factors: float) -> list[Run]:
    return [run({size: speed * factor for size, speed in SIZES.items()}) for factor in factors]


SOUND = speeds(1.0, 1.01, 0.99, 1.002, 0.998)


@pytest.fixture(autouse=True)
def own_place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("GPUCTL_CONFIG_DIR", str(tmp_path / "config"))
    monkeypatch.setenv("GPUCTL_STATE_DIR", str(tmp_path / "state"))
    return tmp_path / "config" / "nccl_baselines.yml"


@pytest.fixture
def measured(monkeypatch: pytest.MonkeyPatch) -> Callable[..., Result]:
    """`measured(runner, "--force")`: the command on four nodes of p5en, all of them this runner's."""

    def asked(runner: Played, *words: str) -> Result:
        access = NodeAccess(runner, NODES, "prod", {})
        monkeypatch.setattr(nccl_targets, "node_access", lambda *_: access)
        return CliRunner().invoke(calibrate, ["--instance", "p5en.48xlarge", *words])

    return asked


def kept(path: Path) -> dict[int, float | None]:
    return {row.from_bytes: row.expect for row in load.load(path).rows}


def test_it_is_measured_five_times_and_the_middle_is_kept(measured: Callable[..., Result], own_place: Path) -> None:
    runner = Played(SOUND)
    result = measured(runner)
    assert result.exit_code == 0, result.output
    assert len(runner.launched) == 5
    assert {launch.nodes for launch in runner.launched} == {tuple(NODES)}
    assert kept(own_place) == {1 * GIB: 331.0, 4 * GIB: 364.9, 8 * GIB: 367.2}
    assert "361.25 to 368.55" in result.output, "what the runs measured is shown"
    assert "measured, fail below 320" in result.output, "and what counted until now"


def test_it_is_shown_and_not_kept_with_dry_run(measured: Callable[..., Result], own_place: Path) -> None:
    for word in ("--check", "--dry-run"):
        result = measured(Played(SOUND), word)
        assert (result.exit_code, own_place.exists()) == (0, False)
        assert "would save 3 rows" in result.output


def test_one_repeat_that_is_off_is_named_and_nothing_is_kept(measured: Callable[..., Result], own_place: Path) -> None:
    result = measured(Played(speeds(1.0, 1.01, 0.8, 1.0, 1.0)))
    assert (result.exit_code, own_place.exists()) == (1, False)
    assert "run 3 is off" in result.output


@pytest.mark.parametrize(
    ("bad", "why"),
    [
        (said(SOUND[1], "node-2", network="Socket", provider=None, nics=()), "socket fallback on node-2"),
        (replace(SOUND[1], outcome=Outcome.CORRUPT, cause="wrong values at 8 bytes"), "wrong values"),
        (replace(SOUND[1], outcome=Outcome.HUNG, cause="it stood still"), "it stood still"),
        (replace(SOUND[1], sizes_announced=31), "only 3 of the 31 sizes"),
        (replace(SOUND[1], transports=()), "the log does not name the network"),
    ],
)
def test_a_repeat_that_is_not_sound_ends_it_at_once(
    measured: Callable[..., Result], own_place: Path, bad: Run, why: str
) -> None:
    runner = Played([SOUND[0], bad, *SOUND])
    result = measured(runner)
    assert (result.exit_code, own_place.exists(), len(runner.launched)) == (1, False, 2)
    assert "repeat 2: " in result.output
    assert why in result.output


@dataclass
class GoesAway(Played):
    """Cannot be reached any more after the last of its runs."""

    def run(
        self, launches: Sequence[Launch], listener: ProgressListener, broken_off: Callable[[], bool]
    ) -> list[LaunchResult]:
        if len(self.launched) == len(self.runs):
            raise GpuctlError("remove what was left over", "the API server gives no answer")
        return super().run(launches, listener, broken_off)


def test_repeats_before_one_that_cannot_be_made_are_shown_and_in_the_history(
    measured: Callable[..., Result], own_place: Path
) -> None:
    result = measured(GoesAway(SOUND[:2]))
    assert (isinstance(result.exception, GpuctlError), own_place.exists()) == (True, False)
    assert "nothing is saved:\n  the measurement was not completed" in result.stdout
    assert [len(one.results) for one in history.latest(2)] == [2]
    told = json.loads(measured(GoesAway(SOUND[:2]), "--output", "json").stdout)
    assert (told["kept"], [one["repeat"] for one in told["repeats"]]) == (False, [1, 2])


def test_a_node_that_may_still_run_something_ends_it(measured: Callable[..., Result], own_place: Path) -> None:
    result = measured(Played(SOUND, lost=("node-3",)))
    assert (result.exit_code, own_place.exists()) == (1, False)
    assert "cannot confirm that nothing is left on node-3" in result.output


def test_what_stays_in_the_cluster_is_no_reason_against_the_rows_and_no_success(
    measured: Callable[..., Result], own_place: Path
) -> None:
    result = measured(Played(SOUND, left="not removed: no answer"))
    assert (result.exit_code, own_place.exists()) == (1, True)
    assert "not removed: no answer; the same for 4 more launches" in result.output


def test_below_the_published_limit_it_has_to_be_forced_and_stays_marked(
    measured: Callable[..., Result], own_place: Path
) -> None:
    slow = speeds(0.8, 0.81, 0.79, 0.805, 0.795)
    result = measured(Played(slow))
    assert (result.exit_code, own_place.exists()) == (1, False)
    assert "291.92 GB/s at 4 GiB is below the published limit 320" in result.output
    assert "--force" in result.output
    result = measured(Played(slow), "--force")
    assert (result.exit_code, "FORCED" in result.output) == (0, True)
    assert "FORCED below the published limit 320" in CliRunner().invoke(baselines, ["list"]).output


def test_a_slow_day_does_not_halve_ones_own_baseline(measured: Callable[..., Result], own_place: Path) -> None:
    ours, slow = ("--instance", "ours", "--network", "efa"), speeds(0.5, 0.505, 0.495, 0.502, 0.498)
    assert measured(Played(SOUND), *ours).exit_code == 0
    before = kept(own_place)
    result = measured(Played(slow), *ours)
    assert (result.exit_code, kept(own_place)) == (1, before)
    assert "182.45 GB/s at 4 GiB is below your own limit 317.46" in result.output
    forced = measured(Played(slow), *ours, "--force")
    assert (forced.exit_code, "FORCED" in forced.output) == (0, True)
    assert kept(own_place)[4 * GIB] == 182.45


def test_a_new_name_may_be_calibrated_and_is_told_as_new(measured: Callable[..., Result], own_place: Path) -> None:
    result = measured(Played(SOUND), "--instance", "p5en.48xlagre", "--network", "efa")
    assert result.exit_code == 0
    assert "p5en.48xlagre is a new name (did you mean p5en.48xlarge?)" in result.output
    assert "new name" not in measured(Played(SOUND)).output


def test_what_is_taken_back_is_told_as_rows_removed_and_put_back(measured: Callable[..., Result]) -> None:
    measured(Played(SOUND))
    assert "3 rows removed, 0 rows restored" in CliRunner().invoke(baselines, ["restore"]).output
    assert "0 rows removed, 3 rows restored" in CliRunner().invoke(baselines, ["restore"]).output


def test_a_spoiled_file_can_be_taken_back(measured: Callable[..., Result], own_place: Path) -> None:
    measured(Played(SOUND))
    measured(Played(speeds(1.05, 1.06, 1.04, 1.052, 1.048)))
    own_place.write_text("baselines: 7\n")
    result = CliRunner().invoke(baselines, ["restore"])
    assert "the unreadable file is removed, 3 rows restored" in result.output
    assert kept(own_place)[4 * GIB] == 364.9


def test_an_algorithm_and_a_collective_are_those_of_the_test(measured: Callable[..., Result], own_place: Path) -> None:
    runner = Played([replace(one, forced_algorithms=("Ring",)) for one in SOUND])
    assert measured(runner, "--algo", "ring").exit_code == 0
    assert runner.launched[0].sweep.env["NCCL_ALGO"] == "Ring"
    assert {row.algorithms for row in load.load(own_place).rows} == {("Ring",)}
    runner = Played(SOUND)
    measured(runner, "--collective", "alltoall", "--repeats", "3")
    assert [launch.sweep.collective for launch in runner.launched] == ["alltoall"] * 3


def test_it_is_told_as_json_and_kept_in_the_history(measured: Callable[..., Result], tmp_path: Path) -> None:
    told = json.loads(measured(Played(SOUND), "-o", "json").stdout)
    assert (told["kept"], told["refused"], len(told["rows"])) == (True, [], 3)
    assert told["repeats"][0]["max_busbw_gbs"] == 367.2
    refused = json.loads(measured(Played(speeds(1.0, 0.5, 1.01, 0.99, 0.995)), "-o", "json").stdout)
    assert (refused["kept"], refused["rows"]) == (False, [])
    assert list((tmp_path / "state").glob("*"))


@pytest.mark.parametrize(
    ("words", "wrong"),
    [
        (("--algo", "Rnig"), "NCCL has no such algorithm"),
        (("--env", "NCCL_ALGO=Ring,Tree"), "NCCL has no such algorithm"),
        (("-c", "0"), "unchecked values"),
        (("-d", "all"), "one type and one operation"),
        (("--op", "all"), "one type and one operation"),
        (("some.log", "--inventory", "prod", "-e", "1G"), "--end, --inventory cannot be combined with logs"),
        (("--algo", "default", "--env", "NCCL_ALGO=Ring"), "both --algo and --env"),
        (("-b", "2G", "-e", "1G"), "swap -b and -e"),
        (("some.log", "--nodes", "a,b"), "it is their number of nodes"),
    ],
)
def test_what_cannot_be_used_is_refused_before_anything_runs(
    measured: Callable[..., Result], words: tuple[str, ...], wrong: str
) -> None:
    runner = Played(SOUND)
    result = measured(runner, *words)
    assert isinstance(result.exception, InvalidInput)
    assert wrong in f"{result.exception} {result.exception.hint}"
    assert runner.launched == []


def test_a_machine_type_is_needed_before_anything_runs() -> None:
    result = CliRunner().invoke(calibrate, [])
    assert isinstance(result.exception, InvalidInput)
    assert "--instance" in str(result.exception)


def test_no_option_is_there_twice() -> None:
    flags = [name for param in calibrate.params if isinstance(param, click.Option) for name in param.opts]
    assert sorted(flags) == sorted(set(flags))
