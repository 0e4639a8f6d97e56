"""Time without work, over several readings; and which rows are shown in which order."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from gpuctl.core.errors import InvalidInput
from gpuctl.nodes import selection, summary
from gpuctl.nodes.model import Node, Quiet
from gpuctl.nodes.node_use import node, unasked
from gpuctl.nodes.readings import FORGOTTEN_S, Streak, update, with_quiet
from gpuctl.nodes.selection import Selection
from tests.rig.gpu_user_facts import NOW, facts, process


def after(*made: Mapping[str, Any], every_s: int = 600) -> Node:
    """Node after these readings."""
    streaks: dict[str, Streak] = {}
    for number, one in enumerate(made):
        streaks = update(streaks, [node("gpu-1", one)], NOW + number * every_s)
    return with_quiet(node("gpu-1", made[-1]), streaks)


def busy(percent: int | None) -> dict[str, Any]:
    made = facts(process(7), on={0: [7]})
    made["gpus"][0]["busy_percent"] = percent
    return made


def test_one_reading_tells_no_time() -> None:
    assert after(facts()).quiet[0] == Quiet(0, 1)


def test_a_gpu_without_work_in_all_readings_is_quiet_since_the_first() -> None:
    assert after(busy(90), facts(), busy(0), facts()).quiet[0] == Quiet(1200, 3)


@pytest.mark.parametrize("made", [busy(1), busy(None), facts(pid_namespace="nested")])
def test_work_and_what_is_unknown_end_the_time(made: dict[str, Any]) -> None:
    assert 0 not in after(facts(), facts(), made).quiet
    assert after(facts(), made, facts()).quiet[0] == Quiet(0, 1)


def test_a_node_that_was_not_read_keeps_its_time_until_it_is_forgotten() -> None:
    streaks = update({}, [node("gpu-1", facts())], NOW)
    assert update(streaks, [], NOW + 60) == streaks
    assert update(streaks, [], NOW + FORGOTTEN_S) == {}


def fleet() -> list[Node]:
    small = facts(product="g5.xlarge")
    small["gpus"] = small["gpus"][:1]
    return [
        node("b", facts(process(7), process(8, since=NOW - 9), on={0: [7], 1: [8]}, login="alice")),
        node("a", facts()),
        unasked("d", "no route"),
        node("c", {**small, "on_bus": 1, "attached": 1}),
    ]


def names(nodes: list[Node]) -> str:
    return "".join(one.name for one in nodes)


@pytest.mark.parametrize(
    ("sort", "order"),
    [("inventory", "badc"), ("name", "abcd"), ("idle", "abcd"), ("use", "bacd"), ("since", "bacd"), ("who", "bacd"),
     ("memory", "bacd"), ("util", "bacd")],
)  # fmt: skip
def test_the_order_of_nodes(sort: str, order: str) -> None:
    assert names(selection.narrow(fleet(), Selection(sort=sort))) == order


@pytest.mark.parametrize(
    ("wish", "chosen"), [("", "badc"), ("p5", "bad"), ("P5.48xlarge", "bad"), ("g5", "dc"), ("h100", "badc")]
)
def test_the_type_is_an_instance_type_its_family_or_a_model(wish: str, chosen: str) -> None:
    assert names(selection.of_type(fleet(), wish)) == chosen


def test_a_type_that_no_node_has_is_refused() -> None:
    known = [one for one in fleet() if one.type]
    with pytest.raises(InvalidInput, match="no node is of this type") as refused:
        selection.of_type(known, "p6")
    assert refused.value.hint == "there are: g5, p5"


def test_mine_leaves_my_processes_and_what_is_unknown() -> None:
    assert names(selection.narrow(fleet(), Selection(mine=True))) == "bd"


def test_idle_leaves_gpus_without_work_for_so_long() -> None:
    one = after(facts(), busy(0), facts(), every_s=1800)
    assert names(selection.narrow([one, unasked("d", "x")], Selection(idle_s=3600))) == "gpu-1d"
    assert names(selection.narrow([one], Selection(idle_s=3601))) == ""
    assert selection.young_streaks([one], 3601) == 8


def test_the_summary_has_a_line_for_each_type() -> None:
    assert [str(group) for group in summary.groups(fleet())] == [
        "2 \u00d7 p5: 2 of 16 GPUs in use; 14 idle",
        "1 \u00d7 g5: 0 of 1 GPU in use; 1 idle",
        "1 \u00d7 unknown type: 0 of 0 GPUs in use; 1 node UNKNOWN",
    ]
