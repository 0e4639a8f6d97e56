"""Why one waits, the environment of a gang, and repairs."""

from __future__ import annotations

from dataclasses import replace

from gpuctl.reservations.rules import forecast, gang, reconcile, reports
from gpuctl.reservations.rules.model import HOUR, Disk, NodeState, State
from gpuctl.reservations.rules.reconcile import Observation, Session
from gpuctl.reservations.rules.reports import OrderKind
from tests.rig.reservations.books import BOB, Desk, book


def test_everybody_learns_the_position_the_reason_and_a_range() -> None:
    desk = Desk(book(gpus_per_person=16))
    desk.start(8, hours=2)
    large = desk.reserve(16, hours=3, caller=BOB)
    desk.plan()
    late, over = desk.reserve(8, hours=20), desk.reserve(16, hours=1)
    desk.plan()
    waits = forecast.forecast(desk.book, desk.now)
    assert list(waits) == [large, late, over]
    assert waits[large].reason == "first in line; 2 whole nodes of type h100 must become free"
    assert waits[large].latest_at == waits[large].promised_at == desk[large].promised_at
    assert waits[late].reason == f"8 GPUs are free, but it would delay the promised start of {large} of bob"
    assert waits[late].earliest_at == desk.now
    assert (waits[late].latest_at or 0) > (desk[large].promised_at or 0) + 3 * HOUR
    assert waits[over].reason == "ada has 8 of 16 GPUs in use or promised"
    assert waits[over].latest_at is None


def test_a_start_is_unknown_while_too_few_nodes_are_usable() -> None:
    desk = Desk(book())
    id_ = desk.reserve(16)
    desk.decide(reports.node_lost, "gpu-2", "no answer")
    wait = forecast.forecast(desk.book, desk.now)[id_]
    assert (wait.earliest_at, wait.latest_at) == (None, None)
    assert "gpu-2 is lost" in wait.reason


def test_each_node_of_a_gang_gets_its_rank_and_whole_nodes_their_adapters() -> None:
    desk = Desk(book())
    desk.book = replace(desk.book, nodes={name: replace(node, efa=32) for name, node in desk.book.nodes.items()})
    id_ = desk.start(16)
    variables = gang.environment(desk[id_], desk.book.nodes, "gpu-2")
    assert variables["CUDA_VISIBLE_DEVICES"] == "0,1,2,3,4,5,6,7"
    assert (variables["MASTER_ADDR"], variables["NNODES"], variables["NODE_RANK"]) == ("gpu-1", "2", "1")
    assert variables["GPUCTL_EFA_ADAPTERS"] == "32"


def test_a_part_of_a_node_gets_no_adapters_and_no_ranks() -> None:
    desk = Desk(book())
    desk.book = replace(desk.book, nodes={name: replace(node, efa=32) for name, node in desk.book.nodes.items()})
    id_ = desk.start(2)
    variables = gang.environment(desk[id_], desk.book.nodes, "gpu-1")
    assert variables == {"CUDA_VISIBLE_DEVICES": "0,1", "GPUCTL_RESERVATION": id_}


def test_what_agrees_is_not_repaired() -> None:
    desk = Desk(book())
    desk.start(4, disk="data")
    desk.reserve(16)
    desk.plan()
    before = desk.book
    desk.decide(reconcile.repair)
    assert desk.book == before


def test_gpus_of_a_reservation_that_is_over_return_after_cleaning() -> None:
    desk = Desk(book())
    desk.book = replace(
        desk.book,
        nodes={**desk.book.nodes, "gpu-1": replace(desk.book.nodes["gpu-1"], allocated=("gone",) + (None,) * 7)},
        disks={"ada/data": Disk("ada/data", "ada", "gone")},
    )
    desk.decide(reconcile.repair)
    assert desk.book.nodes["gpu-1"].free == tuple(range(8))
    assert desk.book.nodes["gpu-1"].state is NodeState.CLEANING
    assert desk.book.disks["ada/data"].attached is None
    [order] = reports.orders(desk.book)
    assert order.kind is OrderKind.CLEAN_NODE


def test_a_reservation_whose_gpus_the_ledger_does_not_have_ends() -> None:
    desk = Desk(book())
    id_ = desk.start(4)
    nodes = {**desk.book.nodes, "gpu-1": replace(desk.book.nodes["gpu-1"], allocated=(None,) * 8)}
    desk.book = replace(desk.book, nodes=nodes)
    desk.decide(reconcile.repair)
    assert (desk[id_].state, desk[id_].outcome) == (State.ENDING, State.FAILED)


def test_an_end_that_a_wrong_clock_wrote_is_corrected() -> None:
    desk = Desk(book())
    id_ = desk.start(4)
    desk.change(id_, expires_at=desk.now + 10**9)
    desk.decide(reconcile.repair)
    assert desk[id_].expires_at == desk.now + HOUR


def test_a_session_without_a_reservation_is_ended_and_one_that_disappeared_fails() -> None:
    desk = Desk(book())
    id_ = desk.start(4)
    node = desk.book.nodes["gpu-1"]
    orders: list[reports.Order] = []
    observation = Observation("gpu-1", node.fence, [Session("stray", 1, (7,))])
    desk.decide(lambda draft: orders.extend(reconcile.compare(draft, {"gpu-1": observation})))
    assert [(order.kind, order.reservation) for order in orders] == [(OrderKind.CLEAR, "stray")]
    assert desk[id_].reason == "the session disappeared from gpu-1"


def test_an_observation_from_before_the_last_change_proves_nothing() -> None:
    desk = Desk(book())
    id_ = desk.start(4)
    old = Observation("gpu-1", desk.book.nodes["gpu-1"].fence - 1, [])
    desk.decide(lambda draft: reconcile.compare(draft, {"gpu-1": old}))
    assert desk[id_].state is State.ACTIVE
