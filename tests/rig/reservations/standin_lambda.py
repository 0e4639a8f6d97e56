"""A stand-in for the part of AWS between a queue and a function, and moto with the true SenderId of messages.

moto writes one constant id as SenderId, and neither delivers batches nor reads their partial answers.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import pytest

from tests.rig.aws_endpoint import client
from tests.rig.reservations.aws_table import moto_with_isolated_requests

ACCOUNT, REGION = "123456789012", "us-east-1"
Handler = Callable[[Mapping[str, Any]], Mapping[str, Any]]


@contextmanager
def moto_with_true_sender_ids() -> Iterator[str]:
    """URL of moto whose messages carry the id of the access key that has sent them, as `aws:userid` of STS."""
    from moto.sqs.responses import SQSResponse
    from moto.sts.models import sts_backends

    send = SQSResponse.send_message

    def send_message(response: Any) -> Any:
        backend = sts_backends[response.current_account]["global"] if response.current_account else None
        assert backend is not None
        sender, _, _ = backend.get_caller_identity(response.get_access_key(), response.region)
        queue = response.sqs_backend.get_queue(response._get_queue_name())
        before = set(map(id, queue._messages))
        answer = send(response)
        for message in queue._messages:
            if id(message) not in before:
                message.sender_id = sender
        return answer

    with pytest.MonkeyPatch.context() as patch, moto_with_isolated_requests() as url:
        patch.setattr(SQSResponse, "send_message", send_message)
        yield url


@contextmanager
def user_ids_of_aws() -> Iterator[None]:
    """New users of moto have ids as AWS gives them, which begin with AIDA."""
    from moto.iam.utils import random_resource_id

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("moto.iam.models.random_resource_id", lambda: f"AIDA{random_resource_id().upper()[:17]}")
        yield


@dataclass(frozen=True)
class Login:
    """An access key. `sender`: the id that STS says it has."""

    key: str
    secret: str
    token: str
    sender: str


def user(url: str, name: str) -> Login:
    """A new IAM user."""
    iam = client(url, "iam")
    iam.create_user(UserName=name)
    key = iam.create_access_key(UserName=name)["AccessKey"]
    return _login(url, key["AccessKeyId"], key["SecretAccessKey"], "")


def role(url: str, name: str, trust: Mapping[str, Any] | None = None) -> str:
    """Id of a new role."""
    document = trust or {"Version": "2012-10-17", "Statement": []}
    made = client(url, "iam").create_role(RoleName=name, AssumeRolePolicyDocument=json.dumps(document))
    return str(made["Role"]["RoleId"])


def session(url: str, role: str, name: str) -> Login:
    """A session of a role with this name; moto lets everybody take every role with every name."""
    arn = f"arn:aws:iam::{ACCOUNT}:role/{role}"
    made = client(url, "sts").assume_role(RoleArn=arn, RoleSessionName=name)["Credentials"]
    return _login(url, made["AccessKeyId"], made["SecretAccessKey"], made["SessionToken"])


def _login(url: str, key: str, secret: str, token: str) -> Login:
    import botocore.session

    own = botocore.session.Session()
    own.set_credentials(key, secret, token or None)
    sts = own.create_client("sts", endpoint_url=url, region_name=REGION)
    return Login(key, secret, token, sts.get_caller_identity()["UserId"])


class StandinEventSource:
    """Delivers a queue's messages to a handler as Lambda does: batches, partial answers, a queue of dead letters."""

    def __init__(self, url: str, name: str, handler: Handler, most: int = 3) -> None:
        self._sqs = client(url, "sqs")
        self._handler, self.visibility_s = handler, 0
        dead = self._sqs.create_queue(QueueName=f"{name}-dead-letters")["QueueUrl"]
        self._dead = dead
        redrive = {
            "deadLetterTargetArn": f"arn:aws:sqs:{REGION}:{ACCOUNT}:{name}-dead-letters",
            "maxReceiveCount": most,
        }
        attributes = {"RedrivePolicy": json.dumps(redrive), "VisibilityTimeout": "0"}
        self.queue = self._sqs.create_queue(QueueName=name, Attributes=attributes)["QueueUrl"]
        self.arn = f"arn:aws:sqs:{REGION}:{ACCOUNT}:{name}"

    def deliver(self, times: int = 1) -> list[dict[str, Any]]:
        """Deliver what the queue has in one batch; its records. `times`: the same batch is delivered again."""
        names = {"MessageSystemAttributeNames": ["All"], "MessageAttributeNames": ["All"]}
        messages = self._sqs.receive_message(QueueUrl=self.queue, MaxNumberOfMessages=10, **names).get("Messages", [])
        records = [self._record(message) for message in messages]
        if not records:
            return []
        failed: set[str] = set()
        for _ in range(times):
            answer = self._handler({"Records": records})
            failed = {one["itemIdentifier"] for one in answer["batchItemFailures"]}
        for record in records:
            if record["messageId"] not in failed:
                self._sqs.delete_message(QueueUrl=self.queue, ReceiptHandle=record["receiptHandle"])
        return records

    def dead_letters(self) -> list[str]:
        """Bodies of messages that have failed too often."""
        messages = self._sqs.receive_message(QueueUrl=self._dead, MaxNumberOfMessages=10).get("Messages", [])
        return [message["Body"] for message in messages]

    def _record(self, message: Mapping[str, Any]) -> dict[str, Any]:
        attributes = {
            name: {"stringValue": value["StringValue"], "dataType": value["DataType"]}
            for name, value in message.get("MessageAttributes", {}).items()
        }
        return {
            "messageId": message["MessageId"],
            "receiptHandle": message["ReceiptHandle"],
            "body": message["Body"],
            "attributes": message["Attributes"],
            "messageAttributes": attributes,
            "md5OfBody": message["MD5OfBody"],
            "eventSource": "aws:sqs",
            "eventSourceARN": self.arn,
            "awsRegion": REGION,
        }
