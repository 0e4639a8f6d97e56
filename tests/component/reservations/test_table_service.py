"""The service that has the nodes, and the function, on one table (moto): requests of the queue get GPUs."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from gpuctl.cli.app import app
from gpuctl.core.errors import InvalidInput
from gpuctl.reservations import on_lambda
from gpuctl.reservations.database import TableDatabase
from gpuctl.reservations.demo import SimulatedNode
from gpuctl.reservations.on_lambda import unknown_nodes
from gpuctl.reservations.rules.decision import Change, Decision
from gpuctl.reservations.rules.model import HOUR, Caller, Disk, Limits, Node, Site
from gpuctl.reservations.senders import Senders
from gpuctl.reservations.service import Service
from gpuctl.reservations.stores.base import Conflict
from gpuctl.reservations.stores.dynamodb import FRESH_S, DynamoStore, Report, read_answer
from tests.rig.aws_endpoint import moto_endpoint
from tests.rig.reservations.aws_table import CountingAws, aws_login, new_table

NODES = [Node(f"gpu-{number}", "h100", (None,) * 8) for number in (1, 2)]
USER = "AIDAEXAMPLEUSERID01"


@pytest.fixture(scope="module")
def moto() -> Iterator[str]:
    with moto_endpoint() as url:
        yield url


@pytest.fixture
def table(moto: str) -> Iterator[str]:
    with aws_login(moto):
        yield new_table(moto)


@pytest.fixture
def function(table: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """The folder of a function for this table, as Lambda has it."""
    (tmp_path / "senders.json").write_text(json.dumps(Senders({USER: "ada"}).as_dict()))
    monkeypatch.setenv("GPUCTL_TABLE", table)
    monkeypatch.setenv("GPUCTL_QUEUE_ARN", "arn:queue")
    monkeypatch.setattr(on_lambda, "__file__", str(tmp_path / "gpuctl/reservations/on_lambda.py"))
    on_lambda._made.cache_clear()
    yield table
    on_lambda._made.cache_clear()


class StandinContext:
    """The context that Lambda gives."""

    def get_remaining_time_in_millis(self) -> int:
        return 60_000


def ask(table: str, call: Mapping[str, Any]) -> dict[str, Any]:
    """The answer of the function to a call of ada."""
    record = {
        "messageId": "m1",
        "body": json.dumps(call),
        "attributes": {"SenderId": USER},
        "messageAttributes": {},
        "eventSource": "aws:sqs",
        "eventSourceARN": "arn:queue",
    }
    assert on_lambda.handler({"Records": [record]}, StandinContext()) == {"batchItemFailures": []}
    answer = read_answer(CountingAws(), table, USER, call["key"])
    assert answer is not None
    return answer


def test_a_request_of_the_queue_gets_gpus_from_the_service_that_has_the_nodes(function: str, tmp_path: Path) -> None:
    database = TableDatabase(tmp_path, function)
    database.stored()
    store = database.open(Site(Limits(gpus_per_person=8)), NODES)
    nodes = {node.name: SimulatedNode(node.name) for node in NODES}
    service = Service(store, nodes, lambda: int(time.time()))
    nodes["gpu-2"].reachable = False
    service.pass_once()
    database.report(service.nodes)
    request = {"do": "submit", "key": "key-0001", "request": {"gpus": 4, "length_s": HOUR}}
    assert ask(function, request)["reservation"]["state"] == "queued"
    service.pass_once()
    state = ask(function, {"do": "state", "key": "key-0002"})
    [row] = state["reservations"]
    assert (row["state"], row["slots"]) == ("active", [{"node": "gpu-1", "gpus": [0, 1, 2, 3]}])
    assert [(node["name"], node["state"], node["reason"]) for node in state["nodes"]] == [
        ("gpu-1", "ready", ""),
        ("gpu-2", "unknown", "no answer"),
    ]
    assert state["limits"]["gpus_per_person"] == 8, "the function has the rules of the service"
    assert (
        ask(function, {"do": "cancel", "key": "key-0003", "command": {"reservation": row["id"]}})["message"] == "ending"
    )
    service.pass_once()
    assert service.answer(Caller("ada"), {"do": "state"})["reservations"] == []


def test_a_warm_function_decides_by_the_rules_of_a_service_that_was_started_again(
    function: str, tmp_path: Path
) -> None:
    database = TableDatabase(tmp_path, function)
    database.stored()
    database.open(Site(Limits(gpus_per_person=8)), NODES)
    assert ask(function, {"do": "state", "key": "key-0001"})["limits"]["gpus_per_person"] == 8
    database.open(Site(Limits(gpus_per_person=2)), NODES)
    assert ask(function, {"do": "state", "key": "key-0002"})["limits"]["gpus_per_person"] == 2
    request = {"do": "submit", "key": "key-0003", "request": {"gpus": 4, "length_s": HOUR}}
    assert "2" in ask(function, request)["error"]


def test_a_decision_by_earlier_rules_is_not_committed(table: str) -> None:
    service = DynamoStore(CountingAws(), table, Site(Limits(gpus_per_person=8)), NODES)
    service.put_site()
    follower = DynamoStore(CountingAws(), table, None, None)
    assert follower.load().site.limits.gpus_per_person == 8
    DynamoStore(CountingAws(), table, Site(Limits(gpus_per_person=2)), NODES).put_site()
    decision = Decision((Change(Disk("ada/x", "ada", version=1), 0),))
    with pytest.raises(Conflict):
        follower.commit(decision)
    assert follower.load().site.limits.gpus_per_person == 2
    follower.commit(decision)


def test_rules_that_are_the_same_are_not_written_again(table: str) -> None:
    aws = CountingAws()
    service = DynamoStore(aws, table, Site(), NODES)
    service.put_site()
    aws.operations.clear()
    service.put_site()
    assert aws.operations == ["GetItem"]


def test_a_function_whose_table_no_service_has_served_says_so(function: str) -> None:
    with pytest.raises(InvalidInput, match="no service has served it yet"):
        on_lambda.handler({"do": "pass"}, StandinContext())


def test_a_table_without_a_cluster_is_bad_input() -> None:
    error = CliRunner().invoke(app, ["reservations", "serve", "--table", "gpu-reservations"]).exception
    assert isinstance(error, InvalidInput)
    assert "--table is for the nodes of a cluster" in str(error)


def test_without_a_fresh_report_all_nodes_are_unknown() -> None:
    nodes = {node.name: node for node in NODES}
    assert unknown_nodes(nodes, None, 1000).keys() == nodes.keys()
    assert unknown_nodes(nodes, Report("a", 1000, {}), 1000 + FRESH_S) == {}
    assert "reported 121 s ago" in unknown_nodes(nodes, Report("a", 1000, {}), 1001 + FRESH_S)["gpu-1"]


def test_a_second_service_is_refused_while_the_first_one_reports(table: str, tmp_path: Path) -> None:
    store, now = DynamoStore(CountingAws(), table, Site(), None), [0.0]

    def reports_on(seconds: float) -> None:
        now[0] += seconds
        report = store.report()
        assert report is not None
        store.put_report(replace(report, at=report.at + 1))

    def is_silent(seconds: float) -> None:
        now[0] += seconds

    first = made(tmp_path / "first", table)
    first.stored()
    made(tmp_path / "first", table).stored()  # it was started again
    with pytest.raises(InvalidInput, match="serves this table already"):
        made(tmp_path / "second", table, lambda: now[0], reports_on).stored()
    first.open(Site(), NODES)
    first.check()
    started = now[0]
    made(tmp_path / "second", table, lambda: now[0], is_silent).stored()
    assert now[0] - started >= FRESH_S
    with pytest.raises(InvalidInput, match="serves this table already"):
        first.check()


def test_a_service_whose_clock_is_wrong_is_not_taken_for_dead(table: str, tmp_path: Path) -> None:
    store, now = DynamoStore(CountingAws(), table, Site(), None), [0.0]
    store.put_report(Report("first", 1000, {}))

    def reports_on(seconds: float) -> None:
        now[0] += seconds
        store.put_report(Report("first", 1010, {}))

    with pytest.raises(InvalidInput):
        made(tmp_path / "second", table, lambda: now[0], reports_on).stored()


def test_two_machines_with_the_same_names_are_two_services(
    table: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gpuctl.reservations.database._label", lambda _: "host:/var/lib/gpuctl/reservations")
    first, second = made(tmp_path / "first", table), made(tmp_path / "second", table)
    first.stored()
    first.open(Site(), NODES)
    second.open(Site(), NODES)
    first.check()
    with pytest.raises(InvalidInput):
        second.check()


def made(state: Path, table: str, *clock: Any) -> TableDatabase:
    """A database with a folder of state."""
    state.mkdir(exist_ok=True)
    return TableDatabase(state, table, *clock)
