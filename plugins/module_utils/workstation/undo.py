"""Put back what was there before us; what the user edited since stays, unless forced."""

from __future__ import annotations

import os
from typing import Any

from .record import Record, look, remove_tree, restore, same

RESTORED, CONFLICT, GONE = "RESTORED", "CONFLICT", "REMOVED"


def undo(record: Record, check: bool, force: bool) -> list[dict[str, Any]]:
    """Go through the record; what is done is struck from it, so that a broken-off undo can go on."""
    told = [_one(record, path, check, force) for path in sorted(record.entries)]
    conflicts = [row["path"] for row in told if row["state"] == CONFLICT]
    for folder in list(record.tools):
        if any(os.path.realpath(path).startswith(folder + os.sep) for path in conflicts):
            continue  # the user's own link leads into it
        told.append(_row(folder, GONE, "its versions", changed=True))
        if not check:
            remove_tree(folder)
            record.tools.remove(folder)
            record.save()
    if not check:
        _remove_empty(record)
    return told


def _one(record: Record, path: str, check: bool, force: bool) -> dict[str, Any]:
    entry = record.entries[path]
    now = look(path)
    back = same(now, {k: v for k, v in entry["before"].items() if k != "content"})
    if not back and not same(now, entry["ours"]) and not force:
        return _row(path, CONFLICT, "it was changed since; --force takes it back and keeps a copy")
    if now["kind"] == "other":
        return _row(path, CONFLICT, "it is neither a file nor a link now")
    if not check:
        if not back and not same(now, entry["ours"]):
            record.keep_copy(path)
        if not back:
            os.makedirs(os.path.dirname(path), exist_ok=True)
            restore(path, entry["before"])
        del record.entries[path]
        record.save()
    was = {"absent": "there was none", "link": "a link", "file": "a file"}[entry["before"]["kind"]]
    return _row(path, RESTORED, was, changed=not back)


def _remove_empty(record: Record) -> None:
    for folder in sorted(record.folders, key=len, reverse=True):
        try:
            os.rmdir(folder)
        except FileNotFoundError:
            pass
        except OSError:
            continue  # somebody keeps things there now
        record.folders.remove(folder)
    record.save()


def _row(path: str, state: str, why: str, changed: bool = False) -> dict[str, Any]:
    return {"path": path, "state": state, "why": why, "changed": changed}
