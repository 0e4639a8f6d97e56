"""This host as a node: access to /dev/nvidiaN by POSIX ACL, for the account that has a reservation and nobody else."""

from __future__ import annotations

import contextlib
import json
import os
import pwd
import signal
import stat
import struct
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from gpuctl.core.paths import write_atomically
from gpuctl.reservations.agent import Delivery, NotObeyed
from gpuctl.reservations.rules.reconcile import Observation, Session
from gpuctl.reservations.rules.reports import Order, OrderKind

ACL = "system.posix_acl_access"
END_S = 10.0  # between SIGTERM and SIGKILL
_ENTRY, _NO_ID = struct.Struct("<HHI"), 0xFFFFFFFF
_OWNER, _USER, _GROUP, _MASK, _OTHER = 0x01, 0x02, 0x04, 0x10, 0x20
_RW = 6


def acl(uids: Sequence[int]) -> bytes:
    """Access list: the owner and these users may read and write, nobody else (acl(5), Linux's xattr form).

    The group has no access: the devices may belong to one such as `video`, whose members would pass by the queue.
    """
    entries = [(_OWNER, _RW, _NO_ID), *((_USER, _RW, uid) for uid in sorted(set(uids)))]
    entries += [(_GROUP, 0, _NO_ID), (_MASK, _RW, _NO_ID), (_OTHER, 0, _NO_ID)]
    return struct.pack("<I", 2) + b"".join(_ENTRY.pack(*entry) for entry in entries)


def users_of(path: Path) -> list[int]:
    """Users whom the access list of a file names."""
    try:
        plain = os.getxattr(path, ACL)
    except OSError:
        return []  # no list: the mode alone counts
    return [uid for tag, _, uid in _ENTRY.iter_unpack(plain[4:]) if tag == _USER]


class LocalNode:
    """Devices and processes below `root`; sessions are kept in a file, so that a restart of the service keeps them."""

    def __init__(self, name: str, gpus: int, state: Path, root: Path = Path("/"), end_s: float = END_S) -> None:
        self.name, self._root, self._end_s = name, root, end_s
        self._devices = [root / f"dev/nvidia{index}" for index in range(gpus)]
        self._state, self._folder = state / "sessions.json", root / "run/gpuctl/reservations"
        self._fence, self._sessions = 0, dict[str, dict[str, Any]]()
        if self._state.exists():
            saved = json.loads(self._state.read_text())
            self._fence, self._sessions = saved["fence"], saved["sessions"]
        self._apply()

    def obey(self, order: Order, person: str) -> None:
        if order.fence < self._fence:
            raise NotObeyed(f"order {order.fence} is older than {self._fence}")
        self._fence = order.fence
        over: list[str] = []
        if order.kind is OrderKind.PREPARE:
            entry = {"attempt": order.attempt, "gpus": list(order.gpus), "uid": _uid(person)}
            self._sessions[order.reservation] = entry
        elif order.kind is OrderKind.CLEAR:
            over = [id_ for id_ in self._sessions if id_ == order.reservation]
        elif order.kind is OrderKind.CLEAN_NODE:
            over = list(self._sessions)
        closing = [self._sessions[id_] for id_ in over]
        self._apply(without=over)
        for entry in closing:
            self._end_processes(entry)
        for id_ in over:
            del self._sessions[id_]
        self._save()

    def observe(self, fence: int) -> Observation:
        if fence < self._fence:
            raise NotObeyed(f"the question of fence {fence} is older than {self._fence}")
        self._fence = fence
        self._apply()
        sessions = [
            Session(id_, entry["attempt"], tuple(entry["gpus"])) for id_, entry in sorted(self._sessions.items())
        ]
        return Observation(self.name, self._fence, sessions)

    def warn(self, person: str, text: str) -> Delivery:
        uid, terminals = _uid(person), 0
        for terminal in sorted((self._root / "dev/pts").glob("[0-9]*")):
            terminals += _write_terminal(terminal, uid, f"\r\n*** {text} ***\r\n")
        self._folder.mkdir(parents=True, exist_ok=True)
        write_atomically(self._folder / f"{person}.warning", f"{text}\n", mode=0o644)
        return Delivery(terminals, file=True)

    def _apply(self, without: Sequence[str] = ()) -> None:
        """Give each device the access list of its sessions; a driver that was loaded again made new device files."""
        for index, device in enumerate(self._devices):
            live = [entry for id_, entry in self._sessions.items() if id_ not in without]
            uids = sorted({entry["uid"] for entry in live if index in entry["gpus"]})
            try:
                if users_of(device) != uids or stat.S_IMODE(device.stat().st_mode) != 0o660:
                    os.setxattr(device, ACL, acl(uids))
            except OSError as error:
                raise NotObeyed(f"cannot set the access list of {device}: {error.strerror}") from error

    def _end_processes(self, entry: dict[str, Any]) -> None:
        """End the user's programs that have one of the GPUs open: open files outlive the access list."""
        devices = {str(self._devices[index]) for index in entry["gpus"]}
        deadline = time.monotonic() + self._end_s
        for number, wait_s in ((signal.SIGTERM, self._end_s), (signal.SIGKILL, 5.0)):
            deadline = time.monotonic() + wait_s
            pids = list(self._users(entry["uid"], devices))
            for pid in pids:
                _send(pid, number)
            while pids and time.monotonic() < deadline:
                time.sleep(0.05)
                pids = list(self._users(entry["uid"], devices))
        if pids := list(self._users(entry["uid"], devices)):
            raise NotObeyed(f"process {pids[0]} still has a GPU open after SIGKILL")

    def _users(self, uid: int, devices: set[str]) -> Iterator[int]:
        for folder in Path("/proc").glob("[0-9]*"):
            with contextlib.suppress(OSError):  # it has ended in the meantime
                if uid in _uids(folder) and devices & set(_open_files(folder)):
                    yield int(folder.name)

    def _save(self) -> None:
        write_atomically(self._state, json.dumps({"fence": self._fence, "sessions": self._sessions}))


def _open_files(process: Path) -> Iterator[str]:
    """Paths of a process's open files, also of device files that the driver has made again since."""
    for descriptor in (process / "fd").iterdir():
        with contextlib.suppress(OSError):  # closed in the meantime; the others count
            yield str(descriptor.readlink()).removesuffix(" (deleted)")


def _uids(process: Path) -> set[int]:
    """Real, effective, saved and file system uid. The owner of the folder is root if the program hides its memory."""
    status = (process / "status").read_text()
    return {int(uid) for uid in status.partition("\nUid:")[2].partition("\n")[0].split()}


def _uid(person: str) -> int:
    try:
        return pwd.getpwnam(person).pw_uid
    except KeyError:
        raise NotObeyed(f"there is no account {person}") from None


def _send(pid: int, number: signal.Signals) -> None:
    try:
        os.kill(pid, number)
    except ProcessLookupError:
        return


def _write_terminal(terminal: Path, uid: int, text: str) -> int:
    """1 if the text was written to a terminal of the user. One that is stopped (Ctrl-S) must not hold the service."""
    try:
        if terminal.stat().st_uid != uid:
            return 0
        descriptor = os.open(terminal, os.O_WRONLY | os.O_NOCTTY | os.O_NONBLOCK | os.O_NOFOLLOW)
    except OSError:
        return 0
    try:
        return int(os.write(descriptor, text.encode()) > 0)
    except OSError:
        return 0
    finally:
        os.close(descriptor)
