"""Store in one SQLite file, for a laptop or a single server."""

from __future__ import annotations

import secrets
import sqlite3
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import cast

from gpuctl.core.errors import GpuctlError, InvalidInput
from gpuctl.reservations.rules.decision import Change, Decision, apply, is_over, key
from gpuctl.reservations.rules.model import AuditEntry, Book, Disk, Node, Receipt, Reservation, Row, Site
from gpuctl.reservations.stores.base import Conflict
from gpuctl.reservations.stores.codec import decode, encode
from gpuctl.reservations.stores.configured_nodes import configured

LAYOUT = 1  # `PRAGMA user_version` of the file
WAIT_S = 10  # for another process that writes
_TABLES = """
CREATE TABLE rows (kind TEXT, key TEXT, version INTEGER NOT NULL, live INTEGER NOT NULL, person TEXT,
  finished_at INTEGER, body TEXT NOT NULL, PRIMARY KEY (kind, key)) WITHOUT ROWID;
CREATE INDEX live_rows ON rows (live, kind);
CREATE INDEX finished_rows ON rows (finished_at) WHERE live = 0;
CREATE TABLE receipts (key TEXT PRIMARY KEY, fingerprint TEXT NOT NULL, at INTEGER NOT NULL, accepted INTEGER NOT NULL,
  reservation TEXT NOT NULL, message TEXT NOT NULL, hint TEXT NOT NULL) WITHOUT ROWID;
CREATE TABLE audit (number INTEGER PRIMARY KEY, at INTEGER NOT NULL, actor TEXT NOT NULL, action TEXT NOT NULL,
  subject TEXT NOT NULL, reason TEXT NOT NULL, before TEXT NOT NULL, after TEXT NOT NULL);
CREATE INDEX audit_subjects ON audit (subject);
"""
_IDENTITY = "CREATE TABLE IF NOT EXISTS identity (one INTEGER PRIMARY KEY CHECK (one = 1), id TEXT NOT NULL)"


class SqliteStore:
    """A file in WAL mode with full synchronisation: what was answered survives a power cut.

    The snapshot is cached as long as no other connection writes. Not for several threads at a time. `nodes`: None keeps
    those of the file.
    """

    def __init__(self, path: Path, site: Site, nodes: Iterable[Node] | None) -> None:
        self._path, self._site = path, site
        self._book: Book | None = None
        self._data_version = -1
        with self._errors("open"):
            self._db = sqlite3.connect(path, timeout=WAIT_S, isolation_level=None, check_same_thread=False)
            path.chmod(0o600)
            self._db.execute("PRAGMA journal_mode=WAL")
            self._db.execute("PRAGMA synchronous=FULL")
            self._create()
            if nodes is not None:
                self._set_nodes(list(nodes))

    def close(self) -> None:
        self._db.close()

    def load(self) -> Book:
        with self._errors("read"):
            [(version,)] = self._db.execute("PRAGMA data_version")
            if self._book is None or version != self._data_version:
                self._book, self._data_version = self._read(), version
        return self._book

    def identity(self) -> str:
        """Random id of this database, made once; its nodes obey no other one."""
        with self._errors("read"):
            [(id_,)] = self._db.execute("SELECT id FROM identity")
        return str(id_)

    def receipt(self, key: str) -> Receipt | None:
        with self._errors("read"):
            row = self._db.execute("SELECT * FROM receipts WHERE key = ?", [key]).fetchone()
        if row is None:
            return None
        name, fingerprint, at, accepted, *texts = row
        return Receipt(name, fingerprint, at, bool(accepted), *texts)

    def commit(self, decision: Decision) -> None:
        book = self.load()
        with self._errors("write"), self._transaction():
            for change in decision.changes:
                self._write(change)
            self._write_receipt(decision.receipt)
            self._db.executemany(
                "INSERT INTO audit (at, actor, action, subject, reason, before, after) VALUES (?, ?, ?, ?, ?, ?, ?)",
                [(e.at, e.actor, e.action, e.subject, e.reason, e.before, e.after) for e in decision.entries],
            )
        # Only if nobody wrote between the snapshot and this transaction: else the next load reads again.
        self._book = apply(book, decision.changes)

    def reservation(self, id_: str) -> Reservation | None:
        rows = self._select("kind = 'reservation' AND key = ?", [id_])
        return cast(Reservation, rows[0]) if rows else None

    def finished(self, person: str | None, most: int) -> Sequence[Reservation]:
        condition = (
            "kind = 'reservation' AND live = 0 AND (? IS NULL OR person = ?) ORDER BY finished_at DESC, key LIMIT ?"
        )
        return cast(list[Reservation], self._select(condition, [person, person, most]))

    def history(self, subject: str | None, most: int) -> Sequence[AuditEntry]:
        query = (
            "SELECT at, actor, action, subject, reason, before, after FROM audit "
            "WHERE ? IS NULL OR subject = ? ORDER BY number DESC LIMIT ?"
        )
        with self._errors("read"):
            return [AuditEntry(*row) for row in self._db.execute(query, [subject, subject, most])]

    def forget_receipts(self, before_at: int) -> int:
        with self._errors("write"):
            return self._db.execute("DELETE FROM receipts WHERE at < ?", [before_at]).rowcount

    # ---- rows -----------------------------------------------------------------------------------------------------

    def _read(self) -> Book:
        rows = self._select("live = 1", [])
        book = Book(self._site, {})
        return apply(book, [Change(row, row.version) for row in rows])

    def _select(self, condition: str, values: Sequence[object]) -> list[Row]:
        with self._errors("read"):
            query = f"SELECT kind, body FROM rows WHERE {condition}"  # noqa: S608 - conditions are constants
            return [decode(kind, body) for kind, body in self._db.execute(query, values)]

    def _write(self, change: Change) -> None:
        row = change.row
        kind, name = key(row)
        if isinstance(row, Disk) and is_over(row):  # another one may get its name
            self._delete(change)
            return
        over = is_over(row)
        person, finished_at = (row.person, row.finished_at) if isinstance(row, Reservation) else (None, None)
        values = (row.version, int(not over), person, finished_at, encode(row))
        update = (
            "UPDATE rows SET version=?, live=?, person=?, finished_at=?, body=? WHERE kind=? AND key=? AND version=?"
        )
        if self._db.execute(update, [*values, kind, name, change.expected]).rowcount == 1:
            return
        if change.expected != 0:
            raise Conflict(f"{kind} {name} is not of version {change.expected}")
        try:
            self._db.execute("INSERT INTO rows VALUES (?, ?, ?, ?, ?, ?, ?)", [kind, name, *values])
        except sqlite3.IntegrityError:
            raise Conflict(f"{kind} {name} exists already") from None

    def _delete(self, change: Change) -> None:
        kind, name = key(change.row)
        delete = "DELETE FROM rows WHERE kind=? AND key=? AND version=?"
        if self._db.execute(delete, [kind, name, change.expected]).rowcount != 1:
            raise Conflict(f"{kind} {name} is not of version {change.expected}")

    def _write_receipt(self, receipt: Receipt | None) -> None:
        if receipt is None:
            return
        head = (receipt.key, receipt.fingerprint, receipt.at, int(receipt.accepted))
        values = [*head, receipt.reservation, receipt.message, receipt.hint]
        try:
            self._db.execute("INSERT INTO receipts VALUES (?, ?, ?, ?, ?, ?, ?)", values)
        except sqlite3.IntegrityError:
            raise Conflict(f"there is a receipt of {receipt.key}") from None

    # ---- the file -------------------------------------------------------------------------------------------------

    def _create(self) -> None:
        with self._transaction():
            [(layout,)] = self._db.execute("PRAGMA user_version")
            if layout == 0:
                for statement in filter(str.strip, _TABLES.split(";")):
                    self._db.execute(statement)
                self._db.execute(f"PRAGMA user_version={LAYOUT}")
            if layout <= LAYOUT:
                self._db.execute(_IDENTITY)
                self._db.execute("INSERT OR IGNORE INTO identity VALUES (1, ?)", [secrets.token_hex(16)])
        if layout > LAYOUT:
            wrong = f"it was written by a newer gpuctl (layout {layout}, this one knows {LAYOUT})"
            raise InvalidInput(f"open {self._path}", wrong, "update gpuctl, or name another file")

    def _set_nodes(self, nodes: Sequence[Node]) -> None:
        """Take the nodes of the configuration; one that is gone leaves once nobody holds its GPUs."""
        existing = {node.name: node for node in cast(list[Node], self._select("kind = 'node'", []))}
        with self._transaction():
            changes, removed = configured(existing, nodes, f"open {self._path}")
            for change in changes:
                self._write(change)
            for node in removed:
                self._db.execute("DELETE FROM rows WHERE kind = 'node' AND key = ?", [node.name])

    @contextmanager
    def _transaction(self) -> Iterator[None]:
        self._db.execute("BEGIN IMMEDIATE")
        try:
            yield
        except BaseException:
            self._db.execute("ROLLBACK")
            raise
        self._db.execute("COMMIT")

    @contextmanager
    def _errors(self, verb: str) -> Iterator[None]:
        try:
            yield
        except sqlite3.Error as error:
            hint = "see that its disk is not full and its owner is the user of the service"
            raise GpuctlError(f"{verb} {self._path}", str(error), hint) from error
        except (ValueError, TypeError, KeyError) as error:
            wrong = f"a row cannot be read: {error}"
            raise GpuctlError(f"{verb} {self._path}", wrong, "restore the file from a backup") from error
