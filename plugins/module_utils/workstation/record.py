"""The record of every file and link that gpuctl replaced, so that undo can restore them."""

from __future__ import annotations

import base64
import contextlib
import hashlib
import json
import os
import shutil
import threading
import time
from typing import Any

from ..gpuhost.host import sync_folder
from .model import WorkstationError

PathState = dict[str, Any]


class Record:
    """The record in the user's state folder; an entry is written before its change is made.

    Tools are installed in parallel, so every change of the record holds its lock.
    """

    def __init__(self, folder: str) -> None:
        self.folder = folder
        self.path = os.path.join(folder, "record.json")
        self.entries: dict[str, dict[str, Any]] = {}
        self.folders: list[str] = []
        self.tools: list[str] = []
        self._lock = threading.RLock()
        if os.path.exists(self.path):
            self._read()

    def owns(self, path: str) -> bool:
        """True if the path still holds the content that gpuctl wrote."""
        entry = self.entries.get(path)
        return entry is not None and same(path_state(path), entry["ours"])

    def blocks(self, path: str) -> list[str]:
        """Return every marked block that gpuctl has written into this file, latest last."""
        return list(self.entries.get(path, {}).get("blocks", []))

    def write(self, path: str, text: bytes, mode: int, users: bytes | None = None, block: str = "") -> None:
        """Write a file atomically and record what it replaces.

        `users` is the user's part of the old content, if not all of it; `block` is our marked block in the new content.
        """
        before = path_state(path)
        owner = (before["uid"], before["gid"]) if before["kind"] == "file" else (os.geteuid(), os.getegid())
        ours = {
            "kind": "file",
            "sha256": hashlib.sha256(text).hexdigest(),
            "mode": mode,
            "uid": owner[0],
            "gid": owner[1],
        }
        self._remember(path, before, ours, users=users, block=block)
        put_file(path, text, mode, owner)

    def link(self, path: str, target: str, was: str = "") -> None:
        """Create a link atomically, and record what it replaces and its version."""
        with self._lock:
            self._remember(path, path_state(path), {"kind": "link", "target": target}, was=was)
            put_link(path, target)

    def make_folders(self, folder: str) -> None:
        """Create a folder and its missing parents; undo removes them once they are empty."""
        with self._lock:
            missing = []
            while not os.path.isdir(folder):
                missing.append(folder)
                folder = os.path.dirname(folder)
            for path in reversed(missing):
                if path not in self.folders:
                    self.folders.append(path)
                    self.save()
                os.mkdir(path, 0o755)

    def add_tool(self, folder: str) -> None:
        """Record the folder with all versions of a tool."""
        with self._lock:
            if folder not in self.tools:
                self.tools.append(folder)
                self.save()

    def drop_tool(self, folder: str) -> None:
        """Remove a tool's folder from the record."""
        with self._lock:
            self.tools.remove(folder)
            self.save()

    def forget(self, path: str) -> None:
        """Drop the entry of a file or link that has been restored."""
        with self._lock:
            self.entries.pop(path, None)
            self.save()

    def keep_copy(self, path: str) -> str:
        """Keep a copy of the current content beside the record before --force replaces it; returns its path."""
        now = path_state(path, content=True)
        name = f"edited-{time.strftime('%Y%m%d-%H%M%S', time.gmtime())}-{path.strip('/').replace('/', '_')}.json"
        copy = os.path.join(self.folder, name)
        put_file(copy, json.dumps({"path": path, "was": now}).encode(), 0o600)
        return copy

    def save(self) -> None:
        os.makedirs(self.folder, mode=0o700, exist_ok=True)
        record = {"form": 1, "entries": self.entries, "folders": self.folders, "tools": self.tools}
        put_file(self.path, json.dumps(record, indent=1).encode(), 0o600)

    def _read(self) -> None:
        try:
            with open(self.path, encoding="utf-8") as stream:
                record = json.load(stream)
            self.entries, self.folders, self.tools = record["entries"], record["folders"], record["tools"]
        except (OSError, ValueError, LookupError, TypeError) as error:
            raise WorkstationError(
                f"the record {self.path} cannot be read ({error!r}), so nothing was changed: repair it, "
                "or move it away to forget the state before gpuctl"
            ) from error

    def _remember(self, path: str, before: PathState, ours: PathState, **notes: Any) -> None:
        """Add or update the entry of a path; `notes`: `was`, `users` and `block`, as `link` and `write` take them."""
        entry = self.entries.get(path)
        blocks = list(dict.fromkeys(filter(None, [*self.blocks(path), notes.get("block")])))
        if entry is None or not same(before, entry["ours"]):
            # If the user changed the file since the last run, undo has to restore that later content.
            at = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
            earlier = [*entry.get("earlier", []), entry["before"]] if entry else []
            back = _without_ours(path_state(path, content=True), notes.get("users"), earlier)
            entry = {"before": back, "at": at, "earlier": earlier, "was": notes.get("was", "")}
        self.entries[path] = {**entry, "ours": ours, **({"blocks": blocks} if blocks else {})}
        self.save()


def _without_ours(side: PathState, users: bytes | None, earlier: list[PathState]) -> PathState:
    """Return a file's earlier state without marked blocks that an earlier run, or another machine, wrote."""
    if side["kind"] != "file" or users is None:
        return side
    if not users and any(side_before["kind"] == "absent" for side_before in earlier):
        return {"kind": "absent"}
    content = base64.b64encode(users).decode()
    return {**side, "sha256": hashlib.sha256(users).hexdigest(), "content": content}


def path_state(path: str, content: bool = False) -> PathState:
    """Return the state of a path: absent, link, file, or other."""
    if os.path.islink(path):
        return {"kind": "link", "target": os.readlink(path)}
    if not os.path.exists(path):
        return {"kind": "absent"}
    if not os.path.isfile(path):
        return {"kind": "other"}
    with open(path, "rb") as stream:
        data = stream.read()
    stat = os.stat(path)
    side: PathState = {"kind": "file", "sha256": hashlib.sha256(data).hexdigest(), "mode": stat.st_mode & 0o7777}
    side.update(uid=stat.st_uid, gid=stat.st_gid)
    return {**side, "content": base64.b64encode(data).decode()} if content else side


def same(first: PathState, second: PathState) -> bool:
    return {k: v for k, v in first.items() if k != "content"} == {k: v for k, v in second.items() if k != "content"}


def restore(path: str, side: PathState) -> None:
    """Put a path back into a recorded state."""
    if side["kind"] == "absent":
        if os.path.lexists(path):
            os.unlink(path)
    elif side["kind"] == "link":
        put_link(path, side["target"])
    else:
        put_file(path, base64.b64decode(side["content"]), side["mode"], (side["uid"], side["gid"]))


def put_file(path: str, data: bytes, mode: int, owner: tuple[int, int] | None = None) -> None:
    """Write a file atomically."""
    temporary = _temporary(path)
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
    try:
        with os.fdopen(descriptor, "wb") as stream:
            if owner is not None and owner != (os.geteuid(), os.getegid()):
                os.fchown(stream.fileno(), *owner)
            os.fchmod(stream.fileno(), mode)
            stream.write(data)
            stream.flush()
            os.fsync(stream.fileno())
        os.replace(temporary, path)
    except OSError as error:
        error.filename = path  # on a full disk or a forbidden owner, the system names no file
        raise
    finally:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(temporary)
    sync_folder(os.path.dirname(path))


def put_link(path: str, target: str) -> None:
    temporary = _temporary(path)
    os.symlink(target, temporary)
    os.replace(temporary, path)
    sync_folder(os.path.dirname(path))


def _temporary(path: str) -> str:
    """Return the fixed name of the temporary file; removes one that a killed run left behind."""
    folder, name = os.path.split(path)
    temporary = os.path.join(folder, f".{name}.gpuctl")
    if os.path.lexists(temporary):
        os.unlink(temporary)
    return temporary


def remove_tree(folder: str) -> None:
    shutil.rmtree(folder, ignore_errors=True)
