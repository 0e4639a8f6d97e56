"""The only pair across racks: its nodes are run within their racks, each with another node that is there and well."""

from __future__ import annotations

from dataclasses import replace

from gpuctl.nccl.isolate.model import Fleet, Round
from gpuctl.nccl.isolate.next_round import decide
from gpuctl.nccl.model import LaunchResult
from tests.rig.nccl.builders import ended


def following(racks: str, *runs: LaunchResult) -> list[tuple[str, ...]]:
    """The pairs of the next round for nodes a, b, … in these racks; none where there is a verdict."""
    nodes = "abcdefghij"[: len(racks)]
    step = decide(Fleet(tuple(nodes), dict(zip(nodes, racks, strict=True))), runs)
    return [launch.nodes for launch in step.launches] if isinstance(step, Round) else []


def test_a_node_without_another_in_its_rack_is_not_paired_with_itself() -> None:
    assert following("1112", ended("a", "b", busbw=400), ended("c", "d", busbw=300)) == [("c", "b")]
    pairs = following("1123", ended("a", "b", busbw=400), ended("c", "d", busbw=300))
    assert all(len(set(pair)) == len(pair) for pair in pairs)


def test_only_a_node_that_ended_well_is_taken() -> None:
    runs = ended("a", "b", busbw=None), ended("d", "e", busbw=400), ended("c", "f", busbw=300)
    assert following("111222", *runs) == [("f", "e")]


def test_a_node_that_stopped_answering_is_not_run_again() -> None:
    lost = replace(ended("c", "d", busbw=300), lost=("c",))
    assert not any("c" in pair for pair in following("1112", ended("a", "b", busbw=400), lost))


def test_a_node_of_a_slow_run_is_taken_only_where_there_is_no_other() -> None:
    fine = [ended(*two, busbw=400) for two in ("ab", "fg", "hi")]
    runs = *fine, ended("c", "d", busbw=200), ended("e", "j", busbw=300)
    assert ("e", "b") in following("1111122222", *runs)
