"""Store in one DynamoDB table, which a service and functions share.

Every commit moves the row `head` from its revision to the next one, so that commits exclude each other and a snapshot
of one revision is one of one instant. Nothing is read by Scan.
"""

from __future__ import annotations

import base64
import json
import random
import secrets
import time
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, cast

from gpuctl.core.errors import GpuctlError, InvalidInput, Unreachable
from gpuctl.edges.aws import Aws, NoAnswer, Request, cancellation_reasons, code_of
from gpuctl.reservations.rules.decision import Change, Decision, apply
from gpuctl.reservations.rules.model import DAY, AuditEntry, Book, Node, Receipt, Reservation, Site
from gpuctl.reservations.stores.base import Conflict, StoreError
from gpuctl.reservations.stores.codec import decode_site, encode_site
from gpuctl.reservations.stores.configured_nodes import configured
from gpuctl.reservations.stores.dynamo_items import (
    FIRST,
    HISTORY,
    LIVE,
    NEW,
    OVER,
    RECEIPTS,
    Action,
    Item,
    actions_of,
    check_versions,
    delete,
    history_of,
    item_key,
    latest_first,
    live_key,
    parts,
    put,
    row_of,
    size_of,
    text,
    whole,
    without_condition,
)

MOST_ACTIONS = 100  # of a transaction
MOST_BYTES = 3_500_000  # of a transaction, which may have 4 MB
STAGED_BYTES = 300_000  # of an item, which may have 400 KB
MOST_PAGE = 1000  # items of the history that are read at a time
TRIES = 20  # while others write
MOST_LOST = 5  # answers, each after a long wait, after which a change is given up
WAIT_S = 0.05  # before the second try
ANSWER_BYTES = 390_000  # of an item, which may have 400 KB
# Codes after which the same transaction is sent again
IN_PROGRESS = "TransactionInProgressException"
HINDERED = frozenset({"TransactionConflict", "ThrottlingError"})  # of actions of a transaction that was cancelled
FRESH_S = 120  # after which a report is too old
HEAD, IDENTITY, SITE, REPORT = "head", "identity", "site", "report"


@dataclass(frozen=True)
class Report:
    """Condition of nodes. `holder`: the service that reports. `unknown`: nodes that take no session, and why."""

    holder: str
    at: int
    unknown: Mapping[str, str]


@dataclass(frozen=True)
class _Head:
    """`pending`: token of a commit that is decided, but not all of whose rows are written yet; "" if there is none."""

    revision: int
    pending: str = ""


class DynamoStore:
    """Rows of a table with the keys `pk` and `sk`. `nodes`: None keeps those of the table.

    `site`: None for that of the service that has the table, which functions read, again after each change.

    A decision is one transaction. One with more rows than a transaction takes is staged first: with the `head` it is
    committed, and whoever reads next writes the rows.
    """

    def __init__(self, aws: Aws, table: str, site: Site | None, nodes: Iterable[Node] | None) -> None:
        self._aws, self._table = aws, table
        self._book: Book | None = None
        self._revision = -1
        self._follows = site is None
        self._site = site if site is not None else self._read_site()
        if nodes is not None:
            self._set_nodes(list(nodes))

    def close(self) -> None:
        """Nothing is open."""

    def load(self) -> Book:
        with self._errors("read"):
            head = self._head()
            for number in range(TRIES):
                _wait(number)
                if head.pending:
                    self._roll_forward(head)
                    head = self._head()
                    continue
                if self._book is not None and head.revision == self._revision:
                    return self._book
                rows = [row_of(item) for item in self._query(LIVE)]
                site = self._read_site() if self._follows else self._site
                before, head = head, self._head()
                if head == before:  # nobody wrote meanwhile
                    self._book = apply(Book(site, {}), [Change(row, row.version) for row in rows])
                    self._site, self._revision = site, head.revision
                    return self._book
        raise StoreError(f"read the table {self._table}", "others write all the time", "try again")

    def identity(self) -> str:
        """Random id of this table, made once; its nodes obey no other one."""
        existing = self._get(IDENTITY, FIRST)
        if existing is None:
            item = {**item_key(IDENTITY, FIRST), "id": text(secrets.token_hex(16))}
            self._transact([put(item, NEW)], secrets.token_hex(16))
            existing = self._get(IDENTITY, FIRST)
        return (existing or {"id": {"S": ""}})["id"]["S"]

    def receipt(self, key: str) -> Receipt | None:
        with self._errors("read"):
            item = self._get(f"receipt/{key}", FIRST)
            return None if item is None else Receipt(**json.loads(item["body"]["S"]))

    def commit(self, decision: Decision) -> None:
        try:
            with self._errors("write"):
                self._commit(decision, ())
        except Conflict:
            _wait(1)  # so that two who decide again and again do not meet each time
            raise

    def reservation(self, id_: str) -> Reservation | None:
        live = self.load().reservations.get(id_)
        if live is not None:
            return live
        with self._errors("read"):
            item = self._get(f"reservation/{id_}", FIRST)
            return None if item is None else cast(Reservation, row_of(item))

    def finished(self, person: str | None, most: int) -> Sequence[Reservation]:
        with self._errors("read"):
            items = self._query(OVER if person is None else f"{OVER}/{person}", most=most)
            return [cast(Reservation, row_of(item)) for item in items]

    def history(self, subject: str | None, most: int) -> Sequence[AuditEntry]:
        with self._errors("read"):
            partition, after, number = HISTORY if subject is None else history_of(subject), "", most
            entries = list[AuditEntry]()
            while len(entries) < most:  # a commit can have many entries, or none
                items = self._query(partition, most=number, after=after)
                entries += [AuditEntry(**plain) for item in items for plain in reversed(json.loads(item["body"]["S"]))]
                if len(items) < number:
                    break
                after, number = items[-1]["sk"]["S"], min(2 * number, MOST_PAGE)
            return entries[:most]

    def forget_receipts(self, before_at: int) -> int:
        with self._errors("write"):
            items = self._query(RECEIPTS, until=f"{before_at:012d}")
            for item in items:
                receipt = item_key(f"receipt/{item['key']['S']}", FIRST)
                self._transact([delete(receipt), delete(item_key(RECEIPTS, item["sk"]["S"]))], secrets.token_hex(16))
            return len(items)

    # ---- a service and functions ----------------------------------------------------------------------------------

    def put_site(self) -> None:
        """Store the rules of the site, for functions. It is a commit, so that nobody decides by the rules before."""
        item = {**item_key(SITE, FIRST), "body": text(encode_site(self._site))}
        with self._errors("write"):
            if self._get(SITE, FIRST) == item:
                return
            try:
                self._commit(Decision(()), [put(item)])
            except Conflict as error:
                raise StoreError(f"use the table {self._table}", str(error), "try again") from error

    def put_report(self, report: Report, over: Report | None = None) -> None:
        """Store the condition of nodes; `InvalidInput` if another service has done so. `over`: its report, unchanged
        since it was read, which is replaced.
        """
        condition: dict[str, Any] = {
            "ConditionExpression": f"{NEW} OR #h = :holder",
            "ExpressionAttributeNames": {"#h": "holder"},
            "ExpressionAttributeValues": {":holder": text(report.holder)},
        }
        if over is not None:
            condition["ConditionExpression"] += " OR (#h = :other AND #a = :at)"
            condition["ExpressionAttributeNames"]["#a"] = "at"
            condition["ExpressionAttributeValues"] |= {":other": text(over.holder), ":at": whole(over.at)}
        item = {**item_key(REPORT, FIRST), "holder": text(report.holder), "at": whole(report.at)}
        item["body"] = text(json.dumps(dict(report.unknown)))
        with self._errors("write"):
            if self._transact([put(item, **condition)], secrets.token_hex(16)):
                self.check_holder(report.holder)

    def check_holder(self, holder: str) -> None:
        """`InvalidInput` unless the last report is of this service, which then has the table."""
        last = self.report()
        if last is None or last.holder != holder:
            wrong = f"the service {last.holder if last else 'of nobody'} serves this table already"
            raise InvalidInput(f"use the table {self._table}", wrong, f"stop that one first, and wait for {FRESH_S} s")

    def report(self) -> Report | None:
        """The condition of nodes as their service has reported it last."""
        with self._errors("read"):
            item = self._get(REPORT, FIRST)
            if item is None:
                return None
            return Report(item["holder"]["S"], int(item["at"]["N"]), json.loads(item["body"]["S"]))

    def put_answer(self, sender: str, key: str, answer: Mapping[str, Any]) -> None:
        """Store the answer to a call, which its sender alone reads; DynamoDB deletes it after a day or later."""
        text = json.dumps(answer, separators=(",", ":"))
        body = base64.b64encode(zlib.compress(text.encode())).decode()
        if len(body) > ANSWER_BYTES:
            hint = "log in to the machine of the service for it"
            answer = {
                "error": "cannot answer: the answer is too long",
                "hint": hint,
                "exit_code": GpuctlError.exit_code,
            }
            body = base64.b64encode(zlib.compress(json.dumps(answer).encode())).decode()
        with self._errors("write"):
            self._put({**answer_key(sender, key), "expires": whole(int(time.time()) + DAY)}, body)

    def _put(self, place: Item, body: str) -> None:
        self._transact([put({**place, "body": text(body)})], secrets.token_hex(16))

    def _read_site(self) -> Site:
        with self._errors("read"):
            item = self._get(SITE, FIRST)
            if item is None:
                hint = f"start `gpuctl reservations serve --table {self._table}` once"
                raise InvalidInput(f"use the table {self._table}", "no service has served it yet", hint)
            return decode_site(item["body"]["S"])

    # ---- commits --------------------------------------------------------------------------------------------------

    def _commit(self, decision: Decision, more: Sequence[Action]) -> None:
        """Write a decision on its rows, and more; one that others have made stale is checked again on newer rows.

        `Conflict` also if the rules of the site are others since.
        """
        site = self._site
        for number in range(TRIES):
            _wait(number)
            book, revision = self.load(), self._revision
            if self._site != site:
                raise Conflict("the rules of the site have changed")
            check_versions(book, decision.changes)
            token = secrets.token_hex(16)
            actions = [*actions_of(decision, revision + 1, token), *more]
            if self._write(actions, revision, token):
                self._book, self._revision = apply(book, decision.changes), revision + 1
                return
        raise Conflict("others write all the time")

    def _write(self, actions: Sequence[Action], revision: int, token: str) -> bool:
        """Write the actions of a commit; False if others have written since this revision. `Conflict` as `commit`."""
        if len(actions) >= MOST_ACTIONS or size_of(actions) > MOST_BYTES:
            return self._write_staged(actions, revision, token)
        failed = self._transact([self._next_head(revision), *actions], token)
        if failed and self._has_committed(revision + 1, token):  # its first answer was lost
            return True
        if failed and 0 not in failed:
            raise Conflict("a row or a receipt exists already, or is of another version")
        return not failed

    def _write_staged(self, actions: Sequence[Action], revision: int, token: str) -> bool:
        """Commit more actions than a transaction takes: they are staged, then the head names them.

        All commits change the head, so what is true before is true then.
        """
        for action in actions:
            self._check_new(action)
        for number, part in enumerate(parts(actions, MOST_ACTIONS * MOST_ACTIONS, STAGED_BYTES)):
            item = {**item_key(f"staged/{token}", f"{number:06d}"), "body": text(json.dumps(part))}
            self._transact([put(item)], secrets.token_hex(16))
        if self._transact([self._next_head(revision, token)], token) and self._head() != _Head(revision + 1, token):
            return self._has_committed(revision + 1, token)
        self._roll_forward(_Head(revision + 1, token))
        return True

    def _roll_forward(self, head: _Head) -> None:
        """Write the rows of a commit that is staged. Several may do it at a time: each does the same, and nobody does
        it after its end.
        """
        partition = f"staged/{head.pending}"
        staged = self._query(partition)
        is_pending = {
            "ConditionExpression": "#p = :token",
            "ExpressionAttributeNames": {"#p": "pending"},
            "ExpressionAttributeValues": {":token": text(head.pending)},
        }
        check = {"ConditionCheck": {"Key": item_key(HEAD, FIRST), **is_pending}}
        actions = [action for item in staged for action in json.loads(item["body"]["S"])]
        writes = [without_condition(action) for action in actions if "ConditionCheck" not in action]
        for part in parts(writes, MOST_ACTIONS - 1, MOST_BYTES):
            if self._transact([check, *part], secrets.token_hex(16)):
                return  # another one has ended it
        end = {"Update": {"Key": item_key(HEAD, FIRST), "UpdateExpression": "REMOVE #p", **is_pending}}
        self._transact([end], secrets.token_hex(16))
        for item in staged:
            self._transact([delete(item_key(partition, item["sk"]["S"]))], secrets.token_hex(16))

    def _next_head(self, revision: int, pending: str = "") -> Action:
        values = {":next": whole(revision + 1), ":now": whole(revision), ":pending": text(pending)}
        condition = "#r = :now" if revision else NEW
        update: dict[str, Any] = {
            "Key": item_key(HEAD, FIRST),
            "UpdateExpression": f"SET #r = :next{', #p = :pending' if pending else ''}",
            "ConditionExpression": f"{condition} AND attribute_not_exists(#p)",
            "ExpressionAttributeNames": {"#r": "revision", "#p": "pending"},
            "ExpressionAttributeValues": {
                name: value
                for name, value in values.items()
                if (revision or name != ":now") and (pending or name != ":pending")
            },
        }
        return {"Update": update}

    def _check_new(self, action: Action) -> None:
        """`Conflict` if an item exists that an action of a staged commit must not replace."""
        [(kind, content)] = action.items()
        if content.get("ConditionExpression") == NEW:
            place = content["Key"] if kind == "ConditionCheck" else content["Item"]
            if self._get(place["pk"]["S"], place["sk"]["S"]) is not None:
                raise Conflict(f"{place['pk']['S']} exists already")

    def _has_committed(self, revision: int, token: str) -> bool:
        item = self._get(HISTORY, latest_first(revision))
        return item is not None and item["token"]["S"] == token

    def _set_nodes(self, nodes: Sequence[Node]) -> None:
        """Take the nodes of the configuration; one that is gone leaves once nobody holds its GPUs."""
        for _ in range(TRIES):
            changes, removed = configured(self.load().nodes, nodes, f"use the table {self._table}")
            if not changes and not removed:
                return
            try:
                with self._errors("write"):
                    self._commit(Decision(tuple(changes)), [delete(live_key(node)) for node in removed])
                    self._book = None  # it still has the nodes that are gone
            except Conflict:
                continue
            return
        raise GpuctlError(f"use the table {self._table}", "others write all the time", "stop them, and try again")

    # ---- the table ------------------------------------------------------------------------------------------------

    def _head(self) -> _Head:
        item = self._get(HEAD, FIRST)
        return _Head(0) if item is None else _Head(int(item["revision"]["N"]), item.get("pending", {"S": ""})["S"])

    def _get(self, partition: str, sort: str) -> Item | None:
        parameters = {"TableName": self._table, "Key": item_key(partition, sort), "ConsistentRead": True}
        [answer] = self._aws.read(self._request("read", "GetItem", parameters), dict[str, Any])
        return answer.get("Item")

    def _query(self, partition: str, most: int = 0, until: str = "", after: str = "") -> list[Item]:
        """Items of a partition by their sort keys; those before `until`, or those after `after`."""
        bounds = {name: bound for name, bound in ((":until", until), (":after", after)) if bound}
        conditions = [f"sk {'<' if name == ':until' else '>'} {name}" for name in bounds]
        parameters: dict[str, Any] = {
            "TableName": self._table,
            "ConsistentRead": True,
            "KeyConditionExpression": " AND ".join(["pk = :pk", *conditions]),
            "ExpressionAttributeValues": {
                ":pk": text(partition),
                **{name: text(bound) for name, bound in bounds.items()},
            },
            **({"Limit": most} if most else {}),
        }
        return self._aws.read(self._request("read", "Query", parameters, "Items", most), dict[str, Any])

    def _transact(self, actions: Sequence[Action], token: str) -> Sequence[int]:
        """Carry out actions as one; numbers of those whose conditions do not hold, after which nothing was written.

        `StoreError` if it may have been carried out, or if others were in the way all the time.
        """
        items = [{kind: {"TableName": self._table, **content} for kind, content in one.items()} for one in actions]
        request = self._request("write", "TransactWriteItems", {"TransactItems": items, "ClientRequestToken": token})
        lost, may_be_done = 0, False
        for number in range(TRIES):
            _wait(number)
            try:
                self._aws.act(request)
                return ()
            except GpuctlError as error:
                reasons = cancellation_reasons(error)
                failed = [place for place, reason in enumerate(reasons) if reason == "ConditionalCheckFailed"]
                if failed:
                    return failed
                # One in progress is our first try, whose answer was lost: the same token gets its result.
                unclear = isinstance(error, NoAnswer) or code_of(error) == IN_PROGRESS
                lost, may_be_done = lost + isinstance(error, NoAnswer), may_be_done or unclear
                if number < TRIES - 1 and lost < MOST_LOST and (unclear or set(reasons) & HINDERED):
                    continue
                if may_be_done or set(reasons) & HINDERED:
                    raise StoreError(error.doing, error.wrong, error.hint) from error
                raise
        raise AssertionError("unreachable")

    def _request(
        self, verb: str, operation: str, parameters: Mapping[str, Any], items: str = "", most: int = 0
    ) -> Request:
        return Request(f"{verb} the table {self._table}", "dynamodb", operation, items, parameters, most)

    @contextmanager
    def _errors(self, verb: str) -> Iterator[None]:
        try:
            yield
        except (ValueError, TypeError, KeyError) as error:
            wrong = f"an item cannot be read: {error}"
            raise GpuctlError(f"{verb} the table {self._table}", wrong, "restore it to a point in time") from error
        except (Unreachable, NoAnswer) as error:
            raise StoreError(error.doing, error.wrong, error.hint) from error


def answer_key(sender: str, key: str) -> Item:
    """Key of an answer; its partition is named after the sender, which policies compare (`dynamodb:LeadingKeys`)."""
    return item_key(f"answers/{sender}", key)


def read_answer(aws: Aws, table: str, sender: str, key: str) -> dict[str, Any] | None:
    """The answer to a call of the sender, None before it exists."""
    parameters = {"TableName": table, "Key": answer_key(sender, key), "ConsistentRead": True}
    request = Request("read the answer", "dynamodb", "GetItem", "", parameters)
    [item] = aws.read(request, lambda page: page.get("Item"))
    if item is None:
        return None
    answer: dict[str, Any] = json.loads(zlib.decompress(base64.b64decode(item["body"]["S"])))
    return answer


def _wait(number: int) -> None:
    """Wait before a further try, for longer each time; not before the first."""
    if number:
        time.sleep(min(1.0, WAIT_S * 2**number) * random.uniform(0.5, 1))  # noqa: S311 - spreads requests
