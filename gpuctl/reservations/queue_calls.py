"""Calls that arrive as messages of SQS: their sender is proved by SQS, and answers are stored for the sender alone."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

from gpuctl.core.errors import GpuctlError, InvalidInput
from gpuctl.reservations.command_calls import VERBS, read_key
from gpuctl.reservations.rules import expiry, reconcile
from gpuctl.reservations.rules.model import Caller
from gpuctl.reservations.senders import DOING, Senders
from gpuctl.reservations.service import Service
from gpuctl.reservations.stores.base import StoreError

RESERVE_S = 40  # for a message: its reads, GitHub's answer, its commit and its answer
LONGEST = 64 * 1024  # characters of a call
READS = frozenset({"state", "history", "disks"})
PASS = {"do": "pass"}  # event of the schedule
Notify = Callable[[str], object]


class Answers(Protocol):
    """Answers by their senders, which each sender alone reads."""

    def put_answer(self, sender: str, key: str, answer: Mapping[str, Any]) -> None:
        """Store an answer; one to the same call is replaced."""


class QueueCalls:
    """Carries out batches of messages. `queue`: ARN of the queue. `notify`: takes lines for the log of the function."""

    def __init__(self, service: Service, senders: Senders, answers: Answers, queue: str, notify: Notify) -> None:
        self._service, self._senders, self._answers = service, senders, answers
        self._queue, self._notify = queue, notify

    def handle(self, event: Mapping[str, Any], left_s: Callable[[], float] = lambda: math.inf) -> dict[str, Any]:
        """Answer an event: the schedule's, or a batch. Messages that failed are named, and SQS delivers them again.

        `left_s`: seconds until the function is stopped. Messages for which too few are left are named as well.
        """
        if event == PASS:
            self.pass_once()
            return {}
        records: Sequence[Mapping[str, Any]] = event["Records"]
        failed = [record["messageId"] for record in records if left_s() < RESERVE_S or not self._take(record)]
        return {"batchItemFailures": [{"itemIdentifier": id_} for id_ in failed]}

    def pass_once(self) -> None:
        """Repair rows, and end what is over: also while the service that has the nodes does not run."""
        decide, limits = self._service.decisions.decide, self._service.decisions.load().site.limits
        decide("reconciler", reconcile.repair)
        decide("expiry", expiry.tick)
        self._service.store.forget_receipts(self._service.clock() - limits.receipts_s)

    def _take(self, record: Mapping[str, Any]) -> bool:
        """Carry out a message; False if it is to be delivered again. The log never has its content."""
        try:
            sender = str(record["attributes"]["SenderId"])
            key, answer = self._answer(record, sender)
            if key:
                self._answers.put_answer(sender, key, answer)
        except (StoreError, OSError) as error:
            self._notify(f"message {record['messageId']} is delivered again: {error}")
            return False
        except Exception as error:  # noqa: BLE001 - the others of the batch go on; a text could have content
            self._notify(f"message {record['messageId']} is delivered again: {type(error).__name__}")
            return False
        return True

    def _answer(self, record: Mapping[str, Any], sender: str) -> tuple[str, dict[str, Any]]:
        """The idempotency key of a message, "" without one, and the answer to it."""
        key = ""
        try:
            call = _call(record, self._queue)
            key = read_key({"key": call.get("key")})
            caller = self._senders.caller(sender)
            _check_fields(call)
        except InvalidInput as error:
            self._note(sender, str(error))
            return key, _error(error)
        return key, self._reply(caller, call)

    def _reply(self, caller: Caller, call: dict[str, Any]) -> dict[str, Any]:
        if call["do"] in READS:
            call = {name: value for name, value in call.items() if name != "key"}
        try:
            return self._service.reply(caller, call)
        except StoreError:
            raise
        except GpuctlError as error:
            return _error(error)

    def _note(self, sender: str, reason: str) -> None:
        """Enter a refused message into the history."""
        actor = f"sqs:{sender[:200]}"
        self._service.decisions.decide(actor, lambda draft: draft.note("refuse message", actor, reason))
        self._notify(f"refused a message of {sender[:200]!r}")


def _call(record: Mapping[str, Any], queue: str) -> dict[str, Any]:
    """The call of a message; `InvalidInput` for one of another queue, with attributes, or that is no call."""
    if record.get("eventSource") != "aws:sqs" or record.get("eventSourceARN") != queue:
        raise InvalidInput(DOING, "it is not from the queue of this site", "send it to that queue")
    if record.get("messageAttributes"):
        wrong = "it has message attributes, which the sender chooses"
        raise InvalidInput(DOING, wrong, "the sender is who SQS proves, never an attribute")
    body = str(record["body"])
    if len(body) > LONGEST:
        raise InvalidInput(DOING, f"it is longer than {LONGEST} characters", "name fewer keys")
    try:
        call = json.loads(body)
    except (ValueError, RecursionError) as error:
        raise InvalidInput(DOING, "it is not JSON", "use gpuctl to send it") from error
    if not isinstance(call, dict):
        raise InvalidInput(DOING, "it is not a call", "use gpuctl to send it")
    return call


def _check_fields(call: Mapping[str, Any]) -> None:
    """Refuse a call with other fields: one with a name in it would look like an identity, and is an attempt to note."""
    if str(call.get("do")) not in VERBS | READS:
        wrong = f"the call {str(call.get('do'))[:40]!r} is not answered by messages"
        raise InvalidInput(DOING, wrong, "log in to the machine of the service for it")
    unknown = set(call) - {"do", "key", "request", "command", "subject"}
    if unknown:
        wrong = f"the call has unknown fields: {', '.join(sorted(map(str, unknown)))[:200]}"
        raise InvalidInput(DOING, wrong, "the caller is who SQS proves, never a field")


def _error(error: GpuctlError) -> dict[str, Any]:
    return {"error": str(error), "hint": error.hint, "exit_code": error.exit_code}
