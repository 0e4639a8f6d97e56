"""Put files in place and delete them: atomically, and never over somebody else's change."""

# Names are bytes here, which pathlib does not have.
# ruff: noqa: PTH101, PTH103, PTH104, PTH106, PTH108, PTH118, PTH120, PTH123, PTH211
from __future__ import annotations

import contextlib
import errno
import os
import shutil
import zlib
from typing import TYPE_CHECKING, Any

from gpuctl.cluster.sync.pod import tree
from gpuctl.cluster.sync.pod.tree import FILE, FOLDER, LINK, place

if TYPE_CHECKING:
    from gpuctl.cluster.sync.pod.record import Entry, Record
    from gpuctl.cluster.sync.pod.tree import State

ASIDE = b".gpuctl-sync.incoming"  # next to a file on a different file system than the folder


class Changed(Exception):
    """Somebody changed it in the pod since it was read; it is kept."""


class Damaged(Exception):
    """The received content is not what was sent."""


class Writer:
    """Writes into one folder. `known`: states when last read; a missing path did not exist."""

    def __init__(self, root: bytes, record: Record, source: int, force: bool) -> None:
        self.root, self.record, self.source, self.force = root, record, source, force
        self.known: dict[str, State] = {}
        self.incoming = os.path.join(record.folder, b"incoming")
        shutil.rmtree(self.incoming, ignore_errors=True)  # left by an interrupted sync
        os.makedirs(self.incoming, exist_ok=True)
        self.temporary = os.path.join(self.incoming, b"part")
        self.stream: Any = None
        self.left = False  # whether a partially received file exists
        self.blocked_folders: dict[str, str] = {}  # folder checks since `settled`
        self.unsaved: list[str] = []  # paths whose stamp is not in the manifest yet

    # ---- files ----------------------------------------------------------------------------------------------------

    def begin(self) -> None:
        """A file is about to arrive."""
        self.abort()
        self.stream = self._opened()

    def data(self, part: bytes) -> None:
        self.stream.write(zlib.decompress(part))

    def abort(self) -> None:
        """Delete the partially received file."""
        if self.stream is not None:
            with contextlib.suppress(OSError):
                self.stream.close()
            self.stream = None
        if self.left:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(self.temporary)
            self.left = False

    def end(self, entry: dict[str, Any], value: str) -> int:
        """The file is complete: put it in place. Return its size in bytes."""
        stream, self.stream = self.stream, None
        with stream:
            size = self._finish(stream, entry, value)
        self._place(entry, FILE, value)
        return size

    def whole(self, entry: dict[str, Any], content: bytes) -> int:
        """Store a file that arrived in one message. Return its size in bytes."""
        with self._opened() as stream:
            stream.write(content)
            size = self._finish(stream, entry, entry["value"])
        self._place(entry, FILE, entry["value"])
        return size

    def _opened(self) -> Any:
        self.left = True
        return open(self.temporary, "w+b")

    def _finish(self, stream: Any, entry: dict[str, Any], value: str) -> int:
        """Verify the content as read back from the file system."""
        size: int = stream.tell()
        stream.seek(0)
        if tree.hash_of_stream(stream) != value:
            raise Damaged("it arrived damaged")
        with contextlib.suppress(PermissionError):  # a file system without modes
            os.fchmod(stream.fileno(), entry["mode"])
        os.utime(stream.fileno(), ns=(entry["source"][1], entry["source"][1]))
        return size

    def link(self, entry: dict[str, Any]) -> None:
        """Create a link; its target is not examined."""
        self.abort()
        self.left = True
        os.symlink(entry["value"].encode("utf-8", "surrogateescape"), self.temporary)
        self._place(entry, LINK, entry["value"])

    def folder(self, entry: dict[str, Any]) -> None:
        """Create a folder."""
        path, at = entry["path"], place(self.root, entry["path"])
        current = self._look(path, FOLDER, "")
        put = current is None or current[0] != FOLDER
        if current is not None and put:
            os.unlink(at)
            self.blocked_folders.clear()
        self.record.note(path, self._entry(entry, FOLDER, "", put))
        os.makedirs(at, exist_ok=True)
        with contextlib.suppress(PermissionError):
            os.chmod(at, entry["mode"] | 0o700)
        self._remember(path)

    def _place(self, entry: dict[str, Any], kind: str, value: str) -> None:
        path, at = entry["path"], place(self.root, entry["path"])
        current = self._look(path, kind, value)
        if current is not None and current[:2] == (kind, value):
            self.abort()
            self.note({**entry, "kind": kind, "value": value})
            return
        if current is not None and current[0] == FOLDER:
            os.rmdir(at)
        was = current[1] if current is not None and current[0] == kind else None
        self.record.note(path, {**self._entry(entry, kind, value, put=True), "was": was})
        try:
            self._rename(at)
        except FileNotFoundError:
            os.makedirs(os.path.dirname(at), exist_ok=True)
            self._rename(at)
        self.left = False
        self._remember(path)

    def _rename(self, at: bytes) -> None:
        try:
            os.rename(self.temporary, at)
        except OSError as error:
            if error.errno != errno.EXDEV:
                raise
            aside = os.path.join(os.path.dirname(at), ASIDE)
            with contextlib.suppress(FileNotFoundError):
                os.unlink(aside)
            try:
                shutil.copy2(self.temporary, aside, follow_symlinks=False)
                os.rename(aside, at)
            finally:
                with contextlib.suppress(FileNotFoundError):
                    os.unlink(aside)
            os.unlink(self.temporary)

    # ---- existing paths ---------------------------------------------------------------------------------------------

    def note(self, entry: dict[str, Any]) -> None:
        """The content is already present: only its mode and source may be new."""
        path = entry["path"]
        old = self.record.entries.get(path)
        put = bool(old and old["put"] and old["value"] == entry["value"])
        if entry["kind"] != LINK and (old is None or old["mode"] != entry["mode"]):
            with contextlib.suppress(PermissionError):
                os.chmod(place(self.root, path), entry["mode"] | (0o700 if entry["kind"] == FOLDER else 0))
        self.record.note(path, self._entry(entry, entry["kind"], entry["value"], put))
        self._remember(path)

    def delete(self, path: str) -> bool:
        """Delete what a sync wrote, if unchanged; False: a folder that contains files of others."""
        recorded, at = self.record.entries[path], place(self.root, path)
        current = tree.read_state(self.root, path, self.known.get(path))
        if current is not None:
            if not recorded["put"] or (not self.force and not same(recorded, current)) or current[0] == tree.BLOCKED:
                raise Changed(path)
            try:
                os.rmdir(at) if current[0] == FOLDER else os.unlink(at)
            except OSError as error:
                if current[0] == FOLDER and error.errno in (errno.ENOTEMPTY, errno.EEXIST, errno.EBUSY):
                    return False
                raise
        self.forget(path)
        return True

    def forget(self, path: str) -> None:
        """The path no longer exists, locally and in the pod."""
        self.record.note(path, None)
        self.known.pop(path, None)

    def read_state(self, path: str) -> State | None:
        """Read the state of a path and remember it, so that a later change by others is noticed."""
        state = tree.read_state(self.root, path, self.known.get(path), self.blocked_folders)
        if state is None:
            self.known.pop(path, None)
        else:
            self.known[path] = state
        return state

    def settled(self) -> None:
        """All commands are done: from here on everything may have changed."""
        self.blocked_folders.clear()
        self.unsaved.clear()

    def _look(self, path: str, kind: str, value: str) -> State | None:
        """The state just before it is replaced; `Changed` if it is no longer the known one."""
        known = self.known.get(path)
        current = tree.read_state(self.root, path, known, self.blocked_folders)
        if current is not None and current[0] == tree.BLOCKED:
            raise Changed(f"{current[1]} is not a folder")
        before = known[:2] if known else None
        if current is not None and current[:2] != before and current[:2] != (kind, value) and not self.force:
            raise Changed(path)
        return current

    def _remember(self, path: str) -> None:
        """Record the stamp of what we wrote."""
        info = os.lstat(place(self.root, path))
        recorded = self.record.entries[path]
        recorded["stamp"] = None if recorded["kind"] == FOLDER else tree.stamp(info)
        recorded["was"] = None
        self.known[path] = (recorded["kind"], recorded["value"], recorded["mode"], recorded["stamp"])
        self.unsaved.append(path)

    def _entry(self, incoming: dict[str, Any], kind: str, value: str, put: bool) -> Entry:
        old = self.record.entries.get(incoming["path"])
        mine = put or bool(old and old["put"] and (old["kind"], old["value"]) == (kind, value))
        fields = {
            "kind": kind,
            "value": value,
            "mode": incoming["mode"],
            "source": incoming["source"],
            "by": self.source,
        }
        return {**fields, "put": mine, "stamp": None, "was": None}


def same(entry: Entry, state: State) -> bool:
    """Return whether the state is what a sync wrote, even if that sync was interrupted."""
    return state[0] == entry["kind"] and state[1] in (entry["value"], entry["was"] or entry["value"])
