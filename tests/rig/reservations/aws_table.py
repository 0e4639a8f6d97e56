"""Tables of reservations in moto, which keeps conditions and transactions, and ignores tokens of requests."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from gpuctl.edges.aws import Aws
from tests.rig.aws_endpoint import LOGIN, client, moto_endpoint

_NUMBERS = itertools.count()


@contextmanager
def aws_login(url: str, login: str = "testing", secret: str = "testing", token: str = "") -> Iterator[None]:  # noqa: S107
    """The environment names this endpoint and this access key while the context lasts."""
    keys = {"AWS_ACCESS_KEY_ID": login, "AWS_SECRET_ACCESS_KEY": secret, "AWS_SESSION_TOKEN": token}
    with pytest.MonkeyPatch.context() as patch:
        for name, value in {**LOGIN, **keys, "AWS_ENDPOINT_URL": url}.items():
            patch.setenv(name, value)
        yield


@contextmanager
def moto_with_isolated_requests() -> Iterator[str]:
    """URL of moto that answers one request for DynamoDB at a time.

    By itself it undoes a failed transaction by a copy of the table, which loses what others have written meanwhile.
    """
    from moto.dynamodb.responses import DynamoHandler

    answer, lock = DynamoHandler.call_action, threading.Lock()

    def alone(handler: Any) -> Any:
        with lock:
            return answer(handler)

    with pytest.MonkeyPatch.context() as patch, moto_endpoint() as url:
        patch.setattr(DynamoHandler, "call_action", alone)
        yield url


def new_table(url: str) -> str:
    """Name of a new, empty table."""
    name = f"reservations-{next(_NUMBERS)}"
    keys = ("pk", "HASH"), ("sk", "RANGE")
    client(url, "dynamodb").create_table(
        TableName=name,
        KeySchema=[{"AttributeName": key, "KeyType": kind} for key, kind in keys],
        AttributeDefinitions=[{"AttributeName": key, "AttributeType": "S"} for key, _ in keys],
        BillingMode="PAY_PER_REQUEST",
    )
    return name


def all_items(url: str, table: str) -> list[dict[str, Any]]:
    """Items of a table. Only tests scan."""
    items: list[dict[str, Any]] = client(url, "dynamodb").scan(TableName=table)["Items"]
    return items


class CountingAws(Aws):
    """Counts requests by their operation."""

    def __init__(self) -> None:
        super().__init__()
        self.operations: list[str] = []

    def read(self, request: Any, convert: Any) -> list[Any]:
        self.operations.append(request.operation)
        return super().read(request, convert)

    def act(self, request: Any) -> dict[str, Any]:
        self.operations.append(request.operation)
        return super().act(request)
