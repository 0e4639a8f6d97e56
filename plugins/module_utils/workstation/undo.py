"""Restore what gpuctl replaced; what the user changed since then stays, unless forced."""

from __future__ import annotations

import base64
import os
from collections.abc import Mapping
from typing import Any, NamedTuple

from .model import WorkstationError
from .record import Record, path_state, put_file, remove_tree, restore, same
from .shell import lines_between_markers, without_block

RESTORED, CONFLICT, GONE, NOT_OURS = "RESTORED", "CONFLICT", "REMOVED", "NOT OURS"


def undo(record: Record, check: bool, force: bool) -> list[dict[str, Any]]:
    """Restore every entry of the record; finished entries are removed, so an interrupted undo can continue."""
    rows = [_restore_entry(record, path, check, force) for path in sorted(record.entries)]
    rows += _versions(record, list(record.tools), rows, check)
    if not check:
        _remove_empty(record)
    return rows


def remove(record: Record, programs: Mapping[str, str], check: bool, force: bool) -> list[dict[str, Any]]:
    """Remove tools (name -> program) that gpuctl installed; packages and earlier files stay."""
    rows: list[dict[str, Any]] = []
    for name, program in programs.items():
        ours = [path for path, entry in record.entries.items() if _links(path, entry, program)]
        folders = [folder for folder in record.tools if os.path.basename(folder) == name]
        if not ours and not folders:
            rows.append(_row(name, NOT_OURS, "not installed by gpuctl, or only as a package: left alone"))
        links = [_restore_entry(record, path, check, force) for path in ours]
        rows += [*links, *_versions(record, folders, links, check)]
    if not check:
        _remove_empty(record)
    return rows


def _links(path: str, entry: Mapping[str, Any], program: str) -> bool:
    return bool(entry["ours"]["kind"] == "link" and os.path.basename(path) == program)


def _versions(record: Record, folders: list[str], rows: list[dict[str, Any]], check: bool) -> list[dict[str, Any]]:
    """Remove the tools' folders, except those that one of the user's own links points into."""
    conflicts = [row["path"] for row in rows if row["state"] == CONFLICT]
    due = [f for f in folders if not any(os.path.realpath(path).startswith(f + os.sep) for path in conflicts)]
    return [_row(folder, GONE, "its versions", changed=True) if check else _gone(record, folder) for folder in due]


def _gone(record: Record, folder: str) -> dict[str, Any]:
    remove_tree(folder)
    if os.path.lexists(folder):
        return _row(folder, CONFLICT, "it cannot be removed: check its permissions, and undo again")
    record.drop_tool(folder)
    return _row(folder, GONE, "its versions", changed=True)


def _restore_entry(record: Record, path: str, check: bool, force: bool) -> dict[str, Any]:
    try:
        return _restore(record, path, check, force)
    except OSError as error:  # the others can still be restored
        return _row(path, CONFLICT, f"it cannot be restored: {error.strerror or error}")


def _restore(record: Record, path: str, check: bool, force: bool) -> dict[str, Any]:
    entry = record.entries[path]
    now = path_state(path)
    if record.blocks(path) and not same(now, entry["ours"]):
        return _block_out(record, path, check, force)
    back = same(now, {k: v for k, v in entry["before"].items() if k != "content"})
    if not back and not same(now, entry["ours"]) and not force:
        return _row(path, CONFLICT, "it was changed since; --force replaces it and keeps a copy")
    if now["kind"] == "other":
        return _row(path, CONFLICT, "it is no longer a file or link")
    copy = ""
    if not check:
        if not back and not same(now, entry["ours"]):
            copy = f"; your version is kept in {record.keep_copy(path)}"
        if not back:
            os.makedirs(os.path.dirname(path), exist_ok=True)
            restore(path, entry["before"])
        record.forget(path)
    was = {"absent": "there was none", "link": "a link", "file": "a file"}[entry["before"]["kind"]]
    version = f", version {entry['was']}" if entry.get("was") else ""
    return _row(path, RESTORED, was + version + copy, changed=not back)


def _block_out(record: Record, path: str, check: bool, force: bool) -> dict[str, Any]:
    """Remove our marked block from a shell file that changed around it; all other lines stay."""
    entry, target = record.entries[path], os.path.realpath(path)  # moved into a dotfiles repository: follow the link
    side = path_state(target, content=True)
    if side["kind"] == "other":
        return _row(path, CONFLICT, "it is not a regular file any more")
    content = base64.b64decode(side.get("content", ""))
    plan = _without_our_lines(content.decode("utf-8", "surrogateescape"), record.blocks(path), force)
    if plan.conflict:
        return _row(path, CONFLICT, plan.conflict)
    remainder = plan.text.encode("utf-8", "surrogateescape")
    changed, copy = remainder != content, ""
    if not check:
        if changed and plan.edited:
            copy = f"; a copy of the file is in {record.keep_copy(target)}"
        if changed and not remainder and entry["before"]["kind"] == "absent":
            restore(target, {"kind": "absent"})
        elif changed:
            put_file(target, remainder, side["mode"], (side["uid"], side["gid"]))
        record.forget(path)
    why = "only our marked block is removed" if changed else "our marked block was already gone"
    return _row(path, RESTORED, why + copy, changed=changed)


class _Removal(NamedTuple):
    """A shell file without our block, or the conflict that keeps it unchanged."""

    text: str = ""
    edited: bool = False
    conflict: str = ""


def _without_our_lines(text: str, written: list[str], force: bool) -> _Removal:
    try:
        users = lines_between_markers(text, written)
        if users and not force:
            return _Removal(
                conflict=f"{_plural(len(users))} between our markers did not come from gpuctl ({users[0].strip()}): "
                "move your lines out of the block, or use --force, which keeps them and removes only ours"
            )
        return _Removal(without_block(text, written), bool(users))
    except WorkstationError as damaged:
        return _Removal(conflict=str(damaged))


def _plural(lines: int) -> str:
    return f"{lines} line{'s' if lines > 1 else ''}"


def _remove_empty(record: Record) -> None:
    for folder in sorted(record.folders, key=len, reverse=True):
        try:
            os.rmdir(folder)
        except FileNotFoundError:
            pass
        except OSError:
            continue  # not empty any more
        record.folders.remove(folder)
    record.save()


def _row(path: str, state: str, why: str, changed: bool = False) -> dict[str, Any]:
    return {"path": path, "state": state, "why": why, "changed": changed}
