"""Store in one DynamoDB table, which a service and functions share.

Every commit moves the row `head` from its revision to the next one, so that commits exclude each other and a snapshot
of one revision is one of one instant. Nothing is read by Scan.
"""

from __future__ import annotations

import json
import random
import secrets
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from typing import Any, TypeAlias, cast

from gpuctl.core.errors import GpuctlError
from gpuctl.edges.aws import Aws, NoAnswer, Request, cancellation_reasons
from gpuctl.reservations.rules.decision import Change, Decision, apply, is_over, key
from gpuctl.reservations.rules.model import AuditEntry, Book, Node, Receipt, Reservation, Row, Site
from gpuctl.reservations.stores.base import Conflict
from gpuctl.reservations.stores.codec import decode, encode
from gpuctl.reservations.stores.configured_nodes import configured

Item: TypeAlias = dict[str, dict[str, str]]  # attributes as DynamoDB writes them
Action: TypeAlias = dict[str, dict[str, Any]]  # of TransactWriteItems
MOST_ACTIONS = 100  # of a transaction
MOST_BYTES = 3_500_000  # of a transaction, which may have 4 MB
STAGED_BYTES = 300_000  # of an item, which may have 400 KB
TRIES = 20  # while others write
WAIT_S = 0.05  # before the second try
LIVE, HEAD, IDENTITY = "live", "head", "identity"
HISTORY, OVER, RECEIPTS = "history", "over", "receipts"
FIRST = "-"  # sort key of items that are alone in their partition
LATEST = 10**12  # instants are subtracted from it, so that the latest comes first
_NEW = "attribute_not_exists(pk)"


@dataclass(frozen=True)
class _Head:
    """`pending`: token of a commit that is decided, but not all of whose rows are written yet; "" if there is none."""

    revision: int
    pending: str = ""


class DynamoStore:
    """Rows of a table with the keys `pk` and `sk`. `nodes`: None keeps those of the table.

    A decision is one transaction. One with more rows than a transaction takes is staged first: with the `head` it is
    committed, and whoever reads next writes the rows.
    """

    def __init__(self, aws: Aws, table: str, site: Site, nodes: Iterable[Node] | None) -> None:
        self._aws, self._table, self._site = aws, table, site
        self._book: Book | None = None
        self._revision = -1
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
                rows = [_row(item) for item in self._query(LIVE)]
                before, head = head, self._head()
                if head == before:  # nobody wrote meanwhile
                    self._book = apply(Book(self._site, {}), [Change(row, row.version) for row in rows])
                    self._revision = head.revision
                    return self._book
        raise GpuctlError(f"read the table {self._table}", "others write all the time", "try again")

    def identity(self) -> str:
        """Random id of this table, made once; its nodes obey no other one."""
        existing = self._get(IDENTITY, FIRST)
        if existing is None:
            item = {**_key(IDENTITY, FIRST), "id": _text(secrets.token_hex(16))}
            self._transact([_put(item, _NEW)], secrets.token_hex(16))
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
            return None if item is None else cast(Reservation, _row(item))

    def finished(self, person: str | None, most: int) -> Sequence[Reservation]:
        with self._errors("read"):
            items = self._query(OVER if person is None else f"{OVER}/{person}", most=most)
            return [cast(Reservation, _row(item)) for item in items]

    def history(self, subject: str | None, most: int) -> Sequence[AuditEntry]:
        with self._errors("read"):
            items = self._query(HISTORY if subject is None else f"{HISTORY}/{subject}", most=most)
            entries = [AuditEntry(**plain) for item in items for plain in reversed(json.loads(item["body"]["S"]))]
            return entries[:most]

    def forget_receipts(self, before_at: int) -> int:
        with self._errors("write"):
            items = self._query(RECEIPTS, until=f"{before_at:012d}")
            for item in items:
                receipt = _key(f"receipt/{item['key']['S']}", FIRST)
                self._transact([_delete(receipt), _delete(_key(RECEIPTS, item["sk"]["S"]))], secrets.token_hex(16))
            return len(items)

    # ---- commits --------------------------------------------------------------------------------------------------

    def _commit(self, decision: Decision, removed: Sequence[Node]) -> None:
        """Write a decision on its rows; one that others have made stale is checked again on newer rows."""
        for number in range(TRIES):
            _wait(number)
            book, revision = self.load(), self._revision
            _check(book, decision.changes)
            token = secrets.token_hex(16)
            actions = [*_actions(decision, revision + 1, token), *(_delete(_live_key(node)) for node in removed)]
            if self._write(actions, revision, token):
                tables = apply(book, decision.changes)
                nodes = {name: node for name, node in tables.nodes.items() if node not in removed}
                self._book = Book(book.site, nodes, tables.reservations, tables.usage, tables.disks, tables.clock)
                self._revision = revision + 1
                return
        raise Conflict("others write all the time")

    def _write(self, actions: Sequence[Action], revision: int, token: str) -> bool:
        """Write the actions of a commit; False if others have written since this revision. `Conflict` as `commit`."""
        if len(actions) >= MOST_ACTIONS or _size(actions) > MOST_BYTES:
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
        for number, part in enumerate(_parts(actions, MOST_ACTIONS * MOST_ACTIONS, STAGED_BYTES)):
            item = {**_key(f"staged/{token}", f"{number:06d}"), "body": _text(json.dumps(part))}
            self._transact([_put(item)], secrets.token_hex(16))
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
            "ExpressionAttributeValues": {":token": _text(head.pending)},
        }
        check = {"ConditionCheck": {"Key": _key(HEAD, FIRST), **is_pending}}
        actions = [action for item in staged for action in json.loads(item["body"]["S"])]
        writes = [_without_condition(action) for action in actions if "ConditionCheck" not in action]
        for part in _parts(writes, MOST_ACTIONS - 1, MOST_BYTES):
            if self._transact([check, *part], secrets.token_hex(16)):
                return  # another one has ended it
        end = {"Update": {"Key": _key(HEAD, FIRST), "UpdateExpression": "REMOVE #p", **is_pending}}
        self._transact([end], secrets.token_hex(16))
        for item in staged:
            self._transact([_delete(_key(partition, item["sk"]["S"]))], secrets.token_hex(16))

    def _next_head(self, revision: int, pending: str = "") -> Action:
        values = {":next": _number(revision + 1), ":now": _number(revision), ":pending": _text(pending)}
        condition = "#r = :now" if revision else _NEW
        update: dict[str, Any] = {
            "Key": _key(HEAD, FIRST),
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
        if content.get("ConditionExpression") == _NEW:
            place = content["Key"] if kind == "ConditionCheck" else content["Item"]
            if self._get(place["pk"]["S"], place["sk"]["S"]) is not None:
                raise Conflict(f"{place['pk']['S']} exists already")

    def _has_committed(self, revision: int, token: str) -> bool:
        item = self._get(HISTORY, _latest_first(revision))
        return item is not None and item["token"]["S"] == token

    def _set_nodes(self, nodes: Sequence[Node]) -> None:
        """Take the nodes of the configuration; one that is gone leaves once nobody holds its GPUs."""
        for _ in range(TRIES):
            changes, removed = configured(self.load().nodes, nodes, f"use the table {self._table}")
            if not changes and not removed:
                return
            try:
                with self._errors("write"):
                    self._commit(Decision(tuple(changes)), removed)
            except Conflict:
                continue
            return
        raise GpuctlError(f"use the table {self._table}", "others write all the time", "stop them, and try again")

    # ---- the table ------------------------------------------------------------------------------------------------

    def _head(self) -> _Head:
        item = self._get(HEAD, FIRST)
        return _Head(0) if item is None else _Head(int(item["revision"]["N"]), item.get("pending", {"S": ""})["S"])

    def _get(self, partition: str, sort: str) -> Item | None:
        parameters = {"TableName": self._table, "Key": _key(partition, sort), "ConsistentRead": True}
        [answer] = self._aws.read(self._request("read", "GetItem", parameters), dict[str, Any])
        return answer.get("Item")

    def _query(self, partition: str, most: int = 0, until: str = "") -> list[Item]:
        """Items of a partition by their sort keys; those before `until`."""
        parameters: dict[str, Any] = {
            "TableName": self._table,
            "ConsistentRead": True,
            "KeyConditionExpression": "pk = :pk AND sk < :until" if until else "pk = :pk",
            "ExpressionAttributeValues": {":pk": _text(partition), **({":until": _text(until)} if until else {})},
            **({"Limit": most} if most else {}),
        }
        return self._aws.read(self._request("read", "Query", parameters, "Items", most), dict[str, Any])

    def _transact(self, actions: Sequence[Action], token: str) -> Sequence[int]:
        """Carry out actions as one; numbers of those whose conditions do not hold, after which nothing was written."""
        items = [{kind: {"TableName": self._table, **content} for kind, content in one.items()} for one in actions]
        request = self._request("write", "TransactWriteItems", {"TransactItems": items, "ClientRequestToken": token})
        for number in range(TRIES):
            _wait(number)
            try:
                self._aws.act(request)
                return ()
            except NoAnswer:
                if number == TRIES - 1:
                    raise
            except GpuctlError as error:
                reasons = cancellation_reasons(error)
                failed = [place for place, reason in enumerate(reasons) if reason == "ConditionalCheckFailed"]
                if failed:
                    return failed
                if number == TRIES - 1 or not set(reasons) & {"TransactionConflict", "ThrottlingError"}:
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


# ---- items -----------------------------------------------------------------------------------------------------------


def _actions(decision: Decision, revision: int, token: str) -> list[Action]:
    """Actions of a transaction that write a decision as this revision."""
    actions = [action for change in decision.changes for action in _row_actions(change)]
    receipt = decision.receipt
    if receipt is not None:
        body = {"body": _text(json.dumps(asdict(receipt)))}
        actions.append(_put({**_key(f"receipt/{receipt.key}", FIRST), **body}, _NEW))
        actions.append(_put({**_key(RECEIPTS, f"{receipt.at:012d} {receipt.key}"), "key": _text(receipt.key)}))
    by_subject: dict[str, list[AuditEntry]] = {}
    for entry in decision.entries:
        by_subject.setdefault(entry.subject, []).append(entry)
    histories = {HISTORY: decision.entries, **{f"{HISTORY}/{name}": rows for name, rows in by_subject.items()}}
    for partition, entries in histories.items():
        body = {"body": _text(json.dumps([asdict(entry) for entry in entries])), "token": _text(token)}
        actions.append(_put({**_key(partition, _latest_first(revision)), **body}))
    return actions


def _row_actions(change: Change) -> list[Action]:
    row, actions = change.row, list[Action]()
    item = {"kind": _text(key(row)[0]), "version": _number(row.version), "body": _text(encode(row))}
    if not is_over(row):
        actions.append(_put({**_live_key(row), **item}, **_of_version(change.expected)))
    elif change.expected:
        actions.append(_delete(_live_key(row), **_of_version(change.expected)))
    if isinstance(row, Reservation) and is_over(row):
        sort = f"{_latest_first(row.finished_at or 0)} {row.id}"
        actions += [
            _put({**place, **item})
            for place in (_key(f"reservation/{row.id}", FIRST), _key(OVER, sort), _key(f"{OVER}/{row.person}", sort))
        ]
    elif isinstance(row, Reservation) and change.expected == 0:  # an id is not used again
        place = _key(f"reservation/{row.id}", FIRST)
        actions.append({"ConditionCheck": {"Key": place, "ConditionExpression": _NEW}})
    return actions


def _of_version(expected: int) -> dict[str, Any]:
    """Condition on the version of an item. One of version 0 may exist: a node that nobody has changed."""
    return {
        "ConditionExpression": "#v = :version" if expected else f"{_NEW} OR #v = :version",
        "ExpressionAttributeNames": {"#v": "version"},
        "ExpressionAttributeValues": {":version": _number(expected)},
    }


def _check(book: Book, changes: Sequence[Change]) -> None:
    """`Conflict` if a row of a snapshot is not of the version that a change expects."""
    tables: Mapping[str, Mapping[str, Row]] = {
        "reservation": book.reservations,
        "node": book.nodes,
        "usage": book.usage,
        "disk": book.disks,
        "clock": {"clock": book.clock},
    }
    for change in changes:
        kind, name = key(change.row)
        row = tables[kind].get(name)
        if (row.version if row else 0) != change.expected:
            raise Conflict(f"{kind} {name} is not of version {change.expected}")


def _row(item: Item) -> Row:
    return decode(item["kind"]["S"], item["body"]["S"])


def _live_key(row: Row) -> Item:
    return _key(LIVE, "/".join(key(row)))


def _latest_first(number: int) -> str:
    return f"{LATEST - number:013d}"


def _key(partition: str, sort: str) -> Item:
    return {"pk": _text(partition), "sk": _text(sort)}


def _text(value: str) -> dict[str, str]:
    return {"S": value}


def _number(value: int) -> dict[str, str]:
    return {"N": str(value)}


def _put(item: Item, condition: str = "", **more: Any) -> Action:
    return {"Put": {"Item": item, **({"ConditionExpression": condition} if condition else {}), **more}}


def _delete(place: Item, **more: Any) -> Action:
    return {"Delete": {"Key": place, **more}}


def _without_condition(action: Action) -> Action:
    [(kind, content)] = action.items()
    return {kind: {name: content[name] for name in ("Item", "Key") if name in content}}


def _size(actions: Sequence[Action]) -> int:
    return len(json.dumps(actions).encode())


def _parts(actions: Sequence[Action], most: int, most_bytes: int) -> Iterator[Sequence[Action]]:
    """The actions in parts of bounded number and size; one action is always a part."""
    part, size = list[Action](), 0
    for action in actions:
        added = _size([action])
        if part and (len(part) == most or size + added > most_bytes):
            yield part
            part, size = [], 0
        part.append(action)
        size += added
    if part:
        yield part


def _wait(number: int) -> None:
    """Wait before a further try, for longer each time; not before the first."""
    if number:
        time.sleep(min(1.0, WAIT_S * 2**number) * random.uniform(0.5, 1))  # noqa: S311 - spreads requests
