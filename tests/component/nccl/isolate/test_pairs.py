"""The speed of a run as one number, and the rule that pairs are similar."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import combinations
from math import exp

from gpuctl.domain.findings import Verdict
from gpuctl.nccl.bandwidth import speed
from gpuctl.nccl.isolate import pair_outliers
from gpuctl.nccl.model import LaunchResult, Outcome
from tests.rig.nccl.builders import GIB, ended, run
from tests.rig.nccl.simulated import seeded


def some(speeds: Iterable[float]) -> list[LaunchResult]:
    return [ended(f"node-{2 * n}", f"node-{2 * n + 1}", busbw=gbs) for n, gbs in enumerate(speeds)]


def test_the_speed_is_that_of_large_sizes_and_one_odd_row_does_not_move_it() -> None:
    assert speed(run({8: 0.1, GIB: 370.0, 2 * GIB: 371.0, 4 * GIB: 90.0, 8 * GIB: 370.5})) == 370.25


def test_what_is_not_complete_has_no_speed() -> None:
    assert speed(run({GIB: 370.0}, Outcome.HUNG)) is None
    assert speed(run({})) is None


def test_equal_pairs_with_a_tiny_spread_accuse_nobody() -> None:
    (finding,) = pair_outliers.similar(some([370.0] * 40 + [365.0]))
    assert finding.verdict is Verdict.OK


def test_one_slow_pair_among_many_is_an_outlier_with_its_numbers() -> None:
    (finding,) = pair_outliers.similar(some([370.0, 371.0, 369.0, 370.5] * 10 + [280.0]))
    assert (finding.subject, finding.verdict) == ("node-80 and node-81", Verdict.FAIL)
    assert finding.numbers["slower_percent"] == 24.3
    assert 3.0 <= float(finding.numbers["bound_percent"] or 0) < 10


def test_a_node_whose_pairs_are_mostly_slow_is_named_instead_of_them() -> None:
    found = [ended(*two, busbw=200.0 if "c" in two else 370.0) for two in combinations("abcdefgh", 2)]
    (finding,) = pair_outliers.similar(found)
    assert finding.subject == "c"
    assert finding.numbers["slow_pairs"] == finding.numbers["pairs"] == 7


def test_pairs_across_racks_are_compared_with_their_like() -> None:
    names = [f"node-{n}" for n in range(24)]
    racks = {name: f"rack-{n // 4}" for n, name in enumerate(names)}
    found = [ended(*two, busbw=370.0 if racks[two[0]] == racks[two[1]] else 250.0) for two in combinations(names, 2)]
    assert [finding.verdict for finding in pair_outliers.similar(found, racks)] == [Verdict.OK]


def test_two_pairs_are_too_few_to_say_which_is_odd() -> None:
    assert pair_outliers.similar(some([370.0, 200.0]))[0].verdict is Verdict.UNKNOWN


def test_heavy_tails_alone_hardly_ever_make_an_outlier() -> None:
    """With tails of the third power the rule's own chance of a false alarm is 5 % for all pairs together."""
    random = seeded(7)
    alarms = 0
    for _ in range(300):
        noise = [random.gauss(0, 1) / (random.gammavariate(1.5, 2) / 3) ** 0.5 for _ in range(60)]
        found = pair_outliers.similar(some(370.0 * exp(-0.01 * x) for x in noise))
        alarms += found[0].verdict is Verdict.FAIL
    assert alarms / 300 < 0.08
