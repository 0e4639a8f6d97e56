"""A site's own rows come only out of sound repeats, and a forced one stays marked."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from gpuctl.core.errors import InvalidInput
from gpuctl.domain.findings import Verdict
from gpuctl.nccl import calibrate
from gpuctl.nccl.baselines import load, site
from gpuctl.nccl.baselines.model import Baseline, Book
from gpuctl.nccl.context import RunContext
from gpuctl.nccl.judge.run import judge
from gpuctl.nccl.model import Outcome, Run, Versions
from tests.rig.nccl.judged import GIB, P5EN, SHIPPED, run, said

OWN = RunContext("our-h200", network="efa")
SIZES = {1024: 0.02, 1 * GIB: 331.0, 4 * GIB: 364.9, 8 * GIB: 367.2}


def repeats(*factors: float) -> list[Run]:
    versions = Versions(nccl="2.27.7", plugin="aws-ofi-nccl 1.16.3")
    return [replace(run({size: speed * f for size, speed in SIZES.items()}), versions=versions) for f in factors]


SOUND = repeats(1.0, 1.01, 0.99)


def refused(runs: list[Run], about: RunContext = OWN) -> str:
    found = calibrate.calibrate(runs, about, SHIPPED)
    assert not found.rows
    with pytest.raises(InvalidInput) as error:
        calibrate.accept(found, force=True)
    return error.value.wrong


def test_sound_repeats_give_a_row_a_size_with_its_middle_and_provenance() -> None:
    rows = calibrate.accept(calibrate.calibrate(SOUND, OWN, SHIPPED, "2026-11-21"), force=False)
    assert [row.from_bytes for row in rows] == [1 * GIB, 4 * GIB, 8 * GIB], "small sizes measure latency"
    row = rows[1]
    assert (row.expect, row.warn, row.fail) == (364.9, 346.65, 317.46)
    assert (row.systems, row.nodes, row.gpus_per_node, row.processes_per_node) == (("our-h200",), (4, 4), 8, 8)
    assert row.measured == {
        "date": "2026-11-21",
        "runs": "3",
        "nodes": "node-0, node-1, node-2, node-3",
        "nccl": "2.27.7",
        "plugin": "aws-ofi-nccl 1.16.3",
        "gpu": "NVIDIA H200",
    }


def test_kept_rows_judge_the_next_run_and_are_replaced_by_the_next_calibration(tmp_path: Path) -> None:
    path = tmp_path / "site" / "nccl_baselines.yml"
    site.save_rows(calibrate.calibrate(SOUND, OWN, SHIPPED).rows, path)
    site.save_rows(calibrate.calibrate(repeats(1.1, 1.11, 1.09), OWN, SHIPPED).rows, path)
    book = load.load(path)
    assert [row.expect for row in book.rows] == [364.1, 401.39, 403.92]
    (judged,) = [f for f in judge(repeats(1.1)[0], OWN, book) if f.check == "baseline"]
    assert judged.verdict is Verdict.OK
    assert path.stat().st_mode & 0o777 == 0o600
    assert sorted(file.name for file in path.parent.iterdir()) == [
        ".nccl_baselines.yml.lock",
        "nccl_baselines.yml",
        "nccl_baselines.yml.before",
    ]


def test_a_calibration_can_be_taken_back_and_put_in_again(tmp_path: Path) -> None:
    path = tmp_path / "nccl_baselines.yml"
    site.save_rows(calibrate.calibrate(SOUND, OWN, SHIPPED).rows, path)
    assert [row.expect for row in site.restore(path).rows] == [], "there were none before"
    assert load.load(path).rows == ()
    site.restore(path)
    mine = path.read_text()
    site.save_rows(calibrate.calibrate(repeats(1.1, 1.11, 1.09), OWN, SHIPPED).rows, path)
    site.restore(path)
    assert path.read_text() == mine


def test_nothing_is_restored_where_nothing_was_kept(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match="nothing was kept from before"):
        site.restore(tmp_path / "nccl_baselines.yml")


def test_runs_with_several_forced_algorithms_make_no_row() -> None:
    forced = [replace(run, forced_algorithms=("Ring", "Tree")) for run in SOUND]
    assert "NCCL_ALGO was Ring,Tree" in refused(forced)
    ring = [replace(run, forced_algorithms=("Ring",)) for run in SOUND]
    assert {row.algorithms for row in calibrate.calibrate(ring, OWN, SHIPPED).rows} == {("Ring",)}


def test_other_rows_and_systems_of_the_site_stay(tmp_path: Path) -> None:
    path = tmp_path / "nccl_baselines.yml"
    before = load.SHIPPED.read_text()
    path.write_text(before)
    site.save_rows(calibrate.calibrate(SOUND, OWN, SHIPPED).rows, path)
    again = load.load(path)
    assert again.systems == SHIPPED.systems
    assert len(again.rows) == len(SHIPPED.rows) + 3


def test_a_file_that_cannot_be_read_is_left_as_it_is(tmp_path: Path) -> None:
    path = tmp_path / "nccl_baselines.yml"
    path.write_text("baselines: [oops")
    with pytest.raises(InvalidInput, match="is not YAML"):
        site.save_rows(calibrate.calibrate(SOUND, OWN, SHIPPED).rows, path)
    assert path.read_text() == "baselines: [oops"


def test_runs_of_several_types_are_refused() -> None:
    runs = [replace(one, rows=(*one.rows, *(replace(row, type="half") for row in one.rows))) for one in SOUND]
    assert "several types" in refused(runs)


def test_too_few_repeats_are_refused() -> None:
    assert "2 of at least 3 runs" in refused(SOUND[:2])


def test_one_repeat_that_is_off_is_named() -> None:
    wrong = refused(repeats(1.0, 0.9, 1.0, 1.01))
    assert "run 2 is off" in wrong
    assert "at 4 GiB" in wrong


def test_noise_at_small_sizes_is_no_outlier() -> None:
    noisy = [run({**SIZES, 1024: speed}) for speed in (0.2, 0.5, 0.1)]
    assert calibrate.calibrate(noisy, OWN, SHIPPED).rows


def test_a_fall_back_is_refused_with_its_node() -> None:
    fell = said(SOUND[1], "node-2", network="Socket", provider=None, nics=())
    assert "run 2: socket fallback on node-2" in refused([SOUND[0], fell, SOUND[2]])


def test_wrong_values_unchecked_values_and_unfinished_runs_are_refused() -> None:
    for bad, word in (
        (replace(SOUND[0], out_of_bounds=3), "wrong values"),
        (run(SIZES, wrong=None), "not checked"),
        (replace(SOUND[0], outcome=Outcome.KILLED, cause="out of memory"), "out of memory"),
        (replace(SOUND[0], transports=()), "the log does not name the network"),
        (run({**SIZES, 8 * GIB: 200.0}), "busbw falls"),
    ):
        assert word in refused([SOUND[0], SOUND[1], bad])


def test_one_run_given_three_times_is_no_repeat() -> None:
    assert "are identical" in refused([SOUND[0]] * 3)


def test_runs_of_different_kinds_are_no_repeats() -> None:
    assert "numbers of nodes" in refused([*SOUND[:2], run(SIZES, nodes=5)])
    assert "message sizes" in refused([*SOUND[:2], run({8 * GIB: 367.0})])
    assert "versions" in refused([*SOUND[:2], replace(SOUND[2], versions=Versions(nccl="2.28.3"))])


def test_runs_without_bandwidth_are_refused() -> None:
    # One GPU alone has nothing to send: busbw is 0.00, whatever the time.
    assert "above 0" in refused([run({8 * GIB: speed}, nodes=1) for speed in (0.001, 0.002, 0.003)])


def test_a_machine_type_is_needed() -> None:
    assert "--instance" in refused(SOUND, RunContext(network="efa"))


def test_a_row_below_the_published_limit_needs_force_and_stays_marked(tmp_path: Path) -> None:
    slow = repeats(0.8, 0.81, 0.79)
    found = calibrate.calibrate(slow, P5EN, SHIPPED)
    with pytest.raises(InvalidInput, match="below the published limit 320") as error:
        calibrate.accept(found, force=False)
    assert "--force" in error.value.hint
    path = tmp_path / "nccl_baselines.yml"
    site.save_rows(calibrate.accept(found, force=True), path)
    kept = {row.from_bytes: row.below_published for row in load.load(path).rows}
    assert kept == {1 * GIB: None, 4 * GIB: 320, 8 * GIB: 320}


def test_a_site_cannot_lower_the_limit_by_calibrating_twice() -> None:
    forced = calibrate.accept(calibrate.calibrate(repeats(0.8, 0.81, 0.79), P5EN, SHIPPED), force=True)
    own = replace(SHIPPED, rows=(*(replace(row, site=True) for row in forced), *SHIPPED.rows))
    assert calibrate.calibrate(repeats(0.8, 0.81, 0.79), P5EN, own).below


def test_rows_are_plain_data() -> None:
    rows = calibrate.calibrate(SOUND, OWN, SHIPPED).rows
    assert json.loads(json.dumps([load.plain(row) for row in rows]))[0]["kind"] == "measured"


def with_own(rows: tuple[Baseline, ...]) -> Book:
    return replace(SHIPPED, rows=(*(replace(row, site=True) for row in rows), *SHIPPED.rows))


def test_a_row_below_ones_own_limit_in_force_needs_force_and_says_so_ever_after() -> None:
    own = with_own(calibrate.calibrate(SOUND, OWN, SHIPPED).rows)
    halved = calibrate.calibrate(repeats(0.5, 0.505, 0.495), OWN, own)
    with pytest.raises(InvalidInput, match=r"182.45 GB/s at 4 GiB is below your own limit 317.46") as error:
        calibrate.accept(halved, force=False)
    assert "--force" in error.value.hint
    kept = calibrate.accept(halved, force=True)
    assert "Forced below the limit 317.46 of your own row before it." in kept[1].why
    assert kept[1].below_published is None, "nobody published a limit for these machines"


def test_ones_own_row_may_be_measured_again_within_its_limit_and_above_it() -> None:
    own = with_own(calibrate.calibrate(SOUND, OWN, SHIPPED).rows)
    for factor in (0.9, 1.3):
        runs = repeats(factor, factor * 0.99, factor * 1.01)
        assert calibrate.accept(calibrate.calibrate(runs, OWN, own), force=False)
