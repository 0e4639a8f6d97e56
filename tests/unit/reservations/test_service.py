"""The service: who calls is never read from the call, and a day passes on two simulated nodes."""

from __future__ import annotations

import threading
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from gpuctl.core.errors import InvalidInput
from gpuctl.reservations.agent import Delivery, InUse, NotObeyed, Unable
from gpuctl.reservations.demo import START, Demo
from gpuctl.reservations.rules.model import HOUR, Caller, Node, NodeState, Site, State
from gpuctl.reservations.rules.reconcile import Observation
from gpuctl.reservations.rules.reports import Order, OrderKind
from gpuctl.reservations.service import Service
from gpuctl.reservations.stores.sqlite import SqliteStore

ADA, BOB = Caller("ada", "vision"), Caller("bob", "speech")


def submit(demo: Demo, caller: Caller = ADA, key: str = "key-0001", **request: Any) -> dict[str, Any]:
    return demo.service.answer(
        caller, {"do": "submit", "key": key, "request": {"gpus": 8, "length_s": HOUR, **request}}
    )


def test_a_request_is_active_at_once_if_it_fits() -> None:
    row = submit(Demo())["reservation"]
    assert (row["state"], row["person"], row["slots"][0]["node"]) == ("active", "ada", "gpu-1")
    assert row["expires"] == "2026-01-05T09:00:00Z"
    assert row["environment"]["gpu-1"]["CUDA_VISIBLE_DEVICES"] == "0,1,2,3,4,5,6,7"


@pytest.mark.parametrize(
    "call",
    [
        {"do": "submit", "key": "key-0001", "request": {"gpus": 1}, "person": "bob"},
        {"do": "submit", "key": "key-0001", "request": {"gpus": 1, "person": "bob"}},
        {"do": "submit", "key": "key-0001", "request": {"gpus": 1}, "caller": {"person": "bob", "admin": True}},
        {"do": "submit", "key": "key-0001", "request": {"gpus": "1"}},
        {"do": "submit", "key": "key-0001", "request": {"gpus": True}},
        {"do": "submit", "key": "key-0001", "request": {"gpus": 1, "length_s": 1.5}},
        {"do": "submit", "key": "key-0001"},
        {"do": "submit", "request": {"gpus": 1}},
        {"do": "submit", "key": "", "request": {"gpus": 1}},
        {"do": "pass_once"},
        {"do": "cancel", "key": "key-0001", "command": {}},
        {"do": "state", "person": "bob"},
        {},
        [],
        None,
        "submit",
    ],
)
def test_a_call_with_a_name_or_another_form_is_refused_and_changes_nothing(call: Any) -> None:
    demo = Demo()
    answer = demo.service.answer(ADA, call)
    assert answer["exit_code"] == 2
    assert demo.state()["reservations"] == []


def test_a_repeated_call_has_the_same_reservation() -> None:
    demo = Demo()
    first, second = submit(demo), submit(demo)
    assert first["reservation"]["id"] == second["reservation"]["id"]
    assert len(demo.state()["reservations"]) == 1


def test_somebody_elses_reservation_cannot_be_cancelled() -> None:
    demo = Demo()
    id_ = submit(demo)["reservation"]["id"]
    call = {"do": "cancel", "key": "key-0002", "command": {"reservation": id_}}
    answer = demo.service.answer(BOB, call)
    assert "it belongs to ada, and you are bob" in answer["error"]
    assert [entry.actor for entry in demo.store.history(id_, 1)] == ["bob"]
    assert demo.service.answer(ADA, {**call, "key": "key-0003"})["reservation"]["state"] == "cancelled"


def test_the_day_of_the_demo_keeps_its_promise_and_ends_everything() -> None:
    demo = Demo()
    story = "\n".join(demo.story())
    assert "back-fill: keeps the promised start" in story
    assert "was promised these GPUs" in story
    assert "lose node gpu-2" in story
    assert demo.state()["reservations"] == []
    states = {row.person: row.state for row in demo.store.finished(None, 9)}
    assert states == {"ada": State.EXPIRED, "bob": State.EXPIRED, "cy": State.EXPIRED, "dee": State.EXPIRED}
    assert [text.split(" ")[5] for text in demo.nodes["gpu-1"].warnings[:3]] == ["30", "15", "5"]


def test_a_service_that_starts_again_knows_everything(tmp_path: Path) -> None:
    def store() -> SqliteStore:
        return SqliteStore(tmp_path / "r.db", Site(), [Node(f"gpu-{n}", "h100", (None,) * 8) for n in (1, 2)])

    first = Demo(store())
    row = submit(first)["reservation"]
    again = Demo(store())
    again.nodes.update(first.nodes)
    again.service = Service(again.store, first.nodes, lambda: again.now)
    again.now = START + 60
    again.service.pass_once()
    [same] = again.state()["reservations"]
    assert (same["id"], same["state"], same["expires"]) == (row["id"], "active", row["expires"])


def test_gpus_of_a_node_that_does_not_answer_are_unknown_and_given_to_nobody() -> None:
    demo = Demo()
    demo.nodes["gpu-1"].reachable = False
    demo.service.pass_once()
    first, second = submit(demo), submit(demo, BOB, "key-0002")
    assert (first["reservation"]["slots"][0]["node"], second["reservation"]["state"]) == ("gpu-2", "queued")
    [unknown, ready] = demo.state()["nodes"]
    assert (unknown["state"], unknown["reason"], ready["state"]) == ("unknown", "no answer", "ready")
    demo.nodes["gpu-1"].reachable = True
    demo.service.pass_once()
    assert {row["state"] for row in demo.state()["reservations"]} == {"active"}


def test_a_node_that_stops_answering_while_it_is_prepared_is_asked_again() -> None:
    demo = Demo()
    demo.nodes["gpu-1"].reachable = demo.nodes["gpu-2"].reachable = False
    row = submit(demo)["reservation"]
    assert row["state"] == "preparing"
    demo.nodes["gpu-1"].reachable = demo.nodes["gpu-2"].reachable = True
    demo.service.pass_once()
    assert demo.state()["reservations"][0]["state"] == "active"
    again = submit(demo, BOB, "key-0002")["reservation"]
    assert again["slots"][0]["node"] != row["slots"][0]["node"]


def test_the_file_of_the_service_keeps_what_is_known_of_nodes(tmp_path: Path) -> None:
    node = Node("gpu-1", "h100", (None,) * 2, uuids=("GPU-a", "GPU-b"), address="10.0.0.1", port=22)
    SqliteStore(tmp_path / "r.db", Site(), [node]).close()
    kept = SqliteStore(tmp_path / "r.db", Site(), None)
    assert (kept.load().nodes["gpu-1"].uuids, kept.load().nodes["gpu-1"].port) == (node.uuids, 22)
    kept.close()
    swapped = SqliteStore(tmp_path / "r.db", Site(), [replace(node, uuids=("GPU-a", "GPU-c"))])
    assert swapped.load().nodes["gpu-1"].uuids == ("GPU-a", "GPU-c")


def test_a_node_that_answers_but_refuses_is_unknown_and_never_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    demo = Demo()
    row = submit(demo)["reservation"]
    for refusal in (NotObeyed("no /dev/nvidia1"), Unable("sudo needs a password")):

        def refuse(fence: int, refusal: Exception = refusal) -> Observation:
            raise refusal

        monkeypatch.setattr(demo.nodes["gpu-1"], "observe", refuse)
        demo.now += demo.store.load().site.limits.node_lost_s
        demo.service.pass_once()
    assert demo.state()["nodes"][0]["state"] == "unknown"
    assert demo.store.load().nodes["gpu-1"].state is NodeState.READY
    assert demo.state()["reservations"][0]["id"] == row["id"]


def test_a_lost_node_that_is_back_keeps_sessions_in_time_and_ends_the_others() -> None:
    demo = Demo()
    long = submit(demo, gpus=4, length_s=4 * HOUR)["reservation"]
    short = submit(demo, key="key-0002", gpus=4)["reservation"]
    node = demo.nodes["gpu-1"]
    node.reachable = False
    demo.service.pass_once()
    demo.now += demo.store.load().site.limits.node_lost_s
    demo.service.pass_once()
    assert demo.store.load().nodes["gpu-1"].state is NodeState.LOST
    assert {row["state"] for row in demo.state()["reservations"]} == {"active"}
    demo.service.answer(ADA, {"do": "cancel", "key": "key-0003", "command": {"reservation": short["id"]}})
    node.reachable = True
    demo.service.pass_once()
    demo.service.pass_once()
    assert demo.store.load().nodes["gpu-1"].state is NodeState.READY
    assert [one.reservation for one in node.observe(10**15).sessions] == [long["id"]]
    assert [row["state"] for row in demo.state()["reservations"]] == ["active"]


def test_after_a_node_gave_no_answer_none_of_its_orders_is_tried_in_this_pass(monkeypatch: pytest.MonkeyPatch) -> None:
    demo, tried = Demo(), list[str]()
    first, second = (submit(demo, key=f"key-000{n}", gpus=4)["reservation"] for n in (1, 2))

    def silent(order: Order, person: str, variables: object = None, pod: object = None) -> None:
        tried.append(order.reservation)
        raise OSError("no answer")

    monkeypatch.setattr(demo.nodes["gpu-1"], "obey", silent)
    monkeypatch.setattr(demo.service.orders, "advance", lambda: None)
    for number, row in enumerate((first, second), 3):
        command = {"reservation": row["id"]}
        demo.service.answer(ADA, {"do": "cancel", "key": f"key-000{number}", "command": command})
    monkeypatch.undo()
    monkeypatch.setattr(demo.nodes["gpu-1"], "obey", silent)
    demo.service.pass_once()
    assert len(tried) == 1
    assert {row["state"] for row in demo.state()["reservations"]} == {"ending"}


def test_calls_are_answered_while_warnings_are_shown_and_a_missed_one_silences_nobody(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    demo, answers = Demo(), list[dict[str, Any]]()
    submit(demo)

    def warn(person: str, text: str) -> Delivery:
        thread = threading.Thread(target=lambda: answers.append(demo.state()))
        thread.start()
        thread.join(20)
        assert not thread.is_alive()
        raise OSError("no answer")

    monkeypatch.setattr(demo.nodes["gpu-1"], "warn", warn)
    demo.now += HOUR - 60
    demo.service.pass_once()
    assert len(answers) == 1
    assert demo.state()["nodes"][0]["state"] == "ready"
    demo.service.pass_once()
    assert len(answers) == 1  # not in each pass
    demo.now += 180
    demo.service.pass_once()
    demo.service.pass_once()
    assert demo.state()["reservations"] == []  # it ends all the same


def test_the_queue_names_nodes_that_are_unknown_and_does_not_count_on_them() -> None:
    demo = Demo()
    for node in demo.nodes.values():
        node.reachable = False
    demo.service.pass_once()
    row = submit(demo, gpus=2)["reservation"]
    assert row["state"] == "queued"
    assert "unknown, so given to nobody: gpu-1, gpu-2" in row["reason"]
    assert row["earliest_start"] > "2026-01-05T08:02:00Z"


def test_a_node_in_doubt_takes_no_new_session_and_ends_old_ones() -> None:
    demo = Demo()
    row = submit(demo)["reservation"]
    demo.service.nodes.doubts["gpu-1"] = "MIG is enabled"
    demo.service.pass_once()
    state = demo.state()["nodes"][0]
    assert (state["state"], state["reason"]) == ("unknown", "MIG is enabled")
    demo.service.answer(ADA, {"do": "cancel", "key": "key-0002", "command": {"reservation": row["id"]}})
    assert demo.nodes["gpu-1"].observe(10**15).sessions == []
    assert submit(demo, key="key-0003")["reservation"]["slots"][0]["node"] == "gpu-2"
    assert submit(demo, key="key-0004")["reservation"]["state"] == "queued"


@pytest.mark.parametrize("trouble", [None, NotObeyed("there is no account bob"), OSError("no answer")])
def test_added_people_are_warned_too_and_only_the_owner_counts(
    monkeypatch: pytest.MonkeyPatch, trouble: Exception | None
) -> None:
    demo = Demo()
    submit(demo, users="bob")
    node, warned = demo.nodes["gpu-1"], list[str]()

    def warn(person: str, text: str) -> Delivery:
        warned.append(person)
        if trouble and person == "bob":
            raise trouble
        return Delivery(1)

    monkeypatch.setattr(node, "warn", warn)
    demo.now += HOUR - 60
    for _ in range(2):
        demo.service.pass_once()
    assert warned == ["ada", "bob"]
    assert demo.state()["reservations"][0]["warning"]["not_delivered"] == []


def test_a_warning_that_a_node_did_not_take_is_shown_as_that_and_repeated(monkeypatch: pytest.MonkeyPatch) -> None:
    demo = Demo()
    id_ = submit(demo)["reservation"]["id"]

    def refuse(person: str, text: str) -> Delivery:
        raise NotObeyed("there is no account ada")

    monkeypatch.setattr(demo.nodes["gpu-1"], "warn", refuse)
    demo.now += HOUR - 60
    demo.service.pass_once()
    assert demo.state()["reservations"][0]["warning"] == {
        "minutes": 5,
        "at": "2026-01-05T08:59:00Z",
        "not_delivered": ["gpu-1"],
    }
    assert [e.reason for e in demo.store.history(id_, 1)] == [
        "5 minutes, not delivered on gpu-1: there is no account ada"
    ]
    monkeypatch.undo()
    demo.now += 60
    demo.service.pass_once()
    assert demo.state()["reservations"][0]["warning"]["not_delivered"] == []
    assert len(demo.nodes["gpu-1"].warnings) == 1


def test_a_node_with_a_program_without_a_session_takes_no_new_one_until_it_ended(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    demo = Demo()
    held = Observation("gpu-1", 10**15, [], ("process 7 of bob has /dev/nvidia0 open without a session", "another"))
    monkeypatch.setattr(demo.nodes["gpu-1"], "observe", lambda fence: held)
    demo.service.pass_once()
    node = demo.state()["nodes"][0]
    wrong = "process 7 of bob has /dev/nvidia0 open without a session, and 1 more; end it first"
    assert (node["state"], node["reason"]) == ("unknown", wrong)
    assert submit(demo)["reservation"]["slots"][0]["node"] == "gpu-2"
    monkeypatch.undo()
    demo.service.pass_once()
    assert demo.state()["nodes"][0]["state"] == "ready"


def test_who_waits_is_queued_again_if_a_program_without_a_session_has_its_gpus(monkeypatch: pytest.MonkeyPatch) -> None:
    demo = Demo()
    wrong = "process 7 of bob has /dev/nvidia0 open without a session"

    def refuse(order: Order, person: str, variables: object = None, pod: object = None) -> None:
        if order.kind is OrderKind.PREPARE:
            raise InUse(wrong)

    for node in demo.nodes.values():
        monkeypatch.setattr(node, "obey", refuse)
    for number in range(3):
        submit(demo, key=f"key-000{number}")
    assert {row["state"] for row in demo.state()["reservations"]} == {"queued"}
    assert {node["reason"] for node in demo.state()["nodes"]} == {wrong}
    monkeypatch.undo()
    demo.service.pass_once()
    assert [row["state"] for row in demo.state()["reservations"]] == ["active", "active", "queued"]


def test_a_request_in_preparation_waits_again_once_a_program_without_a_session_is_noticed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    demo = Demo()
    demo.nodes["gpu-1"].reachable = demo.nodes["gpu-2"].reachable = False
    assert submit(demo)["reservation"]["state"] == "preparing"
    demo.nodes["gpu-1"].reachable = demo.nodes["gpu-2"].reachable = True
    in_use = Observation("gpu-1", 10**15, [], ("process 7 of bob has /dev/nvidia0 open without a session",))
    monkeypatch.setattr(demo.nodes["gpu-1"], "observe", lambda fence: in_use)
    demo.service.pass_once()
    [row] = demo.state()["reservations"]
    assert (row["state"], row["slots"][0]["node"]) == ("active", "gpu-2")


def test_a_node_whose_first_answer_was_bad_takes_sessions_once_it_is_repaired() -> None:
    demo = Demo()
    answers: list[Node | Exception] = [
        OSError("no route"),
        InvalidInput("serve", "MIG is enabled", ""),
        Node("gpu-1", "h100", (None,) * 4),
        Node("gpu-1", "h100", (None,) * 8, uuids=("GPU-a",) * 8),
    ]

    def reread(name: str) -> Node:
        answer = answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer

    demo.service = Service(demo.store, dict(demo.nodes), lambda: demo.now, {"gpu-1": "odd"}, reread)
    reasons = []
    while answers:
        left = len(answers)
        demo.service.pass_once()
        assert len(answers) == left  # not in each pass
        demo.now += 60
        demo.service.pass_once()
        reasons.append(demo.state()["nodes"][0]["reason"])
    assert reasons == ["no route", "MIG is enabled", "gpu-1: it has other GPUs than before: restart the service", ""]
    assert demo.store.load().nodes["gpu-1"].uuids[0] == "GPU-a"
    assert submit(demo)["reservation"]["slots"][0]["node"] == "gpu-1"


def test_a_database_keeps_its_identity_and_its_fences_never_go_back(tmp_path: Path) -> None:
    node = Node("gpu-1", "h100", (None,) * 2, fence=5)
    first = SqliteStore(tmp_path / "r.db", Site(), [node])
    identity = first.identity()
    first.close()
    for fence, expected in ((9, 9), (7, 9)):
        store = SqliteStore(tmp_path / "r.db", Site(), [replace(node, fence=fence)])
        assert (store.identity(), store.load().nodes["gpu-1"].fence) == (identity, expected)
        store.close()
    assert SqliteStore(tmp_path / "other.db", Site(), None).identity() != identity
