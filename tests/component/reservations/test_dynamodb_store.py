"""The store in DynamoDB beside other writers, with lost answers, and with decisions larger than a transaction.

The endpoint is moto. The promises of every store are in tests/contracts/test_reservation_stores.py.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Any

import pytest
from botocore.exceptions import ClientError

from gpuctl.core.errors import GpuctlError, InvalidInput
from gpuctl.edges.aws import Aws, NoAnswer
from gpuctl.reservations.decisions import Decisions
from gpuctl.reservations.rules.commands import Message, Submit
from gpuctl.reservations.rules.decision import Change, Decision
from gpuctl.reservations.rules.model import AuditEntry, Caller, Disk, Node, Receipt, Site, Usage
from gpuctl.reservations.rules.requests import Request
from gpuctl.reservations.stores import dynamodb
from gpuctl.reservations.stores.base import Conflict, StoreError
from gpuctl.reservations.stores.dynamodb import DynamoStore
from tests.rig.aws_endpoint import client
from tests.rig.reservations.aws_table import CountingAws, all_items, aws_login, moto_with_isolated_requests, new_table
from tests.rig.reservations.books import NOW

NODES = [Node(f"gpu-{number}", "h100", (None,) * 8) for number in (1, 2)]
MANY = Decision(
    tuple(Change(Usage(f"person:{number}", 1.0, NOW, 1), 0) for number in range(20)),
    tuple(AuditEntry(NOW, "x", "charge", f"r{number}", "y") for number in range(20)),
    Receipt("ada:k", "f", NOW, accepted=True, reservation="r1", message="m"),
)
ONE = Decision((Change(Disk("ada/x", "ada", version=1), 0),))


@pytest.fixture(scope="module")
def moto() -> Iterator[str]:
    with moto_with_isolated_requests() as url:
        yield url


@pytest.fixture
def endpoint(moto: str) -> Iterator[str]:
    with aws_login(moto):
        yield moto


@pytest.fixture
def table(endpoint: str) -> str:
    return new_table(endpoint)


@pytest.fixture
def small_transactions(monkeypatch: pytest.MonkeyPatch) -> None:
    """Transactions of the endpoint are slow: here a decision of 20 rows is already a large one."""
    monkeypatch.setattr(dynamodb, "MOST_ACTIONS", 20)


class Killed(Exception):
    """The program is killed at this point."""


def refusal(code: str, *reasons: str) -> dict[str, Any]:
    """What DynamoDB answers to a transaction; moto never does."""
    answer: dict[str, Any] = {"Error": {"Code": code, "Message": "m"}, "ResponseMetadata": {"HTTPStatusCode": 400}}
    return answer | ({"CancellationReasons": [{"Code": one} for one in reasons]} if reasons else {})


REFUSALS = {
    "in progress": refusal("TransactionInProgressException"),
    "conflict": refusal("TransactionCanceledException", "None", "TransactionConflict"),
    "throttled": refusal("TransactionCanceledException", "ThrottlingError", "None"),
    "invalid": refusal("ValidationException"),
}


class LossyAws(Aws):
    """Loses answers, or is killed: `plan` names what becomes of the next changes, the rest is as usual."""

    def __init__(self, *plan: str) -> None:
        super().__init__()
        self.plan = list(plan)

    def act(self, request: Any) -> dict[str, Any]:
        fate = self.plan.pop(0) if self.plan else ""
        if fate == "killed":
            raise Killed
        if fate in REFUSALS:
            with self._translated(request.doing, request.action):
                raise ClientError(REFUSALS[fate], "TransactWriteItems")
        answer = super().act(request)
        if fate == "answer lost":
            raise NoAnswer("write", "AWS gave no answer in time")
        return answer


def store(table: str, aws: Aws | None = None) -> DynamoStore:
    return DynamoStore(aws or Aws(), table, Site(), None)


def test_a_decision_of_more_than_100_rows_is_written(table: str) -> None:
    """The limit of DynamoDB, which moto keeps."""
    changes = [Change(Usage(f"person:{number}", 1.0, NOW, 1), 0) for number in range(101)]
    store(table).commit(Decision(tuple(changes)))
    assert len(store(table).load().usage) == 101


@pytest.mark.usefixtures("small_transactions")
def test_a_decision_with_more_rows_than_a_transaction_is_written_as_a_whole(endpoint: str, table: str) -> None:
    store(table).commit(MANY)
    other = store(table)
    assert len(other.load().usage) == 20
    assert other.receipt("ada:k") == MANY.receipt
    assert [entry.subject for entry in other.history(None, 200)] == [f"r{number}" for number in reversed(range(20))]
    assert not [item for item in all_items(endpoint, table) if item["pk"]["S"].startswith("staged")]
    with pytest.raises(Conflict):
        other.commit(MANY)
    other.commit(ONE)
    assert store(table).load().disks


@pytest.mark.usefixtures("small_transactions")
@pytest.mark.parametrize("writes", range(8))
def test_a_large_decision_whose_writer_is_killed_is_written_as_a_whole_or_not_at_all(table: str, writes: int) -> None:
    """Items are staged, then the head decides, and the next reader writes the rest."""
    killed = store(table, LossyAws(*[""] * writes, "killed"))
    with suppress(Killed):
        killed.commit(MANY)
    after = store(table)
    assert len(after.load().usage) in (0, 20)
    assert (after.receipt("ada:k") is None) == (not after.load().usage)
    after.commit(ONE)
    assert "ada/x" in store(table).load().disks


@pytest.mark.usefixtures("small_transactions")
def test_a_large_decision_replaces_no_receipt_that_another_one_has_written(table: str) -> None:
    store(table).commit(Decision((), (), MANY.receipt))
    with pytest.raises(Conflict):
        store(table).commit(MANY)
    assert store(table).load().usage == {}


def test_a_commit_whose_answer_is_lost_is_known_to_be_done(table: str) -> None:
    lossy = store(table, LossyAws("answer lost"))
    lossy.commit(ONE)
    assert lossy.load() == store(table).load()
    with pytest.raises(Conflict):
        lossy.commit(ONE)


@pytest.mark.parametrize("fates", [("answer lost", "in progress"), ("conflict",), ("throttled", "in progress")])
def test_a_commit_that_others_hinder_is_sent_again(table: str, fates: tuple[str, ...]) -> None:
    hindered = store(table, LossyAws(*fates))
    hindered.commit(ONE)
    assert hindered.load() == store(table).load()
    assert "ada/x" in hindered.load().disks


@pytest.mark.parametrize(
    "fates", [("in progress",) * 2, ("conflict",) * 2, ("throttled",) * 2, ("answer lost", "invalid")]
)
def test_a_commit_that_may_be_done_is_no_refusal(
    table: str, fates: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The message is delivered again, and its receipt shows what became of it."""
    monkeypatch.setattr(dynamodb, "TRIES", 2)
    with pytest.raises(StoreError):
        store(table, LossyAws(*fates)).commit(ONE)


def test_a_commit_that_is_not_valid_is_an_error_at_once(table: str) -> None:
    with pytest.raises(GpuctlError) as caught:
        store(table, LossyAws("invalid")).commit(ONE)
    assert not isinstance(caught.value, StoreError)


@pytest.mark.usefixtures("small_transactions")
def test_a_large_commit_whose_answers_are_lost_is_known_to_be_done(table: str) -> None:
    lossy = store(table, LossyAws(*["answer lost"] * 4))
    lossy.commit(MANY)
    assert len(store(table).load().usage) == 20


def test_a_snapshot_during_which_others_write_is_read_again(table: str) -> None:
    writer, number = store(table), iter(range(2))

    class Interrupted(Aws):
        def read(self, request: Any, convert: Any) -> list[Any]:
            rows = super().read(request, convert)
            if request.operation == "Query" and (n := next(number, None)) is not None:
                writer.commit(Decision((Change(Disk(f"ada/{n}", "ada", version=1), 0),)))
            return rows

    assert set(store(table, Interrupted()).load().disks) == {"ada/0", "ada/1"}


def test_writers_at_the_same_time_lose_nothing(table: str) -> None:
    DynamoStore(Aws(), table, Site(), NODES)

    def submit(number: int) -> bool:
        caller = Caller(f"p{number % 3}")
        decisions = Decisions(store(table), lambda: NOW)
        return decisions.handle(Message(Submit(Request(1)), caller, f"key-{number}")).accepted

    with ThreadPoolExecutor(3) as pool:
        assert all(pool.map(submit, range(12)))
    assert len(store(table).load().reservations) == 12
    assert len(store(table).history(None, 99)) == 12


def test_an_unchanged_table_costs_one_request_and_nothing_is_scanned(table: str) -> None:
    aws = CountingAws()
    counted = store(table, aws)
    counted.commit(ONE)
    counted.load()
    aws.operations.clear()
    counted.load()
    assert aws.operations == ["GetItem"]
    counted.finished(None, 5), counted.history(None, 5), counted.forget_receipts(NOW)
    assert set(aws.operations) == {"GetItem", "Query"}


def test_a_limited_history_reads_one_page(table: str) -> None:
    first = store(table)
    for number in range(4):
        first.commit(Decision((), (AuditEntry(NOW, "x", "y", "r1", str(number)),)))
    assert [entry.reason for entry in first.history("r1", 2)] == ["3", "2"]


@pytest.mark.parametrize("reason", ["it waited for 14 days", '\\"' * 400])
def test_a_decision_with_more_history_than_an_item_has_is_written(table: str, reason: str) -> None:
    entries = tuple(AuditEntry(NOW, "expiry", "expire", "r1", f"{number} {reason}") for number in range(60))
    padding = AuditEntry(NOW, "expiry", "expire", "r1", "x" * 120_000)
    many = (*entries[:30], *[padding] * 4, *entries[30:])
    first = store(table)
    first.commit(Decision((), many))
    assert list(first.history(None, 99)) == list(reversed(many))
    assert list(first.history("r1", 1)) == [entries[-1]]
    first.commit(Decision((), (entries[0],)))
    assert list(first.history("r1", 2)) == [entries[0], entries[-1]]


@pytest.mark.usefixtures("small_transactions")
def test_a_staged_decision_with_more_history_than_an_item_has_is_written(table: str) -> None:
    entries = tuple(AuditEntry(NOW, "expiry", "expire", f"r{n}", '\\"' * 9000) for n in range(30))
    store(table).commit(Decision((), entries))
    assert list(store(table).history(None, 99)) == list(reversed(entries))


def test_the_identity_stays(table: str) -> None:
    assert store(table).identity() == store(table).identity() != ""


def test_nodes_follow_the_configuration_unless_they_are_in_use(table: str) -> None:
    DynamoStore(Aws(), table, Site(), NODES)
    assert set(DynamoStore(Aws(), table, Site(), NODES[:1]).load().nodes) == {"gpu-1"}
    store(table).commit(Decision((Change(Node("gpu-1", "h100", ("r1",) * 8, version=1), 0),)))
    with pytest.raises(InvalidInput, match="has reservations"):
        DynamoStore(Aws(), table, Site(), [])


def test_a_table_that_does_not_exist_and_an_item_of_somebody_else_are_errors(endpoint: str, table: str) -> None:
    with pytest.raises(GpuctlError, match="cannot read the table missing"):
        store("missing").load()
    item = {"pk": {"S": "live"}, "sk": {"S": "disk/x"}, "kind": {"S": "disk"}, "body": {"S": json.dumps({"no": 1})}}
    client(endpoint, "dynamodb").put_item(TableName=table, Item=item)
    with pytest.raises(GpuctlError, match="an item cannot be read"):
        store(table).load()
