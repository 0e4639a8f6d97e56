"""Items of a reservations table, and actions of transactions that write them; nothing is read or written here."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from typing import Any, TypeAlias

from gpuctl.reservations.rules.decision import Change, Decision, is_over, key
from gpuctl.reservations.rules.model import AuditEntry, Book, Reservation, Row
from gpuctl.reservations.stores.base import Conflict
from gpuctl.reservations.stores.codec import decode, encode

Item: TypeAlias = dict[str, dict[str, str]]  # attributes as DynamoDB writes them
Action: TypeAlias = dict[str, dict[str, Any]]  # of TransactWriteItems
LIVE, HISTORY, OVER, RECEIPTS = "live", "history", "over", "receipts"
FIRST = "-"  # sort key of items that are alone in their partition
MOST_SUBJECT = 200  # characters in a key, which may have 2048 bytes: senders choose subjects
HISTORY_BYTES = 250_000  # of an item, which may have 400 KB
LATEST = 10**12  # numbers are subtracted from it, so that the latest comes first
NEW = "attribute_not_exists(pk)"


def actions_of(decision: Decision, revision: int, token: str) -> list[Action]:
    """Actions of a transaction that write a decision as this revision."""
    actions = [action for change in decision.changes for action in _row_actions(change)]
    receipt = decision.receipt
    if receipt is not None:
        body = {"body": text(json.dumps(asdict(receipt)))}
        actions.append(put({**item_key(f"receipt/{receipt.key}", FIRST), **body}, NEW))
        actions.append(put({**item_key(RECEIPTS, f"{receipt.at:012d} {receipt.key}"), "key": text(receipt.key)}))
    by_subject: dict[str, list[AuditEntry]] = {}
    for entry in decision.entries:
        by_subject.setdefault(entry.subject[:MOST_SUBJECT], []).append(entry)
    histories = {HISTORY: decision.entries, **{history_of(name): rows for name, rows in by_subject.items()}}
    for partition, entries in histories.items():
        for number, part in enumerate(reversed(list(_history_parts(entries)))):
            body = {"body": text(json.dumps(part)), "token": text(token)}
            sort = f"{latest_first(revision)}/{number:06d}" if number else latest_first(revision)
            actions.append(put({**item_key(partition, sort), **body}))
    return actions


def _history_parts(entries: Sequence[AuditEntry]) -> Iterator[Sequence[dict[str, Any]]]:
    """Entries in parts that fit into one item each, also as a text within a text while a commit is staged."""
    part, size = list[dict[str, Any]](), 0
    for entry in entries:
        plain = asdict(entry)
        added = len(json.dumps(json.dumps(plain)))
        if part and size + added > HISTORY_BYTES:
            yield part
            part, size = [], 0
        part.append(plain)
        size += added
    yield part


def _row_actions(change: Change) -> list[Action]:
    row, actions = change.row, list[Action]()
    item = {"kind": text(key(row)[0]), "version": whole(row.version), "body": text(encode(row))}
    if not is_over(row):
        actions.append(put({**live_key(row), **item}, **of_version(change.expected)))
    elif change.expected:
        actions.append(delete(live_key(row), **of_version(change.expected)))
    if isinstance(row, Reservation) and is_over(row):
        sort = f"{latest_first(row.finished_at or 0)} {row.id}"
        actions += [
            put({**place, **item})
            for place in (
                item_key(f"reservation/{row.id}", FIRST),
                item_key(OVER, sort),
                item_key(f"{OVER}/{row.person}", sort),
            )
        ]
    elif isinstance(row, Reservation) and change.expected == 0:  # an id is not used again
        place = item_key(f"reservation/{row.id}", FIRST)
        actions.append({"ConditionCheck": {"Key": place, "ConditionExpression": NEW}})
    return actions


def of_version(expected: int) -> dict[str, Any]:
    """Condition on the version of an item. One of version 0 may exist: a node that nobody has changed."""
    return {
        "ConditionExpression": "#v = :version" if expected else f"{NEW} OR #v = :version",
        "ExpressionAttributeNames": {"#v": "version"},
        "ExpressionAttributeValues": {":version": whole(expected)},
    }


def check_versions(book: Book, changes: Sequence[Change]) -> None:
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


def row_of(item: Item) -> Row:
    return decode(item["kind"]["S"], item["body"]["S"])


def live_key(row: Row) -> Item:
    return item_key(LIVE, "/".join(key(row)))


def latest_first(number: int) -> str:
    return f"{LATEST - number:013d}"


def history_of(subject: str) -> str:
    """Partition of the audit entries about a subject."""
    return f"{HISTORY}/{subject[:MOST_SUBJECT]}"


def item_key(partition: str, sort: str) -> Item:
    return {"pk": text(partition), "sk": text(sort)}


def text(value: str) -> dict[str, str]:
    """A text as DynamoDB writes it; what UTF-8 has not, which callers may send, is written as an escape."""
    return {"S": value.encode("utf-8", "backslashreplace").decode()}


def whole(value: int) -> dict[str, str]:
    return {"N": str(value)}


def put(item: Item, condition: str = "", **more: Any) -> Action:
    return {"Put": {"Item": item, **({"ConditionExpression": condition} if condition else {}), **more}}


def delete(place: Item, **more: Any) -> Action:
    return {"Delete": {"Key": place, **more}}


def without_condition(action: Action) -> Action:
    [(kind, content)] = action.items()
    return {kind: {name: content[name] for name in ("Item", "Key") if name in content}}


def size_of(actions: Sequence[Action]) -> int:
    return len(json.dumps(actions).encode())


def parts(actions: Sequence[Action], most: int, most_bytes: int) -> Iterator[Sequence[Action]]:
    """The actions in parts of bounded number and size; one action is always a part."""
    part, size = list[Action](), 0
    for action in actions:
        added = size_of([action])
        if part and (len(part) == most or size + added > most_bytes):
            yield part
            part, size = [], 0
        part.append(action)
        size += added
    if part:
        yield part
