"""Calls that arrive by SQS: who sends them, what is refused, and what becomes of messages that come twice or fail.

The endpoint is moto with true ids of senders; what lies between the queue and the function is a stand-in. Policies are
not enforced there: tests/unit/reservations/test_aws_template.py checks their text.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from gpuctl.core.errors import InvalidInput, Unreachable
from gpuctl.edges.aws import Aws, NoAnswer
from gpuctl.reservations.client import Client, Refused
from gpuctl.reservations.queue_calls import PASS, RESERVE_S, QueueCalls
from gpuctl.reservations.rules.commands import Cancel
from gpuctl.reservations.rules.model import HOUR, Limits, Node, Site, State
from gpuctl.reservations.rules.requests import Request
from gpuctl.reservations.senders import Senders
from gpuctl.reservations.service import Service
from gpuctl.reservations.stores.dynamodb import DynamoStore, read_answer
from gpuctl.reservations.transports import QueueTransport
from tests.rig.aws_endpoint import client
from tests.rig.reservations.aws_table import aws_login, new_table
from tests.rig.reservations.standin_lambda import (
    Login,
    StandinEventSource,
    moto_with_true_sender_ids,
    role,
    session,
    user,
)

NODES = [Node(f"gpu-{number}", "h100", (None,) * 8) for number in (1, 2)]
REQUEST = {"gpus": 8, "length_s": HOUR}
_NUMBERS = itertools.count(1)


@pytest.fixture(scope="module")
def moto() -> Iterator[str]:
    with moto_with_true_sender_ids() as url:
        yield url


class FailingAws(Aws):
    """Gives no answer while `fails`."""

    fails = False

    def act(self, request: Any) -> dict[str, Any]:
        if self.fails:
            raise NoAnswer("write", "AWS gave no answer in time")
        return super().act(request)


class Lab:
    """A queue, a table and a function; people with logins of their own."""

    def __init__(self, url: str) -> None:
        self.url, self.number, self.now = url, next(_NUMBERS), 1_000_000
        self.name = new_table(url)
        self.ada, self.bob = user(url, f"ada{self.number}"), user(url, f"bob{self.number}")
        self.role = f"gpu-users-{self.number}"
        self.role_id = role(url, self.role)
        self.aws = FailingAws()
        self.store = DynamoStore(self.aws, self.name, Site(Limits()), NODES)
        self.store.put_site()
        self.service = Service(self.store, {}, lambda: self.now)
        people = {self.ada.sender: "ada", self.bob.sender: "bob"}
        senders = Senders(people, {self.role_id: self.role}, {"ada": "vision"}, ("root",))
        self.log = list[str]()
        arn = f"arn:aws:sqs:us-east-1:123456789012:{self.name}"
        self.calls = QueueCalls(self.service, senders, self.store, arn, self.log.append)
        self.source = StandinEventSource(url, self.name, self.calls.handle)

    def send(self, login: Login, call: Any, **more: Any) -> None:
        """Send a message as somebody."""
        import botocore.session

        own = botocore.session.Session()
        own.set_credentials(login.key, login.secret, login.token or None)
        sqs = own.create_client("sqs", endpoint_url=self.url, region_name="us-east-1")
        body = call if isinstance(call, str) else json.dumps(call)
        sqs.send_message(QueueUrl=self.source.queue, MessageBody=body, **more)

    def answer(self, login: Login, key: str = "key-0001") -> dict[str, Any] | None:
        """The answer to somebody's call, as it is stored."""
        return read_answer(self.aws, self.name, login.sender, key)

    def submit(self, login: Login, key: str = "key-0001", **fields: Any) -> dict[str, Any] | None:
        self.send(login, {"do": "submit", "key": key, "request": REQUEST, **fields})
        self.source.deliver()
        return self.answer(login, key)

    def people(self) -> list[str]:
        return [row.person for row in self.store.load().reservations.values()]

    def refusals(self) -> list[str]:
        return [f"{one.actor} {one.reason}" for one in self.store.history(None, 50) if one.action == "refuse message"]


@pytest.fixture
def lab(moto: str) -> Iterator[Lab]:
    with aws_login(moto):
        yield Lab(moto)


# ---- who is who ------------------------------------------------------------------------------------------------------


def test_the_user_and_the_session_that_sqs_proves_are_the_people(lab: Lab) -> None:
    answer = lab.submit(lab.ada)
    assert answer is not None
    assert (answer["reservation"]["person"], answer["reservation"]["state"]) == ("ada", "queued")
    [row] = lab.store.load().reservations.values()
    assert (row.person, row.group) == ("ada", "vision")
    cy = session(lab.url, lab.role, "cy@example.org")
    assert cy.sender == f"{lab.role_id}:cy@example.org"
    lab.submit(cy)
    assert sorted(lab.people()) == ["ada", "cy@example.org"]


def test_a_name_in_the_body_is_refused_and_noted(lab: Lab) -> None:
    names: dict[str, Any] = {
        "person": "ada",
        "user_id": "ada",
        "SenderId": "AIDA",
        "admin": True,
        "caller": {"n": "ada"},
    }
    for number, (field, value) in enumerate(names.items(), 1):
        answer = lab.submit(lab.bob, f"key-000{number}", **{field: value})
        assert answer is not None
        assert f"unknown fields: {field}" in answer["error"]
        assert lab.refusals()[0].startswith(f"sqs:{lab.bob.sender} ")
    assert lab.people() == []
    assert len(lab.refusals()) == len(names)


def test_a_name_within_the_request_is_refused(lab: Lab) -> None:
    answer = lab.submit(lab.bob, request={**REQUEST, "person": "ada"})
    assert answer is not None
    assert "no valid request" in answer["error"]
    assert lab.people() == []


def test_keys_as_if_the_function_had_read_them_are_refused(lab: Lab) -> None:
    keys = [{"login": "ada", "id": 1, "keys": "ssh-ed25519 AAAA"}]
    lab.send(lab.bob, {"do": "submit", "key": "key-0001", "request": REQUEST, "resolved": keys})
    lab.source.deliver()
    assert lab.people() == []
    assert len(lab.refusals()) == 1


def test_a_message_attribute_with_a_name_is_refused_and_noted(lab: Lab) -> None:
    attributes = {"SenderId": {"StringValue": lab.ada.sender, "DataType": "String"}}
    lab.send(lab.bob, {"do": "submit", "key": "key-0001", "request": REQUEST}, MessageAttributes=attributes)
    lab.source.deliver()
    assert lab.people() == []
    assert "message attributes" in lab.refusals()[0]


@pytest.mark.parametrize("name", ["ada", "root"])
def test_a_session_of_another_role_with_the_name_of_somebody_is_refused(lab: Lab, name: str) -> None:
    """The fault of the peer: all pods share one role, and a process chooses the name of its session."""
    role(lab.url, f"pods-{lab.number}")
    pod = session(lab.url, f"pods-{lab.number}", name)
    answer = lab.submit(pod)
    assert answer is not None
    assert "is not one of this site" in answer["error"]
    assert lab.people() == []
    assert lab.refusals()[0].startswith(f"sqs:{pod.sender} ")


def test_a_role_that_was_made_again_under_the_same_name_is_another_one(lab: Lab) -> None:
    client(lab.url, "iam").delete_role(RoleName=lab.role)
    role(lab.url, lab.role)
    answer = lab.submit(session(lab.url, lab.role, "ada"))
    assert answer is not None
    assert "is not one of this site" in answer["error"]


def test_a_user_that_was_made_again_under_the_same_name_is_another_one(lab: Lab) -> None:
    iam, name = client(lab.url, "iam"), f"ada{lab.number}"
    iam.delete_access_key(UserName=name, AccessKeyId=lab.ada.key)
    iam.delete_user(UserName=name)
    lab.submit(user(lab.url, name))
    assert lab.people() == []


RECORD = {"messageId": "m", "receiptHandle": "r", "messageAttributes": {}, "eventSource": "aws:sqs"}


def test_senders_that_prove_nobody_are_refused(lab: Lab) -> None:
    """The root of the account, a federated user (who chooses the name), a service such as SNS, other roles, and texts
    after the id of the role that are no names of people.
    """
    senders = ["123456789012", "123456789012:ada", "AIDAIENQZJOLO23YVJ4VO", "", ":ada", "ada", "AROAOTHERROLE0000:ada"]
    senders += [f"{lab.role_id}:{name}" for name in ("", "a b", "../ada", "ada:bob", "-", "ada\n", "x" * 65)]
    body = json.dumps({"do": "submit", "key": "key-0001", "request": REQUEST})
    for number, sender in enumerate(senders, 1):
        record = {**RECORD, "eventSourceARN": lab.source.arn, "attributes": {"SenderId": sender}, "body": body}
        assert lab.calls.handle({"Records": [record]}) == {"batchItemFailures": []}
        assert lab.people() == []
        assert len(lab.refusals()) == number


def test_a_message_of_another_queue_is_refused(lab: Lab) -> None:
    body = json.dumps({"do": "submit", "key": "key-0001", "request": REQUEST})
    attributes = {"SenderId": lab.ada.sender}
    record = {**RECORD, "eventSourceARN": f"{lab.source.arn}-mine", "attributes": attributes, "body": body}
    lab.calls.handle({"Records": [record]})
    assert lab.people() == []
    assert "not from the queue" in lab.refusals()[0]


def test_somebody_elses_reservation_and_answers_stay_theirs(lab: Lab) -> None:
    answer = lab.submit(lab.ada)
    assert answer is not None
    id_ = answer["reservation"]["id"]
    lab.send(lab.bob, {"do": "cancel", "key": "key-0001", "command": {"reservation": id_}})
    lab.source.deliver()
    refused = lab.answer(lab.bob)
    assert refused is not None
    assert "it belongs to ada, and you are bob" in refused["error"]
    assert lab.answer(lab.ada) == answer
    partitions = {item["pk"]["S"] for item in client(lab.url, "dynamodb").scan(TableName=lab.name)["Items"]}
    assert {f"answers/{lab.ada.sender}", f"answers/{lab.bob.sender}"} <= partitions


# ---- delivery --------------------------------------------------------------------------------------------------------


def test_a_batch_that_is_delivered_twice_acts_once(lab: Lab) -> None:
    answer = lab.submit(lab.ada)
    assert answer is not None
    with_start = {"reservation": answer["reservation"]["id"], "name": "sweep"}
    for login, key in ((lab.ada, "key-0002"), (lab.bob, "key-0003")):
        lab.send(login, {"do": "submit", "key": key, "request": REQUEST})
    lab.send(lab.ada, {"do": "edit", "key": "key-0004", "command": with_start})
    assert len(lab.source.deliver(times=3)) == 3
    assert sorted(lab.people()) == ["ada", "ada", "bob"]
    assert [one.action for one in lab.store.history(answer["reservation"]["id"], 9)].count("edit") == 1


def test_the_messages_of_a_batch_that_fail_come_again_alone_and_end_as_dead_letters(lab: Lab) -> None:
    lab.aws.fails = True
    lab.send(lab.ada, {"do": "submit", "key": "key-0001", "request": REQUEST})
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("gpuctl.reservations.stores.dynamodb.TRIES", 1)
        lab.source.deliver()
        assert "AWS gave no answer" in lab.log[-1]
        lab.aws.fails = False
        lab.source.deliver()
        assert lab.people() == ["ada"]
        lab.aws.fails = True
        lab.send(lab.bob, {"do": "submit", "key": "key-0002", "request": REQUEST})
        for _ in range(4):
            lab.source.deliver()
    lab.aws.fails = False
    [dead] = lab.source.dead_letters()
    assert json.loads(dead)["key"] == "key-0002"
    assert lab.people() == ["ada"]


def test_messages_that_are_no_calls_are_noted_and_do_not_come_again(lab: Lab) -> None:
    bodies = [
        "{",
        "[]",
        "null",
        json.dumps({"do": "submit"}),
        json.dumps({"do": ["submit"], "key": "key-0001"}),
        "[" * 9000,
    ]
    for body in bodies:
        lab.send(lab.ada, body)
    lab.send(lab.bob, {"do": "submit", "key": "key-0001", "request": REQUEST})
    lab.source.deliver()
    assert lab.people() == ["bob"]
    assert len(lab.refusals()) == len(bodies)
    assert lab.source.deliver() == []


@pytest.mark.parametrize("key", ["\ud800aaaaaaaa", "key 0001", "key-000\n", "kéy-0001", "short"])
def test_a_key_that_no_store_can_have_is_refused_and_the_batch_goes_on(lab: Lab, key: str) -> None:
    body = {"do": "submit", "request": REQUEST}
    records = [
        {
            **RECORD,
            "messageId": sender,
            "eventSourceARN": lab.source.arn,
            "attributes": {"SenderId": sender},
            "body": one,
        }
        for sender, one in (
            (lab.ada.sender, json.dumps({**body, "key": key})),
            (lab.bob.sender, json.dumps({**body, "key": "key-0001"})),
        )
    ]
    assert lab.calls.handle({"Records": records}) == {"batchItemFailures": []}
    assert lab.people() == ["bob"]
    assert "no idempotency key" in lab.refusals()[0]


def test_a_subject_that_no_store_can_have_is_unknown_and_noted(lab: Lab) -> None:
    for key, call in (
        ("key-0001", {"do": "cancel", "command": {"reservation": "\ud800"}}),
        ("key-0002", {"do": "history", "subject": "\ud800"}),
    ):
        lab.send(lab.ada, {**call, "key": key})
        lab.source.deliver()
        answer = lab.answer(lab.ada, key)
        assert answer is not None
        assert "cannot be read" not in answer.get("error", "")


def test_messages_for_which_no_time_is_left_come_again(lab: Lab) -> None:
    """A function that is stopped in the middle would answer none of the batch."""
    body = json.dumps({"do": "submit", "key": "key-0001", "request": REQUEST})
    records = [
        {
            **RECORD,
            "messageId": name,
            "eventSourceARN": lab.source.arn,
            "attributes": {"SenderId": sender},
            "body": body,
        }
        for name, sender in (("m1", lab.ada.sender), ("m2", lab.bob.sender))
    ]
    left_s = iter([RESERVE_S + 1, RESERVE_S - 1])
    answer = lab.calls.handle({"Records": records}, lambda: next(left_s))
    assert answer == {"batchItemFailures": [{"itemIdentifier": "m2"}]}
    assert lab.people() == ["ada"]


def test_a_message_with_an_unexpected_error_alone_comes_again(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    reply = lab.service.reply

    def fail(caller: Any, call: Any) -> Any:
        if caller.person == "ada":
            raise UnicodeEncodeError("utf-8", "s3cret-value", 0, 1, "surrogates not allowed")
        return reply(caller, call)

    monkeypatch.setattr(lab.service, "reply", fail)
    body = json.dumps({"do": "submit", "key": "key-0001", "request": REQUEST})
    records = [
        {
            **RECORD,
            "messageId": name,
            "eventSourceARN": lab.source.arn,
            "attributes": {"SenderId": sender},
            "body": body,
        }
        for name, sender in (("m1", lab.ada.sender), ("m2", lab.bob.sender))
    ]
    assert lab.calls.handle({"Records": records}) == {"batchItemFailures": [{"itemIdentifier": "m1"}]}
    assert lab.people() == ["bob"]
    assert lab.log == ["message m1 is delivered again: UnicodeEncodeError"]


def test_the_log_has_no_content_of_messages(lab: Lab) -> None:
    lab.submit(lab.bob, password="s3cret-value")  # noqa: S106
    assert lab.log
    assert "s3cret-value" not in "".join(lab.log)


def test_the_schedule_ends_what_is_over_without_a_service(lab: Lab) -> None:
    lab.submit(lab.ada)
    lab.now += 15 * 24 * HOUR  # the longest wait is 14 days
    assert lab.calls.handle(PASS) == {}
    assert lab.people() == []
    assert lab.store.finished("ada", 1)[0].state is State.FAILED


# ---- the client ------------------------------------------------------------------------------------------------------


def test_the_client_sends_by_the_queue_and_reads_its_answers(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    with aws_login(lab.url, lab.bob.key, lab.bob.secret):
        bob = Client(Path(f"aws:{lab.name}"))
        waits = QueueTransport(Aws(), lab.name, lambda _: lab.source.deliver())
        monkeypatch.setattr(bob, "_transport", waits)
        row = bob.submit(Request(4, "H100"))["reservation"]
        assert (row["person"], row["gpus"], row["state"]) == ("bob", 4, "queued")
        assert bob.state()["person"] == "bob"
        assert bob.mine(None, "cancel")["id"] == row["id"]
        assert bob.send(Cancel(row["id"]))["message"] == "cancelled"
        with pytest.raises(Refused, match="not answered by messages"):
            bob.logs(row["id"], "gpu-1")


def test_a_deployment_that_does_not_exist_is_bad_input(lab: Lab) -> None:
    with pytest.raises(InvalidInput, match="has no queue missing"):
        Client(Path("aws:missing")).state()
    with pytest.raises(InvalidInput, match="no name of a deployment"):
        Client(Path("aws:"))
    assert lab.people() == []


def test_without_an_answer_the_client_says_that_the_call_may_still_be_carried_out(
    lab: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gpuctl.reservations.transports.ANSWER_S", 0.01)
    with pytest.raises(Unreachable, match="it may still be carried out"):
        QueueTransport(Aws(), lab.name).call({"do": "state"})
