"""A test round after round, and what it comes to."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import combinations

import pytest

from gpuctl.domain.findings import Finding, Verdict
from gpuctl.nccl import flow, plan
from gpuctl.nccl.context import RunContext
from gpuctl.nccl.model import Launch, LaunchResult, Outcome, Row, Run, Sweep, Timing
from gpuctl.nccl.runner import ProgressListener

ROW = Row(1 << 30, 1 << 28, "float", "sum", -1, Timing(5000, 200, 375, 0), Timing(5000, 200, 375, 0))
NODES = ("a", "b", "c", "d")


def run(outcome: Outcome = Outcome.COMPLETE, rows: tuple[Row, ...] = (ROW,)) -> Run:
    return Run(outcome, None, "all_reduce", rows, 375.0, 0)


class Fleet:
    """A runner in memory: what it was asked to run, and how everything ends."""

    def __init__(self, how: Run) -> None:
        self.how, self.asked = how, list[Sequence[Launch]]()

    def run(
        self, launches: Sequence[Launch], listener: ProgressListener, broken_off: Callable[[], bool]
    ) -> list[LaunchResult]:
        self.asked.append(launches)
        return [LaunchResult(launch, self.how, 1.0) for launch in launches]


def quiet(_: Launch, __: str) -> None:
    """Nobody listens."""


def test_rounds_are_run_one_after_the_other() -> None:
    fleet = Fleet(run())
    ended = flow.run(fleet, plan.rounds("pairs", NODES, Sweep()), quiet, lambda: False)
    assert [len(launches) for launches in fleet.asked] == [2, 2, 2]
    assert len(ended) == 6


def test_breaking_off_begins_no_further_round() -> None:
    fleet = Fleet(run())
    ended = flow.run(fleet, plan.rounds("pairs", NODES, Sweep()), quiet, lambda: bool(fleet.asked))
    assert (len(fleet.asked), len(ended)) == (1, 2)


def test_the_exit_code_follows_from_the_worst() -> None:
    launch = Launch(NODES, Sweep())
    good, hung = LaunchResult(launch, run(), 1.0), LaunchResult(launch, run(Outcome.HUNG), 1.0)
    not_begun = LaunchResult(launch, run(Outcome.FAILED, rows=()), 1.0)
    assert flow.exit_code([good]) == 0
    assert flow.exit_code([good], [Finding("drop", "", Verdict.WARN, "")]) == 0
    assert flow.exit_code([good], [Finding("transport", "", Verdict.UNKNOWN, "")]) == 1
    assert flow.exit_code([good, hung]) == 1
    assert flow.exit_code([hung, not_begun]) == 3


def test_a_warning_is_a_problem_only_where_that_is_requested() -> None:
    warned = [Finding("baseline", "", Verdict.WARN, "below the warn limit")]
    assert (flow.exit_code([], warned), flow.exit_code([], warned, strict=True)) == (0, 1)


def test_findings_name_the_run_they_are_about() -> None:
    wrong = Row(1 << 30, 1 << 28, "float", "sum", -1, Timing(5000, 200, 375, 96), Timing(5000, 200, 375, 0))
    spoilt = run(Outcome.CORRUPT, (wrong,))
    two = [LaunchResult(Launch(pair, Sweep()), spoilt, 1.0) for pair in (("a", "b"), ("c", "d"))]
    subjects = {one.subject for one in flow.findings("quick", two, RunContext()) if one.check == "corruption"}
    assert subjects == {"a, b: 1 GiB", "c, d: 1 GiB"}
    many = LaunchResult(Launch(tuple("abcdefgh"), Sweep()), run(), 1.0)
    assert "all 8 nodes" in {one.subject for one in flow.findings("quick", [many], RunContext())}


def test_pairs_are_compared_with_each_other() -> None:
    ended = flow.run(Fleet(run()), plan.rounds("pairs", NODES, Sweep()), quiet, lambda: False)
    assert [one.verdict for one in flow.findings("pairs", ended, RunContext()) if one.check == "pairs"] == [Verdict.OK]
    split = flow.run(Fleet(run()), plan.rounds("pairs", NODES, Sweep(), split=True), quiet, lambda: False)
    assert [one for one in flow.findings("pairs", split, RunContext()) if one.check == "pairs"] == []


def at(gbs: float) -> Run:
    half = Timing(5000, gbs / 1.5, gbs, 0)
    return run(rows=(Row(1 << 30, 1 << 28, "float", "sum", -1, half, half),))


def pairs_of(nodes: Sequence[str], gbs: Callable[[str, str], float]) -> list[LaunchResult]:
    return [LaunchResult(Launch(pair, Sweep()), at(gbs(*pair)), 1.0) for pair in combinations(nodes, 2)]


def by_rack(a: str, b: str) -> float:
    """Nodes are called after their rack and a number: r1."""
    return 400.0 if a[0] == b[0] else 300.0


def compared(ended: Sequence[LaunchResult], racks: Mapping[str, str] | None = None) -> list[tuple[Verdict, str]]:
    found = flow.findings("pairs", ended, RunContext(), racks=racks)
    return [(one.verdict, one.subject) for one in found if one.check == "pairs"]


@pytest.mark.parametrize("nodes", ["q1 q2 r1 r2", "q1 q2 q3 r1 r2 r3", "q1 q2 q3 q4 r1 r2 r3 r4", "q1 q2 r1 r2 s1"])
def test_two_speeds_accuse_nobody_where_racks_are_not_known(nodes: str) -> None:
    assert compared(pairs_of(nodes.split(), by_rack)) == [(Verdict.UNKNOWN, "")]


def test_pairs_across_racks_are_compared_with_such() -> None:
    nodes = ["q1", "q2", "q3", "r1", "r2", "r3"]
    racks = {node: node[0] for node in nodes}
    assert compared(pairs_of(nodes, by_rack), racks) == [(Verdict.OK, "")]

    def one_slow(a: str, b: str) -> float:
        return 200.0 if (a, b) == ("q1", "r1") else by_rack(a, b)

    assert compared(pairs_of(nodes, one_slow), racks) == [(Verdict.FAIL, "q1 and r1")]


def test_a_bad_node_and_a_bad_path_do_not_look_like_racks() -> None:
    nodes = "abcdef"
    assert compared(pairs_of(nodes, lambda a, b: 300 if "c" in (a, b) else 400)) == [(Verdict.FAIL, "c")]
    two_bad = compared(pairs_of(nodes, lambda a, b: 300 if {"c", "e"} & {a, b} else 400))
    assert two_bad == [(Verdict.FAIL, "c"), (Verdict.FAIL, "e")]
    assert compared(pairs_of(nodes, lambda a, b: 300 if (a, b) == ("b", "d") else 400)) == [(Verdict.FAIL, "b and d")]


@pytest.mark.parametrize(("count", "bad"), [(3, 1), (4, 2), (6, 2), (6, 3), (8, 3), (8, 4), (16, 8)])
@pytest.mark.parametrize("slow", [0.8, 0.45])
def test_up_to_half_of_all_nodes_are_named_where_every_pair_shows_it(count: int, bad: int, slow: float) -> None:
    nodes = "abcdefghijklmnop"[:count]
    found = compared(pairs_of(nodes, lambda *two: 400 * (slow if set(nodes[:bad]) & set(two) else 1)))
    assert found == [(Verdict.FAIL, node) for node in nodes[:bad]]


@pytest.mark.parametrize(("count", "bad"), [(5, 3), (7, 4), (8, 5), (8, 6), (16, 10)])
def test_a_fast_minority_is_told_with_both_speeds_and_accuses_nobody(count: int, bad: int) -> None:
    nodes = "abcdefghijklmnop"[:count]
    ended = pairs_of(nodes, lambda *two: 180.0 if set(nodes[:bad]) & set(two) else 400.0)
    (finding,) = [one for one in flow.findings("pairs", ended, RunContext()) if one.check == "pairs"]
    assert (finding.verdict, finding.subject) == (Verdict.UNKNOWN, "")
    assert f"400 GB/s among {', '.join(nodes[bad:])}" in finding.message
    assert "180 with a, b" in finding.message


def test_fast_pairs_in_no_pattern_are_not_passed_over() -> None:
    fast = [{"a", "b"}, {"c", "d"}, {"b", "c"}]
    found = compared(pairs_of("abcdefgh", lambda *two: 400.0 if set(two) in fast else 180.0))
    assert found == [(Verdict.UNKNOWN, "")]


def test_the_order_of_nodes_is_kept() -> None:
    for kind in ("quick", "full"):
        rounds = flow.planned(kind, ["d", "a", "c", "b"], Sweep())
        assert {launch.nodes for round_ in rounds for launch in round_} == {("d", "a", "c", "b")}
    (single,) = flow.planned("single", ["d", "a", "c", "b"], Sweep())
    assert [launch.nodes for launch in single] == [("d",), ("a",), ("c",), ("b",)]
    ((first, *_), *_) = flow.planned("pairs", ["d", "a", "c", "b"], Sweep())
    assert first.nodes == ("d", "b")


def test_a_node_on_which_something_may_still_run_is_a_finding_and_no_success() -> None:
    ended = LaunchResult(Launch(NODES, Sweep()), run(), 1.0, lost=("b",))
    (left,) = [one for one in flow.findings("quick", [ended], RunContext()) if one.check == "left-over"]
    assert (left.subject, left.verdict) == ("b", Verdict.UNKNOWN)
    assert flow.exit_code([ended]) == 1


def test_what_stays_in_the_cluster_is_a_finding_and_no_success() -> None:
    ended = [LaunchResult(Launch(NODES, Sweep()), run(), 1.0, left="not removed: no answer")] * 3
    (left,) = [one for one in flow.findings("quick", ended, RunContext()) if one.check == "left-over"]
    assert (left.subject, left.verdict) == ("a, b, c, d", Verdict.UNKNOWN)
    assert left.message == "not removed: no answer; the same for 2 more launches"
    assert flow.exit_code(ended) == 1


def test_with_several_collectives_a_finding_says_which_it_is_about() -> None:
    ended = [
        LaunchResult(Launch(NODES, Sweep(collective=name)), run(Outcome.HUNG), 1.0)
        for name in ("all_reduce", "broadcast")
    ]
    found = flow.findings("full", ended, RunContext())
    assert {one.subject for one in found if one.check == "outcome"} == {
        "all_reduce, a, b, c, d",
        "broadcast, a, b, c, d",
    }
