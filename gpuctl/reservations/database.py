"""The database of the service: a file of this machine, or a table of DynamoDB that functions share."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from gpuctl.edges.aws import Aws
from gpuctl.reservations.node_states import NodeStates
from gpuctl.reservations.rules.model import Node, Site
from gpuctl.reservations.stores.base import Store
from gpuctl.reservations.stores.dynamodb import DynamoStore, Report
from gpuctl.reservations.stores.sqlite import SqliteStore

FILE = "reservations.db"


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

    def report(self, nodes: NodeStates) -> None:
        """Nobody else reads the file."""

    def close(self) -> None:
        if self._store is not None:
            self._store.close()


class TableDatabase:
    """A table of DynamoDB. Its services report into it, and refuse one that others report into."""

    def __init__(self, state: Path, table: str) -> None:
        self._label, self._table = f"{_label(state)} (table {table})", table
        self._aws = Aws()
        self._store: DynamoStore | None = None

    def stored(self) -> Stored:
        store = DynamoStore(self._aws, self._table, Site(), None)
        nodes = store.load().nodes
        store.put_report(self._report(dict.fromkeys(nodes, "the service starts")))
        return Stored(store.identity(), self._label, nodes)

    def open(self, site: Site, nodes: Sequence[Node]) -> Store:
        self._store = DynamoStore(self._aws, self._table, site, nodes)
        self._store.put_site()
        return self._store

    def report(self, nodes: NodeStates) -> None:
        if self._store is not None:
            self._store.put_report(self._report({name: nodes.reason(name) for name in sorted(nodes.unknown)}))

    def close(self) -> None:
        """Nothing is open."""

    def _report(self, unknown: Mapping[str, str]) -> Report:
        return Report(self._label, int(time.time()), unknown)


def _label(state: Path) -> str:
    return f"{os.uname().nodename}:{state.absolute()}"
