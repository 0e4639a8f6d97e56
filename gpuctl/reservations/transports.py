"""Transports of calls: the Unix socket of a service, or the queue and the table of a deployment on AWS."""

from __future__ import annotations

import json
import re
import secrets
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Protocol

from gpuctl.core.errors import GpuctlError, InvalidInput, Unreachable
from gpuctl.edges import unix_socket
from gpuctl.edges.aws import Aws, Request, code_of
from gpuctl.reservations.stores.dynamodb import read_answer

AWS_PREFIX = "aws:"
NAME = re.compile(r"[A-Za-z][A-Za-z0-9-]{0,39}")  # of a deployment: its queue, function and table have it, too
ANSWER_S, POLL_S = 60, 0.5
NO_QUEUE = ("NonExistentQueue", "QueueDoesNotExist")  # ends of codes


class Transport(Protocol):
    """Carries calls, and proves who sends them."""

    def call(self, call: Mapping[str, Any]) -> Any:
        """The answer to a call; `Unreachable` without one: the call may have been carried out."""

    def connect(self, call: Mapping[str, Any], source: int, sink: int) -> Any:
        """Connect two file descriptors with the sshd of a session, until either side closes."""


def transport(address: Path) -> Transport:
    """The transport of an address: a socket, or aws:NAME."""
    text = str(address)
    if not text.startswith(AWS_PREFIX):
        return SocketTransport(address)
    name = text.removeprefix(AWS_PREFIX)
    if not NAME.fullmatch(name):
        hint = f"such as --socket {AWS_PREFIX}gpu-reservations"
        raise InvalidInput("ask the reservation service", f"{name!r} is no name of a deployment", hint)
    return QueueTransport(Aws(), name)


class SocketTransport:
    """A socket of this machine; the kernel proves the account."""

    def __init__(self, socket: Path) -> None:
        self._socket = socket

    def call(self, call: Mapping[str, Any]) -> Any:
        return unix_socket.call(self._socket, dict(call))

    def connect(self, call: Mapping[str, Any], source: int, sink: int) -> Any:
        return unix_socket.connect(self._socket, dict(call), source, sink)


class QueueTransport:
    """A queue, whose messages AWS signs with the id of their sender, and a table where the sender reads the answers."""

    def __init__(self, aws: Aws, name: str, sleep: Callable[[float], object] = time.sleep) -> None:
        self._aws, self._name, self._sleep = aws, name, sleep
        self._identity: tuple[str, str] | None = None  # queue, sender

    def call(self, call: Mapping[str, Any]) -> Any:
        queue, sender = self._login()
        key = call.get("key") or secrets.token_urlsafe(12)
        body = json.dumps({**call, "key": key})
        parameters = {"QueueUrl": queue, "MessageBody": body}
        self._aws.act(Request("send the call", "sqs", "SendMessage", "", parameters))
        end = time.monotonic() + ANSWER_S
        while time.monotonic() < end:
            answer = read_answer(self._aws, self._name, sender, key)
            if answer is not None:
                return answer
            self._sleep(POLL_S)
        wrong = f"no answer within {ANSWER_S} s; it may still be carried out"
        raise Unreachable("ask the reservation service", wrong, f"see the log group /aws/lambda/{self._name}")

    def connect(self, call: Mapping[str, Any], source: int, sink: int) -> Any:
        raise InvalidInput("log in to a session", "a queue carries no connections", "log in on the service's machine")

    def _login(self) -> tuple[str, str]:
        if self._identity is None:
            doing = "find the queue"
            request = Request(doing, "sqs", "GetQueueUrl", "", {"QueueName": self._name})
            try:
                [queue] = self._aws.read(request, lambda page: str(page["QueueUrl"]))
            except GpuctlError as error:
                if not code_of(error).endswith(NO_QUEUE):
                    raise
                wrong = f"the account has no queue {self._name} in this region"
                raise InvalidInput(doing, wrong, "check the name after aws:, AWS_REGION and AWS_PROFILE") from error
            identity = Request("read who we are", "sts", "GetCallerIdentity")
            [sender] = self._aws.read(identity, lambda page: str(page["UserId"]))
            self._identity = queue, sender
        return self._identity
