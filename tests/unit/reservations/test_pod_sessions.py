"""Sessions in pods for the service: who reaches one, and what a request that is prepared waits for."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from gpuctl.core.errors import InvalidInput
from gpuctl.edges.ssh_keys import pair
from gpuctl.edges.unix_socket import Stream
from gpuctl.reservations import serve
from gpuctl.reservations.agent import NotObeyed, NotReady, NoWhole, PodLogin, PodValues, Unable
from gpuctl.reservations.demo import START, SimulatedNode
from gpuctl.reservations.rules.model import HOUR, Caller, Node, Site
from gpuctl.reservations.rules.reconcile import Observation
from gpuctl.reservations.rules.reports import Order, OrderKind
from gpuctl.reservations.service import Service
from gpuctl.reservations.stores.memory import MemoryStore
from gpuctl.reservations.stores.sqlite import SqliteStore

ADA, BOB, ROOT = Caller("ada", "vision"), Caller("bob", "speech"), Caller("root", admin=True)
KEY = pair()[1]


class StandinPods(SimulatedNode):
    """A node in memory whose sessions stand in for pods. `waits`: what an order has not ended with."""

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.waits = ""
        self.values: list[PodValues | None] = []
        self.trouble: Exception | None = None

    def obey(
        self, order: Order, person: str, variables: Mapping[str, str] | None = None, pod: PodValues | None = None
    ) -> None:
        self.values.append(pod)
        if self.waits:
            raise NotReady(self.waits)
        super().obey(order, person, variables, pod)

    def login(self, reservation: str, attempt: int) -> PodLogin:
        if self.trouble:
            raise self.trouble
        return PodLogin(2222, "ssh-ed25519 AAAA", f"{reservation}-{attempt}")

    def logs(self, reservation: str, attempt: int) -> Sequence[str]:
        if self.trouble:
            raise self.trouble
        return [f"Normal Pulling: {reservation} {attempt}"]

    def tunnel(self, reservation: str, attempt: int) -> Callable[[int], None]:
        if self.trouble:
            raise self.trouble

        def pump(descriptor: int) -> None:
            os.write(descriptor, f"{reservation} {attempt}".encode())

        return pump


class Lab:
    """The service of a site with pods."""

    def __init__(self) -> None:
        self.now, self.node = START, StandinPods("n1")
        store = MemoryStore(Site(pods=True), [Node("n1", "h100", (None,) * 4, place="uid-1")])
        self.service = Service(store, {"n1": self.node}, lambda: self.now)

    def ask(self, caller: Caller, do: str, **content: Any) -> dict[str, Any]:
        return self.service.answer(caller, {"do": do, **content})

    def submit(self, **request: Any) -> dict[str, Any]:
        content = {"gpus": 1, "length_s": HOUR, "keys": KEY, **request}
        row: dict[str, Any] = self.ask(ADA, "submit", key="key-0001", request=content)["reservation"]
        return row

    def row(self) -> dict[str, Any]:
        [row] = self.ask(ADA, "state")["reservations"]
        return dict(row)


def test_a_request_that_is_prepared_says_what_it_waits_for_until_its_time_begins() -> None:
    lab = Lab()
    lab.node.waits = "the pod starts on n1, pulling its image"
    assert lab.submit(image="ml:2")["state"] == "preparing"
    assert lab.row()["reason"] == "n1: the pod starts on n1, pulling its image"
    assert lab.service.waiting
    lab.now += 300
    lab.node.waits = ""
    lab.service.pass_once()
    row = lab.row()
    assert (row["state"], row["expires"], lab.service.waiting) == ("active", "2026-01-05T09:05:00Z", False)
    assert row["environment"] == {"n1": {"GPUCTL_RESERVATION": row["id"]}}
    assert row["logins"] == [{"node": "n1", "address": None, "port": None, "user": None, "pod": True}]
    assert lab.node.values[-1] == PodValues(f"{row['id']}-1", f"{KEY} reservation\n", "ml:2")


def test_a_node_that_waits_takes_other_orders_meanwhile() -> None:
    lab = Lab()
    first = lab.submit()["id"]
    lab.node.waits = "Pod r1 ends"
    lab.ask(ADA, "cancel", key="key-0002", command={"reservation": first})
    assert lab.row()["state"] == "ending"
    assert lab.ask(BOB, "submit", key="key-0003", request={"gpus": 4, "keys": KEY})["reservation"]["state"] == "queued"
    lab.node.waits = ""
    lab.service.pass_once()
    assert lab.row()["state"] == "active"


def test_nobody_but_its_owner_reaches_a_session_not_even_an_admin() -> None:
    lab = Lab()
    id_ = lab.submit()["id"]
    assert lab.ask(ADA, "login", reservation=id_, node="n1") == {
        "port": 2222,
        "host_key": "ssh-ed25519 AAAA",
        "alias": f"{id_}-1",
        "token": "",
    }
    where = {"reservation": id_, "node": "n1"}
    for caller in (BOB, ROOT):
        assert f"it belongs to ada, and you are {caller.person}" in lab.ask(caller, "login", **where)["error"]
        with pytest.raises(InvalidInput, match="it belongs to ada"):
            lab.service.pods.tunnel(caller, where)
    source, sink = os.pipe()
    lab.service.pods.tunnel(ADA, where)(sink)
    assert os.read(source, 100).decode() == f"{id_} 1"
    for descriptor in (source, sink):
        os.close(descriptor)


@pytest.mark.parametrize(
    ("where", "wrong"),
    [
        ({"reservation": "r0", "node": "n1"}, "no live reservation has the id 'r0'"),
        ({"reservation": ["r0"], "node": "n1"}, "no live reservation has the id"),
        ({}, "no live reservation has the id None"),
    ],
)
def test_a_login_to_nothing_is_refused(where: dict[str, Any], wrong: str) -> None:
    lab = Lab()
    answer = lab.ask(ADA, "login", **where)
    assert (answer["exit_code"], wrong in answer["error"]) == (2, True)


def test_a_session_that_is_not_active_or_elsewhere_has_no_login() -> None:
    lab = Lab()
    lab.node.waits = "its pod was made"
    id_ = lab.submit()["id"]
    assert "is preparing on n1" in lab.ask(ADA, "login", reservation=id_, node="n1")["error"]
    assert lab.ask(ADA, "logs", reservation=id_, node="n1") == {"lines": [f"Normal Pulling: {id_} 1"]}
    assert "it belongs to ada" in lab.ask(BOB, "logs", reservation=id_, node="n1")["error"]
    lab.node.waits = ""
    lab.service.pass_once()
    assert "is active on n1" in lab.ask(ADA, "login", reservation=id_, node="n2")["error"]
    assert "unknown fields: person" in lab.ask(ADA, "login", reservation=id_, node="n1", person="bob")["error"]


@pytest.mark.parametrize("trouble", [Unable("no answer"), NotObeyed("n1 has no pod")])
def test_a_cluster_that_does_not_answer_is_no_mistake_of_the_caller(trouble: Exception) -> None:
    lab = Lab()
    id_ = lab.submit()["id"]
    lab.node.trouble = trouble
    answer = lab.ask(ADA, "login", reservation=id_, node="n1")
    assert str(trouble) in answer["error"]
    assert answer["exit_code"] not in (0, 2)


def test_an_order_is_for_pods_only_where_they_are(monkeypatch: pytest.MonkeyPatch) -> None:
    lab = Lab()
    kinds = list[OrderKind]()
    obey = lab.node.obey

    def note(order: Order, *rest: Any) -> None:
        kinds.append(order.kind)
        obey(order, *rest)

    monkeypatch.setattr(lab.node, "obey", note)
    id_ = lab.submit()["id"]
    lab.ask(ADA, "cancel", key="key-0002", command={"reservation": id_})
    assert kinds == [OrderKind.PREPARE, OrderKind.CLEAR]


def test_a_node_that_takes_its_time_delays_no_call(monkeypatch: pytest.MonkeyPatch) -> None:
    lab = Lab()
    begun, go_on = threading.Event(), threading.Event()
    obey = lab.node.obey

    def slow(order: Order, *rest: Any) -> None:
        begun.set()
        assert go_on.wait(10)
        obey(order, *rest)

    monkeypatch.setattr(lab.node, "obey", slow)
    with ThreadPoolExecutor(1) as pool:
        first = pool.submit(lab.submit)
        assert begun.wait(10)
        assert lab.row()["state"] == "preparing"
        other = {"do": "submit", "key": "key-0009", "request": {"gpus": 4, "keys": KEY}}
        assert lab.service.answer(BOB, other)["reservation"]["state"] == "queued"
        go_on.set()
        assert first.result(10)["state"] == "active"


def test_an_order_that_another_thread_left_is_sent_by_the_one_that_sends(monkeypatch: pytest.MonkeyPatch) -> None:
    lab = Lab()
    begun, go_on = threading.Event(), threading.Event()
    obey = lab.node.obey

    def slow_once(order: Order, *rest: Any) -> None:
        if not begun.is_set():
            begun.set()
            assert go_on.wait(10)
        obey(order, *rest)

    monkeypatch.setattr(lab.node, "obey", slow_once)
    with ThreadPoolExecutor(1) as pool:
        first = pool.submit(lab.submit)
        assert begun.wait(10)
        other = {"do": "submit", "key": "key-0009", "request": {"gpus": 1, "keys": KEY}}
        assert lab.service.answer(BOB, other)["reservation"]["state"] == "preparing"
        go_on.set()
        first.result(10)
    assert {row["state"] for row in lab.ask(ADA, "state")["reservations"]} == {"active"}


def test_reservations_hold_a_node_to_its_namespace(tmp_path: Path) -> None:
    node = Node("n1", "h100", ("r1",), place="uid-1", zone="a")
    SqliteStore(tmp_path / "r.db", Site(), [node]).close()
    for place in ("uid-2", ""):
        with pytest.raises(InvalidInput, match="n1 has reservations, whose sessions are of another kind"):
            SqliteStore(tmp_path / "r.db", Site(), [replace(node, place=place)])
    SqliteStore(tmp_path / "free.db", Site(), [replace(node, allocated=(None,))]).close()
    moved = SqliteStore(tmp_path / "free.db", Site(), [replace(node, allocated=(None,), place="", zone="b")])
    assert (moved.load().nodes["n1"].place, moved.load().nodes["n1"].zone) == ("", "b")


def test_a_person_has_a_number_of_connections_that_leaves_some_to_others(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(serve, "MOST_TUNNELS", 1)
    lab, tunnels = Lab(), serve._Tunnels()
    where = {"reservation": lab.submit()["id"], "node": "n1"}
    first = tunnels.answer(lab.service, ADA, where)
    assert "you have 1 connections already" in tunnels.answer(lab.service, ADA, where)["error"]
    source, sink = os.pipe()
    first.pump(sink)
    assert isinstance(tunnels.answer(lab.service, ADA, where), Stream)
    for descriptor in (source, sink):
        os.close(descriptor)


@pytest.mark.parametrize(("gpus", "adapters"), [(4, 16), (2, 0)])
def test_only_a_session_of_a_whole_node_gets_its_adapters(gpus: int, adapters: int) -> None:
    lab = Lab()
    store = MemoryStore(Site(pods=True), [Node("n1", "h100", (None,) * 4, place="uid-1", efa=16)])
    lab.service = Service(store, {"n1": lab.node}, lambda: lab.now)
    row = lab.submit(gpus=gpus)
    values = lab.node.values[-1]
    assert values is not None
    assert values.efa == adapters
    assert row["environment"]["n1"].get("GPUCTL_EFA_ADAPTERS") == (str(adapters) if adapters else None)


def test_a_node_that_takes_no_whole_session_takes_smaller_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    lab, real = Lab(), StandinPods.obey

    def obey(node: StandinPods, order: Order, *rest: Any) -> None:
        if order.kind is OrderKind.PREPARE and len(order.gpus) == 4:
            raise NoWhole("it offers 15 of 16 EFA adapters")
        real(node, order, *rest)

    def observe(node: StandinPods, fence: int) -> Observation:
        return replace(SimulatedNode.observe(node, fence), no_whole="it offers 15 of 16 EFA adapters")

    def states() -> dict[int, str]:
        return {row["gpus"]: row["state"] for row in lab.service.answer(ADA, {"do": "state"})["reservations"]}

    monkeypatch.setattr(StandinPods, "obey", obey)
    monkeypatch.setattr(StandinPods, "observe", observe)
    for gpus in (4, 2):
        request = {"gpus": gpus, "length_s": HOUR, "keys": KEY}
        lab.service.answer(ADA, {"do": "submit", "key": f"key-0000{gpus}", "request": request})
    for _ in range(2):
        lab.service.pass_once()
        assert states() == {4: "queued", 2: "active"}
    [node] = lab.service.answer(ADA, {"do": "state"})["nodes"]
    assert (node["state"], node["reason"]) == ("ready", "it offers 15 of 16 EFA adapters")
    monkeypatch.undo()
    cancelled = next(row["id"] for row in lab.service.answer(ADA, {"do": "state"})["reservations"] if row["gpus"] == 2)
    lab.service.answer(ADA, {"do": "cancel", "key": "key-00009", "command": {"reservation": cancelled}})
    for _ in range(2):
        lab.service.pass_once()
    assert states() == {4: "active"}
