"""Serves a /sys and /proc tree per test host as one FUSE file system, steered through its file .control.

`python -m tests.rig.fakesys FOLDER` (foreground). FOLDER/HOST/sys and FOLDER/HOST/proc are bound over a host's own;
FOLDER/HOST/.writes lists every write so far as JSON lines. FakeTree (tree.py) is the way to talk to it from a test.
"""

from __future__ import annotations

import errno
import json
import os
import stat
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import mfusepy

from tests.rig import machines
from tests.rig.knobs import Knob, Link, ReadOnly, refuse


class Tree:
    """One host's files, what is to go wrong with them, and what was written to them."""

    def __init__(self, machine: str, root: str) -> None:
        self.machine, self.root = machine, Path(root)
        self.log: list[dict[str, Any]] = []
        self.faults: dict[str, list[int]] = {}
        self.hung: dict[str, threading.Event] = {}
        self.boot()

    def boot(self) -> None:
        """Every value as the machine has it after a start with what is on the host's disk."""
        self.nodes = machines.tree(self.machine, self.root)
        # A folder's names, in the order they came; a dictionary, as there may be thousands.
        self.folders: dict[str, dict[str, None]] = {"": {}}
        for path in self.nodes:
            self._enter(path)

    def _enter(self, path: str) -> None:
        parent, _, name = path.rpartition("/")
        if parent not in self.folders:
            self._enter(parent)
            self.folders[parent] = {}
        self.folders[parent][name] = None

    def put(self, path: str, text: str, writable: bool) -> None:
        """Add a file, or replace one."""
        self.nodes[path] = Knob(text) if writable else ReadOnly(text)
        self._enter(path)

    def remove(self, path: str) -> None:
        """Take away a file or a folder."""
        for gone in [p for p in self.nodes if p == path or p.startswith(path + "/")]:
            del self.nodes[gone]
        for gone in [p for p in self.folders if p == path or p.startswith(path + "/")]:
            del self.folders[gone]
        parent, _, name = path.rpartition("/")
        del self.folders[parent][name]

    def write(self, path: str, text: str, by: str) -> None:
        """A write from inside the host: recorded, with the kernel's answer."""
        if path in self.hung:
            self.hung[path].wait()
        answer = 0
        try:
            if self.faults.get(path):
                raise refuse(self.faults[path].pop(0))
            self.file(path).write(text)
        except OSError as error:
            answer = error.errno or errno.EIO
            raise
        finally:
            self.log.append({"path": path, "text": text.strip(), "errno": answer, "by": by})

    def written(self) -> str:
        return "".join(json.dumps(line) + "\n" for line in self.log)

    def file(self, path: str) -> Knob:
        node = self.nodes.get(path)
        if not isinstance(node, Knob):
            raise refuse(errno.ENOENT if node is None else errno.EISDIR)
        return node


class Control:
    """What may be asked through .control: {"do": NAME, ...}; FakeTree and Rig are its callers."""

    def __init__(self) -> None:
        self.trees: dict[str, Tree] = {}

    def tree(self, host: str, machine: str, root: str) -> None:
        self.trees[host] = Tree(machine, root)

    def drop(self, host: str) -> None:
        self.release(host)
        self.trees.pop(host, None)

    def boot(self, host: str) -> None:
        self.trees[host].boot()

    def set(self, host: str, path: str, text: str) -> None:
        self.trees[host].file(path).set(text)

    def put(self, host: str, path: str, text: str, writable: bool) -> None:
        self.trees[host].put(path, text, writable)

    def remove(self, host: str, path: str) -> None:
        self.trees[host].remove(path)

    def fail(self, host: str, path: str, number: int, times: int) -> None:
        self.trees[host].faults[path] = [number] * times

    def hang(self, host: str, path: str) -> None:
        self.trees[host].hung[path] = threading.Event()

    def release(self, host: str) -> None:
        if host in self.trees:
            for event in self.trees[host].hung.values():
                event.set()
            self.trees[host].hung.clear()

    def clear(self, host: str) -> None:
        self.trees[host].log.clear()


class FakeSys:
    """The file system: which file a path means, and how it looks."""

    use_ns = True

    def __init__(self) -> None:
        self.control = Control()
        self.started = time.time_ns()

    def _split(self, path: str) -> tuple[Tree, str]:
        host, slash, rest = path[1:].partition("/")
        if host not in self.control.trees:
            raise refuse(errno.ENOENT)
        return self.control.trees[host], slash + rest

    def getattr(self, path: str, fh: int | None = None) -> dict[str, int]:
        if path == "/":
            return self._attributes(stat.S_IFDIR | 0o755)
        if path == "/.control":
            return self._attributes(stat.S_IFREG | 0o600)
        tree, inner = self._split(path)
        node = tree.nodes.get(inner)
        if isinstance(node, Knob):
            # As there: files of /sys claim a page, those of /proc nothing.
            return self._attributes(stat.S_IFREG | node.mode, 4096 if inner.startswith("/sys") else 0)
        if node is not None:
            return self._attributes(stat.S_IFLNK | 0o777, len(node))
        if inner == "/.writes":
            return self._attributes(stat.S_IFREG | 0o444)
        if inner in tree.folders:
            return self._attributes(stat.S_IFDIR | 0o755)
        raise refuse(errno.ENOENT)

    def _attributes(self, mode: int, size: int = 0) -> dict[str, int]:
        times = dict.fromkeys(("st_mtime", "st_ctime", "st_atime"), self.started)
        return {"st_mode": mode, "st_nlink": 1, "st_size": size, **times}

    def readdir(self, path: str, fh: int) -> list[str]:
        if path == "/":
            return [".", "..", *self.control.trees]
        tree, inner = self._split(path)
        return [".", "..", *tree.folders[inner]]

    def readlink(self, path: str) -> str:
        tree, inner = self._split(path)
        node = tree.nodes[inner]
        if not isinstance(node, Link):
            raise refuse(errno.EINVAL)
        return node

    def open(self, path: str, flags: int) -> int:
        if path == "/.control":
            return 0
        tree, inner = self._split(path)
        writing = flags & (os.O_WRONLY | os.O_RDWR)
        kernel_checks = inner.startswith(("/sys/", "/proc/sys/"))
        if inner != "/.writes" and writing and kernel_checks and isinstance(tree.file(inner), ReadOnly):
            raise refuse(errno.EACCES)
        return 0

    def read(self, path: str, size: int, offset: int, fh: int) -> bytes:
        tree, inner = self._split(path)
        text = tree.written() if inner == "/.writes" else tree.file(inner).read()
        return text.encode()[offset : offset + size]

    def write(self, path: str, data: bytes, offset: int, fh: int) -> int:
        if path == "/.control":
            self._obey(data)
        else:
            tree, inner = self._split(path)
            tree.write(inner, data.decode(errors="replace"), _program(mfusepy.fuse_get_context()[2]))
        return len(data)

    def _obey(self, data: bytes) -> None:
        order = json.loads(data)
        action: Callable[..., None] = getattr(self.control, order.pop("do"))
        try:
            action(**order)
        except (LookupError, ValueError) as error:
            sys.stderr.write(f"{order}: {error!r}\n")
            raise refuse(errno.EINVAL) from error

    def create(self, path: str, mode: int, fi: object = None) -> int:
        raise refuse(errno.EACCES if "/sys/" in path else errno.ENOENT)

    def mkdir(self, path: str, mode: int) -> int:
        raise refuse(errno.EPERM if "/sys/" in path else errno.ENOENT)

    def unlink(self, path: str) -> int:
        """Lets the kernel forget the name of what `remove` took away; nothing else can be removed, as there."""
        tree, inner = self._split(path)
        if inner in tree.nodes or inner in tree.folders:
            raise refuse(errno.EPERM)
        return 0

    rmdir = unlink

    def truncate(self, path: str, length: int, fh: int | None = None) -> int:
        return 0

    def chmod(self, path: str, mode: int) -> int:
        return 0

    def chown(self, path: str, uid: int, gid: int) -> int:
        return 0


def _program(pid: int) -> str:
    """The name of the program that writes; "" where it is gone already."""
    try:
        return Path(f"/proc/{pid}/comm").read_text().strip()
    except OSError:
        return ""


def main(folder: str) -> None:
    # Names and modes may be remembered, which halves the cost of reading; contents never.
    options = {"direct_io": True, "entry_timeout": 60, "attr_timeout": 60, "fsname": "fakesys"}
    mfusepy.FUSE(FakeSys(), folder, foreground=True, allow_other=True, **options)


if __name__ == "__main__":
    main(sys.argv[1])
