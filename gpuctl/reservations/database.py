"""The database of the service: a file of this machine, or a table of DynamoDB that functions share."""

from __future__ import annotations

import os
import secrets
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from gpuctl.core.paths import write_atomically
from gpuctl.edges.aws import Aws
from gpuctl.reservations.node_states import NodeStates
from gpuctl.reservations.rules.model import Node, Site
from gpuctl.reservations.stores.base import Store
from gpuctl.reservations.stores.dynamodb import FRESH_S, DynamoStore, Report
from gpuctl.reservations.stores.sqlite import SqliteStore

FILE, HOLDER = "reservations.db", "holder"
POLL_S = 5  # between two readings of the report of another service, which reports about each 10 s


@dataclass(frozen=True)
class Stored:
    """Content of the database: the identity of the service for its nodes, and nodes. `label`: its text in messages."""

    identity: str
    label: str
    nodes: Mapping[str, Node]


class Database(Protocol):
    """Rows of a service. One service at a time has them."""

    def stored(self) -> Stored:
        """Identity and nodes; a file is made if there is none. `InvalidInput` if another service has the table."""

    def open(self, site: Site, nodes: Sequence[Node]) -> Store:
        """The store, with the nodes of the configuration."""

    def check(self) -> None:
        """`InvalidInput` if another service has the database meanwhile: this one must give no order then."""

    def report(self, nodes: NodeStates) -> None:
        """Store the condition of nodes, where others read it."""

    def close(self) -> None:
        """Close the store."""


class FileDatabase:
    """A file in a folder, whose lock the service has."""

    def __init__(self, state: Path) -> None:
        self._state = state
        self._store: SqliteStore | None = None

    def stored(self) -> Stored:
        store = SqliteStore(self._state / FILE, Site(), None)
        try:
            return Stored(store.identity(), _label(self._state), store.load().nodes)
        finally:
            store.close()

    def open(self, site: Site, nodes: Sequence[Node]) -> Store:
        self._store = SqliteStore(self._state / FILE, site, nodes)
        return self._store

    def check(self) -> None:
        """The lock of the folder excludes others."""

    def report(self, nodes: NodeStates) -> None:
        """Nobody else reads the file."""

    def close(self) -> None:
        if self._store is not None:
            self._store.close()


class TableDatabase:
    """A table of DynamoDB. Its services report into it, and refuse one that others report into."""

    def __init__(
        self,
        state: Path,
        table: str,
        monotonic: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], object] = time.sleep,
    ) -> None:
        self._monotonic, self._sleep = monotonic, sleep
        self._label, self._table = f"{_label(state)} (table {table})", table
        self._holder = f"{self._label} {_holder_id(state)}"
        self._aws = Aws()
        self._store: DynamoStore | None = None

    def stored(self) -> Stored:
        store = DynamoStore(self._aws, self._table, Site(), None)
        nodes = store.load().nodes
        self._take(store, self._report(dict.fromkeys(nodes, "the service starts")))
        return Stored(store.identity(), self._label, nodes)

    def open(self, site: Site, nodes: Sequence[Node]) -> Store:
        self._store = DynamoStore(self._aws, self._table, site, nodes)
        self._store.put_site()
        return self._store

    def check(self) -> None:
        if self._store is not None:
            self._store.check_holder(self._holder)

    def report(self, nodes: NodeStates) -> None:
        if self._store is not None:
            self._store.put_report(self._report({name: nodes.reason(name) for name in sorted(nodes.unknown)}))

    def close(self) -> None:
        """Nothing is open."""

    def _report(self, unknown: Mapping[str, str]) -> Report:
        return Report(self._holder, int(time.time()), unknown)

    def _take(self, store: DynamoStore, mine: Report) -> None:
        """Take the table. That of another service only once its report has not changed for `FRESH_S` on our clock."""
        last = store.report()
        end = self._monotonic() + FRESH_S
        while last is not None and last.holder != self._holder:
            if self._monotonic() >= end:
                store.put_report(mine, over=last)
                return
            self._sleep(POLL_S)
            before, last = last, store.report()
            if last != before:
                break
        store.put_report(mine)


def _holder_id(state: Path) -> str:
    """Random id of a folder of state, made once: names of machines and folders can be the same elsewhere."""
    path = state / HOLDER
    if not path.exists():
        write_atomically(path, secrets.token_hex(16))
    return path.read_text(encoding="utf-8").strip()


def _label(state: Path) -> str:
    return f"{os.uname().nodename}:{state.absolute()}"
