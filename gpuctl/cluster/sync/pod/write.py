"""Put files in place and take them away: whole or not at all, and never over what somebody changed meanwhile."""

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

ASIDE = b".gpuctl-sync.incoming"  # beside a file that is on another disk than the folder itself


class Changed(Exception):
    """Somebody changed it in the pod since it was looked at; it is kept."""


class Damaged(Exception):
    """What arrived is not what was sent."""


class Writer:
    """Writes into one folder. `known`: what was where when we last looked; what is not in it was not there."""

    def __init__(self, root: bytes, record: Record, source: int, force: bool) -> None:
        self.root, self.record, self.source, self.force = root, record, source, force
        self.known: dict[str, State] = {}
        self.incoming = os.path.join(record.folder, b"incoming")
        shutil.rmtree(self.incoming, ignore_errors=True)  # of a sync that was cut off
        os.makedirs(self.incoming, exist_ok=True)
        self.temporary = os.path.join(self.incoming, b"part")
        self.stream: Any = None
        self.left = False  # whether something is left of the file that comes in
        self.ways: dict[str, str] = {}  # folders that were looked at since `settled`
        self.unsaved: list[str] = []  # paths whose stamp the record does not have yet

    # ---- files ----------------------------------------------------------------------------------------------------

    def begin(self) -> None:
        """A file comes in."""
        self.abort()
        self.stream = self._opened()

    def data(self, part: bytes) -> None:
        self.stream.write(zlib.decompress(part))

    def abort(self) -> None:
        """Nothing is to stay of the file that comes in."""
        if self.stream is not None:
            with contextlib.suppress(OSError):
                self.stream.close()
            self.stream = None
        if self.left:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(self.temporary)
            self.left = False

    def end(self, told: dict[str, Any], value: str) -> int:
        """All of it came: put it in place. Its size in bytes."""
        stream, self.stream = self.stream, None
        with stream:
            size = self._finish(stream, told, value)
        self._place(told, FILE, value)
        return size

    def whole(self, told: dict[str, Any], content: bytes) -> int:
        """A file that came at once. Its size in bytes."""
        with self._opened() as stream:
            stream.write(content)
            size = self._finish(stream, told, told["value"])
        self._place(told, FILE, told["value"])
        return size

    def _opened(self) -> Any:
        self.left = True
        return open(self.temporary, "w+b")

    def _finish(self, stream: Any, told: dict[str, Any], value: str) -> int:
        """Check it by what the disk has of it now."""
        size: int = stream.tell()
        stream.seek(0)
        if tree.hash_of_stream(stream) != value:
            raise Damaged("it arrived damaged")
        with contextlib.suppress(PermissionError):  # a disk that has no modes
            os.fchmod(stream.fileno(), told["mode"])
        os.utime(stream.fileno(), ns=(told["source"][1], told["source"][1]))
        return size

    def link(self, told: dict[str, Any]) -> None:
        """A link; where it leads is not looked at."""
        self.abort()
        self.left = True
        os.symlink(told["value"].encode("utf-8", "surrogateescape"), self.temporary)
        self._place(told, LINK, told["value"])

    def folder(self, told: dict[str, Any]) -> None:
        """A folder."""
        path, at = told["path"], place(self.root, told["path"])
        now = self._look(path, FOLDER, "")
        put = now is None or now[0] != FOLDER
        if now is not None and put:
            os.unlink(at)
            self.ways.clear()
        self.record.note(path, self._entry(told, FOLDER, "", put))
        os.makedirs(at, exist_ok=True)
        with contextlib.suppress(PermissionError):
            os.chmod(at, told["mode"] | 0o700)
        self._seen(path)

    def _place(self, told: dict[str, Any], kind: str, value: str) -> None:
        path, at = told["path"], place(self.root, told["path"])
        now = self._look(path, kind, value)
        if now is not None and now[:2] == (kind, value):
            self.abort()
            self.note({**told, "kind": kind, "value": value})
            return
        if now is not None and now[0] == FOLDER:
            os.rmdir(at)
        was = now[1] if now is not None and now[0] == kind else None
        self.record.note(path, {**self._entry(told, kind, value, True), "was": was})
        try:
            self._rename(at)
        except FileNotFoundError:
            os.makedirs(os.path.dirname(at), exist_ok=True)
            self._rename(at)
        self.left = False
        self._seen(path)

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

    # ---- what is there already --------------------------------------------------------------------------------------

    def note(self, told: dict[str, Any]) -> None:
        """The content is there already: only its mode and where it came from may be new."""
        path = told["path"]
        old = self.record.entries.get(path)
        put = bool(old and old["put"] and old["value"] == told["value"])
        if told["kind"] != LINK and (old is None or old["mode"] != told["mode"]):
            with contextlib.suppress(PermissionError):
                os.chmod(place(self.root, path), told["mode"] | (0o700 if told["kind"] == FOLDER else 0))
        self.record.note(path, self._entry(told, told["kind"], told["value"], put))
        self._seen(path)

    def delete(self, path: str) -> bool:
        """Take away what a sync put there, if it is still that; False: a folder that has files of others."""
        entry, at = self.record.entries[path], place(self.root, path)
        now = tree.look(self.root, path, self.known.get(path))
        if now is not None:
            if not entry["put"] or (not self.force and not same(entry, now)) or now[0] == tree.BLOCKED:
                raise Changed(path)
            try:
                os.rmdir(at) if now[0] == FOLDER else os.unlink(at)
            except OSError as error:
                if now[0] == FOLDER and error.errno in (errno.ENOTEMPTY, errno.EEXIST, errno.EBUSY):
                    return False
                raise
        self.forget(path)
        return True

    def forget(self, path: str) -> None:
        """It is gone, here and there."""
        self.record.note(path, None)
        self.known.pop(path, None)

    def look(self, path: str) -> State | None:
        """What is there now; it is kept in mind, so that a later change by others is noticed."""
        found = tree.look(self.root, path, self.known.get(path), self.ways)
        if found is None:
            self.known.pop(path, None)
        else:
            self.known[path] = found
        return found

    def settled(self) -> None:
        """All that was told is done: from here on everything may have changed."""
        self.ways.clear()
        self.unsaved.clear()

    def _look(self, path: str, kind: str, value: str) -> State | None:
        """What is there just before it is replaced; `Changed` where it is no longer what we know."""
        known = self.known.get(path)
        now = tree.look(self.root, path, known, self.ways)
        if now is not None and now[0] == tree.BLOCKED:
            raise Changed(f"{now[1]} is not a folder")
        before = known[:2] if known else None
        if now is not None and now[:2] != before and now[:2] != (kind, value) and not self.force:
            raise Changed(path)
        return now

    def _seen(self, path: str) -> None:
        """It is as we made it: remember by which stamp."""
        found = os.lstat(place(self.root, path))
        entry = self.record.entries[path]
        entry["stamp"] = None if entry["kind"] == FOLDER else tree.stamp(found)
        entry["was"] = None
        self.known[path] = (entry["kind"], entry["value"], entry["mode"], entry["stamp"])
        self.unsaved.append(path)

    def _entry(self, told: dict[str, Any], kind: str, value: str, put: bool) -> Entry:
        old = self.record.entries.get(told["path"])
        mine = put or bool(old and old["put"] and (old["kind"], old["value"]) == (kind, value))
        given = {"kind": kind, "value": value, "mode": told["mode"], "source": told["source"], "by": self.source}
        return {**given, "put": mine, "stamp": None, "was": None}


def same(entry: Entry, now: State) -> bool:
    """Whether what is there is what a sync put there, also where it was cut off."""
    return now[0] == entry["kind"] and now[1] in (entry["value"], entry["was"] or entry["value"])
