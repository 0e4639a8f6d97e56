"""Put back what was there before us; what the user edited since stays, unless forced."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from .record import Record, look, remove_tree, restore, same

RESTORED, CONFLICT, GONE, NOT_OURS = "RESTORED", "CONFLICT", "REMOVED", "NOT OURS"


def undo(record: Record, check: bool, force: bool) -> list[dict[str, Any]]:
    """Go through the record; what is done is struck from it, so that a broken-off undo can go on."""
    told = [_one(record, path, check, force) for path in sorted(record.entries)]
    told += _versions(record, list(record.tools), told, check)
    if not check:
        _remove_empty(record)
    return told


def remove(record: Record, programs: Mapping[str, str], check: bool, force: bool) -> list[dict[str, Any]]:
    """Take away some tools (name -> its program) that we installed; packages, and what was there before us, stay."""
    told: list[dict[str, Any]] = []
    for name, program in programs.items():
        ours = [path for path, entry in record.entries.items() if _links(path, entry, program)]
        folders = [folder for folder in record.tools if os.path.basename(folder) == name]
        if not ours and not folders:
            told.append(_row(name, NOT_OURS, "gpuctl did not install it, or only as a package: left alone"))
        links = [_one(record, path, check, force) for path in ours]
        told += [*links, *_versions(record, folders, links, check)]
    if not check:
        _remove_empty(record)
    return told


def _links(path: str, entry: Mapping[str, Any], program: str) -> bool:
    return bool(entry["ours"]["kind"] == "link" and os.path.basename(path) == program)


def _versions(record: Record, folders: list[str], told: list[dict[str, Any]], check: bool) -> list[dict[str, Any]]:
    """Remove the folders of tools, but none that a link of the user's own leads into."""
    conflicts = [row["path"] for row in told if row["state"] == CONFLICT]
    due = [f for f in folders if not any(os.path.realpath(path).startswith(f + os.sep) for path in conflicts)]
    return [_row(folder, GONE, "its versions", changed=True) if check else _gone(record, folder) for folder in due]


def _gone(record: Record, folder: str) -> dict[str, Any]:
    remove_tree(folder)
    if os.path.lexists(folder):
        return _row(folder, CONFLICT, "it cannot be removed: see who may write there, and undo again")
    record.drop_tool(folder)
    return _row(folder, GONE, "its versions", changed=True)


def _one(record: Record, path: str, check: bool, force: bool) -> dict[str, Any]:
    try:
        return _back(record, path, check, force)
    except OSError as error:  # which is no reason to leave the others
        return _row(path, CONFLICT, f"it cannot be put back: {error.strerror or error}")


def _back(record: Record, path: str, check: bool, force: bool) -> dict[str, Any]:
    entry = record.entries[path]
    now = look(path)
    back = same(now, {k: v for k, v in entry["before"].items() if k != "content"})
    if not back and not same(now, entry["ours"]) and not force:
        return _row(path, CONFLICT, "it was changed since; --force takes it back and keeps a copy")
    if now["kind"] == "other":
        return _row(path, CONFLICT, "it is neither a file nor a link now")
    kept = ""
    if not check:
        if not back and not same(now, entry["ours"]):
            kept = f"; what you had is kept in {record.keep_copy(path)}"
        if not back:
            os.makedirs(os.path.dirname(path), exist_ok=True)
            restore(path, entry["before"])
        del record.entries[path]
        record.save()
    was = {"absent": "there was none", "link": "a link", "file": "a file"}[entry["before"]["kind"]]
    version = f", version {entry['was']}" if entry.get("was") else ""
    return _row(path, RESTORED, was + version + kept, changed=not back)


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
