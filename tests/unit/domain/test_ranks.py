"""A hang is diagnosed from a snapshot of its nodes."""

from __future__ import annotations

from gpuctl.domain import ranks as hang
from gpuctl.domain.ranks import Process


def ranks(first: int, count: int = 2, still: bool = False, state: str = "R") -> list[Process]:
    return [Process(100 + n, "all_reduce_perf", state, first + n, still) for n in range(count)]


def test_a_node_with_idle_ranks_blocks_those_that_poll() -> None:
    looks = {"a": ranks(0), "b": ranks(2, still=True, state="S")}
    assert hang.waiting(looks, 2) == {"a": "waiting", "b": "gone"}
    words = "no end within 60 s, after 64M: on b ranks 2, 3 are doing nothing; a waits for it"
    assert hang.story(looks, 2, 60, "64M") == words


def test_a_missing_rank_is_counted() -> None:
    looks = {"a": ranks(0), "b": ranks(2, count=1), "c": ranks(4)}
    assert hang.waiting(looks, 2) == {"a": "waiting", "b": "gone", "c": "waiting"}
    assert hang.story(looks, 2, 60, "").endswith(
        "before the first size: b has only 1 of its 2 ranks left; a, c wait for it"
    )


def test_a_stopped_and_a_blocked_rank_are_told_apart() -> None:
    looks = {"a": ranks(0), "b": [*ranks(2, 1, True, "T"), *ranks(3, 1, True, "D")]}
    assert "on b ranks 2, 3 are blocked in the kernel or stopped" in hang.story(looks, 2, 60, "8")


def test_a_node_without_an_answer_is_unknown() -> None:
    looks = {"a": ranks(0), "b": None}
    assert hang.waiting(looks, 2) == {"a": "waiting", "b": "unknown"}
    assert hang.story(looks, 2, 60, "8").endswith("b does not answer; a waits for it")


def test_no_node_is_blamed_if_none_or_all_wait() -> None:
    asleep = {"a": ranks(0, still=True), "b": ranks(2, still=True)}
    assert hang.waiting(asleep, 2) == {"a": "unknown", "b": "unknown"}
    assert hang.story(asleep, 2, 60, "8").endswith("which ranks wait is unknown")
    assert hang.story({"a": ranks(0), "b": ranks(2)}, 2, 60, "8").endswith("all wait")


def test_no_node_is_blamed_if_more_are_idle_than_poll() -> None:
    looks = {"a": ranks(0), "b": ranks(2, still=True), "c": ranks(4, still=True)}
    assert hang.waiting(looks, 2) == {"a": "unknown", "b": "unknown", "c": "unknown"}
    words = "2 of 3 nodes are idle, 1 of 3 nodes wait; which ranks wait is unknown"
    assert hang.story(looks, 2, 60, "8").endswith(words)
    silent = {"a": ranks(0), "b": None, "c": ranks(4, still=True), "d": []}
    assert set(hang.waiting(silent, 2).values()) == {"unknown"}
    assert hang.story(silent, 2, 60, "8").endswith(
        "b does not answer; 1 of 4 nodes are idle, 1 of 4 nodes have no rank left, 1 of 4 nodes wait; "
        "which ranks wait is unknown"
    )


def test_half_of_the_nodes_may_be_blamed_by_the_other_half() -> None:
    looks = {"a": ranks(0), "b": ranks(2), "c": ranks(4, still=True), "d": ranks(6, count=1)}
    assert hang.waiting(looks, 2) == {"a": "waiting", "b": "waiting", "c": "gone", "d": "gone"}


def test_ranks_that_never_started_blame_no_node() -> None:
    looks: hang.Looks = {"a": [], "b": []}
    assert hang.waiting(looks, 2) == {"a": "unknown", "b": "unknown"}
    assert hang.story(looks, 2, 60, "").endswith("no rank had started")
