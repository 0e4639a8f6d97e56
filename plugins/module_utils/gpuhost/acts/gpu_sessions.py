"""Sessions of reservations on this host: access to /dev/nvidiaN by POSIX ACL, for the accounts that have one.

The file of sessions says what has to be true; each visit makes it so, whatever was lost or interrupted before.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import pwd
import re
import shlex
import signal
import stat
import struct
import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

from ..host import Host

STATE = "/var/lib/gpuctl/reservations/sessions.json"
FOLDER = "/run/gpuctl-reservations"  # everybody can read it, unlike /run/gpuctl
PROFILE = "/etc/profile.d/gpuctl-reservations.sh"
PROFILE_TEXT = f"""\
# Written by gpuctl while somebody has a reservation on this host: its variables for login shells.
if [ -r "{FOLDER}/$(id -un).sh" ]; then . "{FOLDER}/$(id -un).sh"; fi
"""
ACL = "system.posix_acl_access"
END_S = 10.0  # between SIGTERM and SIGKILL
KILL_S = 5.0  # after SIGKILL
MOST_OPEN = 8  # texts in an answer
NOBODY = 65534  # uid of what belongs to nobody, such as files of another machine
PEOPLE = 1000  # first uid of people; daemons such as nvidia-persistenced have lower ones, and no login shell
PAGE = 4096  # bytes of /proc/PID/status, whose first lines have the uids (proc(5))
LOCK_S = 20.0  # for an earlier visit that still ends programs
_ENTRY, _NO_ID = struct.Struct("<HHI"), 0xFFFFFFFF
_OWNER, _USER, _GROUP, _MASK, _OTHER = 0x01, 0x02, 0x04, 0x10, 0x20
_RW = 6
_DEVICE = re.compile(r"/dev/nvidia(\d+)")
Sessions = dict[str, dict[str, Any]]


class Refused(Exception):
    """The order is not carried out; the text says why. `open_by`: programs without a session, if they are the cause."""

    def __init__(self, text: str, open_by: Sequence[str] = ()) -> None:
        super().__init__(text)
        self.open_by = list(open_by)


def acl(uids: Sequence[int]) -> bytes:
    """Access list: the owner and these users may read and write, nobody else (acl(5), Linux's xattr form).

    The group has no access: the devices may belong to one such as `video`, whose members would pass by the queue.
    """
    entries = [(_OWNER, _RW, _NO_ID), *((_USER, _RW, uid) for uid in sorted(set(uids)))]
    entries += [(_GROUP, 0, _NO_ID), (_MASK, _RW, _NO_ID), (_OTHER, 0, _NO_ID)]
    return struct.pack("<I", 2) + b"".join(_ENTRY.pack(*entry) for entry in entries)


def users_of(path: str | os.PathLike[str]) -> list[int]:
    """Users whom the access list of a file names."""
    try:
        plain = os.getxattr(path, ACL)
    except OSError:
        return []  # no list: the mode alone counts
    return [uid for tag, _, uid in _ENTRY.iter_unpack(plain[4:]) if tag == _USER]


def run(host: Host, request: Mapping[str, Any]) -> dict[str, Any]:
    """{refused, fence, sessions, terminals, open_by, uses}, as `answer_types.GpuSessions`. OSError: not permitted.

    Request: `do` (observe, prepare, access, clear, clean, warn, use), `service` (identity of the service that gives
    orders), `label` (its text in messages), `gpus` (number of GPUs that the host has to have), `state` (file of
    sessions; default `STATE`). All but warn and use: `fence`. prepare, access and clear: `session` (id). prepare and
    access: `attempt`. prepare: `devices` (minors), `person`, `variables`. access: `people` (accounts beside the
    owner's). clean: `keep` ([session, attempt] of those that go on). warn: `person`, `text`. use: `sessions`, see
    `session_use.read`. `end_s`: time between SIGTERM and SIGKILL.
    """
    try:
        if request["do"] == "warn":
            return _answer(terminals=_warn(host, request["person"], request["text"]))
        if request["do"] == "use":
            from . import session_use

            return _answer(uses=session_use.read(host, request["sessions"]))
        with alone(host):
            book = _Book(host, request)
            _ORDERS[request["do"]](book, request)
            open_by = book.open_by() if request["do"] == "observe" else []
            return _answer(fence=book.fence, sessions=book.observed(), open_by=open_by)
    except Refused as refusal:
        return _answer(refused=str(refusal), open_by=refusal.open_by)


def _answer(**values: Any) -> dict[str, Any]:
    return {"refused": "", "fence": 0, "sessions": [], "terminals": 0, "open_by": [], "uses": [], **values}


@contextlib.contextmanager
def alone(host: Host) -> Iterator[None]:
    """One order at a time. The kernel releases the lock of a visit that was killed."""
    host.make_folder(FOLDER)
    descriptor = os.open(host.real(f"{FOLDER}/.lock"), os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    try:
        end = time.monotonic() + LOCK_S
        while True:
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if time.monotonic() > end:
                    raise OSError("an earlier order is still being carried out") from None
                time.sleep(0.1)
        yield
    finally:
        os.close(descriptor)


class _Book:
    """Sessions of the file, and what they make of this host. A session that is being cleared has `closing` set."""

    def __init__(self, host: Host, request: Mapping[str, Any]) -> None:
        self.host, self.path = host, str(request.get("state") or STATE)
        self.end_s = float(request.get("end_s", END_S))
        text = host.read_or_none(self.path)
        try:
            saved: dict[str, Any] = json.loads(text) if text else {"fence": 0, "sessions": {}}
            self.fence, self.sessions = int(saved["fence"]), Sessions(saved["sessions"])
            service = saved.get("service") or request["service"]
        except (ValueError, KeyError, TypeError) as error:
            raise Refused(f"{self.path} cannot be read: {error}; delete it once nobody uses the GPUs") from error
        if service != request["service"]:
            hint = f"once that one has ended, delete {self.path} on this host"
            raise Refused(f"this host belongs to the reservations of {saved.get('label') or service}; {hint}")
        self.service = service
        self.label = str(request.get("label") or service)
        if request["fence"] < self.fence:
            raise Refused(f"order {request['fence']} is older than {self.fence}")
        self.fence = request["fence"]
        self.devices = devices(host)
        if sorted(self.devices) != list(range(request["gpus"])):
            present = ", ".join(map(str, sorted(self.devices))) or "none"
            raise Refused(f"it has to have {request['gpus']} GPUs, and the device files are: {present}")

    def observed(self) -> list[dict[str, Any]]:
        """Sessions that exist; one that could not be cleared yet is one of them."""
        return [
            {"session": id_, "attempt": entry["attempt"], "devices": entry["gpus"]}
            for id_, entry in sorted(self.sessions.items())
        ]

    def open_by(self, minors: Collection[int] | None = None, uid: int | None = None) -> list[str]:
        """Programs of people that have a GPU open without a session on it: after a lost file, open files outlive it.

        `minors`: of these GPUs only; `uid`: an account that may have them open. OSError if they cannot be seen.
        """
        asked = self.devices if minors is None else minors
        paths = {self.host.real(self.devices[minor]): minor for minor in asked}
        allowed = {
            (one, minor) for entry in self.sessions.values() for one in _uids_of(entry) for minor in entry["gpus"]
        }
        texts = [
            f"process {pid} of {_name(max(uids))} has {self.devices[minor]} open without a session"
            for pid, uids, opened in _people(set(paths))
            for minor in sorted({paths[path] for path in opened})
            if uid not in uids and not any((one, minor) in allowed for one in uids)
        ]
        return texts[:MOST_OPEN]

    def apply(self) -> None:
        """Make access and variables what the sessions say; a driver that was loaded again made new device files."""
        live = {id_: entry for id_, entry in self.sessions.items() if not entry.get("closing")}
        for minor, device in self.devices.items():
            uids = sorted({uid for entry in live.values() if minor in entry["gpus"] for uid in _uids_of(entry)})
            real = self.host.real(device)
            if users_of(real) != uids or stat.S_IMODE(os.stat(real).st_mode) != 0o660:
                try:
                    with self.host.changing(f"give access to {device}"):
                        os.setxattr(real, ACL, acl(uids))
                except OSError as error:
                    raise Refused(f"cannot set the access list of {device}: {error.strerror}") from error
        self._write_variables(live)

    def _write_variables(self, live: Mapping[str, Mapping[str, Any]]) -> None:
        texts: dict[str, str] = {}
        for person in {person for entry in live.values() for person in _people_of(entry)}:
            # Whoever adds somebody does not change the variables of that one's sessions.
            entries = [entry for entry in live.values() if person == entry.get("person")]
            entries = entries or [entry for entry in live.values() if person in _people_of(entry)]
            texts[f"{FOLDER}/{person}.sh"] = _script(entries)
        for path in self.host.glob(f"{FOLDER}/*.sh"):
            if path not in texts:
                self.host.remove(path)
        if texts:
            texts[PROFILE] = PROFILE_TEXT
        elif self.host.exists(PROFILE):
            self.host.remove(PROFILE)
        for path, text in texts.items():
            if self.host.read_or_none(path) != text:
                self.host.replace(path, text)

    def save(self) -> None:
        """Write the file; before access is given, and after it was withdrawn."""
        text = json.dumps(
            {"service": self.service, "label": self.label, "fence": self.fence, "sessions": self.sessions}
        )
        if self.host.read_or_none(self.path) != text:
            self.host.make_private_folder(os.path.dirname(self.path))
            self.host.replace(self.path, text, 0o600)


def _observe(book: _Book, _: Mapping[str, Any]) -> None:
    book.save()
    book.apply()


def _prepare(book: _Book, request: Mapping[str, Any]) -> None:
    id_, person, minors = request["session"], request["person"], list(request["devices"])
    uid = _uid(person)
    missing = [minor for minor in minors if minor not in book.devices]
    if missing:
        raise Refused(f"it has no /dev/nvidia{missing[0]}")
    for other, entry in book.sessions.items():
        if other != id_ and set(entry["gpus"]) & set(minors):
            raise Refused(f"session {other} still has /dev/nvidia{min(set(entry['gpus']) & set(minors))}")
    open_by = book.open_by(minors, uid)
    if open_by:
        raise Refused(f"{open_by[0]}; end it first", open_by)
    same = book.sessions.get(id_, {}).get("attempt") == request["attempt"]  # an order that is given again
    book.sessions[id_] = {
        **({"people": book.sessions[id_]["people"]} if same and book.sessions[id_].get("people") else {}),
        "attempt": request["attempt"],
        "gpus": minors,
        "uid": uid,
        "person": person,
        "variables": dict(request["variables"]),
    }
    book.save()
    book.apply()


def _access(book: _Book, request: Mapping[str, Any]) -> None:
    """Give a session to these accounts beside its owner's, and take it from others. `Refused` names missing ones."""
    id_ = request["session"]
    uids: dict[str, int] = {}
    missing: list[str] = []
    entry = book.sessions.get(id_)
    if entry is None or entry["attempt"] != request["attempt"] or entry.get("closing"):
        raise Refused(f"it has no session {id_} of this attempt")
    for person in request["people"]:
        try:
            uids[person] = _addable_uid(person)
        except Refused as refusal:
            missing.append(str(refusal))
    over = {uid for person, uid in (entry.get("people") or {}).items() if person not in uids} - {entry["uid"]}
    book.sessions[id_] = {**entry, "people": uids}
    book.save()
    book.apply()
    for uid in over - set(uids.values()):
        _end_processes(book, uid, entry["gpus"])
    if missing:
        raise Refused("; ".join(missing))


def _clear(book: _Book, request: Mapping[str, Any]) -> None:
    _close(book, [id_ for id_ in book.sessions if id_ == request["session"]])


def _clean(book: _Book, request: Mapping[str, Any]) -> None:
    keep = {(id_, attempt) for id_, attempt in request.get("keep") or ()}
    over = [id_ for id_, entry in book.sessions.items() if (id_, entry["attempt"]) not in keep or entry.get("closing")]
    _close(book, over)


def _close(book: _Book, ids: Sequence[str]) -> None:
    """Withdraw access, end programs, forget. The mark is written first: access never comes back in between."""
    for id_ in ids:
        book.sessions[id_] = {**book.sessions[id_], "closing": True}
    book.save()
    book.apply()
    for id_ in ids:
        for uid in _uids_of(book.sessions[id_]):
            _end_processes(book, uid, book.sessions[id_]["gpus"])
    for id_ in ids:
        del book.sessions[id_]
    book.save()


def _uids_of(entry: Mapping[str, Any]) -> list[int]:
    """Accounts that have the GPUs of a session: its owner's, and those that the owner has added."""
    return [entry["uid"], *(entry.get("people") or {}).values()]


def _people_of(entry: Mapping[str, Any]) -> list[str]:
    """Names of the accounts of a session; a file of an older version may lack the owner's."""
    return [person for person in (entry.get("person"), *(entry.get("people") or {})) if person]


_ORDERS = {"observe": _observe, "prepare": _prepare, "access": _access, "clear": _clear, "clean": _clean}


def devices(host: Host) -> dict[int, str]:
    """Minor number -> device file of a GPU."""
    matches = (_DEVICE.fullmatch(path) for path in host.glob("/dev/nvidia[0-9]*"))
    return {int(match.group(1)): match.group(0) for match in matches if match}


def _script(entries: Sequence[Mapping[str, Any]]) -> str:
    """Variables of an account for a shell: of its session, or of several together the list of GPUs."""
    variables = dict(entries[0]["variables"]) if len(entries) == 1 else {}
    lists = [entry["variables"].get("CUDA_VISIBLE_DEVICES", "") for entry in entries]
    variables["CUDA_VISIBLE_DEVICES"] = ",".join(filter(None, lists))
    lines = [f"export {name}={shlex.quote(value)}\n" for name, value in sorted(variables.items())]
    return "# Written by gpuctl: variables of your reservation.\n" + "".join(lines)


def _end_processes(book: _Book, uid: int, minors: Collection[int]) -> None:
    """End the user's programs that have one of the GPUs open: open files outlive the access list."""
    paths = {book.host.real(book.devices[minor]) for minor in minors if minor in book.devices}
    for number, wait_s in ((signal.SIGTERM, book.end_s), (signal.SIGKILL, KILL_S)):
        deadline = time.monotonic() + wait_s
        pids = list(_users(uid, paths))
        for pid in pids:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, number)
        while pids and time.monotonic() < deadline:
            time.sleep(0.05)
            pids = list(_users(uid, paths))
    for pid in _users(uid, paths):
        raise Refused(f"process {pid} still has a GPU open after SIGKILL")


def _users(uid: int, paths: set[str]) -> Iterator[int]:
    """Processes of an account that have one of the files open. Those of this machine, whatever the root is.

    OSError if the files of one cannot be seen: it may have a GPU open.
    """
    for name in filter(str.isdigit, os.listdir("/proc")):
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):  # it has ended in the meantime
            if uid in _uids(f"/proc/{name}") and paths & set(_open_files(f"/proc/{name}")):
                yield int(name)


def _people(paths: set[str]) -> Iterator[tuple[int, set[int], set[str]]]:
    """Processes of people that have one of the files open: pid, uids, and these files. OSError if one is hidden."""
    for name in filter(str.isdigit, os.listdir("/proc")):
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):  # it has ended in the meantime
            uids = _uids(f"/proc/{name}")
            if any(_is_person(uid) for uid in uids):
                opened = paths & set(_open_files(f"/proc/{name}"))
                if opened:
                    yield int(name), uids, opened


def _is_person(uid: int) -> bool:
    """False for root, which can open everything, and for accounts of daemons, which watch GPUs."""
    if uid >= PEOPLE or uid == 0:
        return uid != 0
    try:
        return not pwd.getpwuid(uid).pw_shell.endswith(("/nologin", "/false"))
    except KeyError:
        return True


def is_addable(uid: int) -> bool:
    """True for an account of a person: programs of root and of daemons must not end with a session."""
    return uid != NOBODY and _is_person(uid)


def _name(uid: int) -> str:
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return f"uid {uid}"


def _open_files(process: str) -> Iterator[str]:
    """Paths of a process's open files, also of device files that the driver has made again since.

    PermissionError if they are hidden. A file without a path, closed in the meantime or deeper than readlink can
    return (ENAMETOOLONG), is left out: no device file is one, and the others count.
    """
    for descriptor in os.listdir(f"{process}/fd"):
        try:
            path = os.readlink(f"{process}/fd/{descriptor}")
        except PermissionError:
            raise
        except OSError:
            continue
        yield path.removesuffix(" (deleted)")


def _uids(process: str) -> set[int]:
    """Real, effective, saved and file system uid. The owner of the folder is root if the program hides its memory."""
    with open(f"{process}/status", "rb", buffering=0) as stream:  # each visit reads those of all processes
        status = stream.read(PAGE)
    return {int(uid) for uid in status.partition(b"\nUid:")[2].partition(b"\n")[0].split()}


def _uid(person: str) -> int:
    try:
        return pwd.getpwnam(person).pw_uid
    except KeyError:
        raise Refused(f"there is no account {person}") from None


def _addable_uid(person: str) -> int:
    uid = _uid(person)
    if not is_addable(uid):
        raise Refused(f"there is no account {person} of a person: it is one of root or of a daemon")
    return uid


def _warn(host: Host, person: str, text: str) -> int:
    """Show a text on the terminals of an account, and write it to its file; the result is the number of terminals.

    Where a terminal has shown it, a file that cannot be written is no error: the text would be shown again and again.
    """
    uid, terminals = _uid(person), 0
    for terminal in host.glob("/dev/pts/[0-9]*"):
        terminals += _write_terminal(host.real(terminal), uid, f"\r\n*** {text} ***\r\n")
    try:
        host.replace(f"{FOLDER}/{person}.warning", f"{text}\n")
    except OSError:
        if not terminals:
            raise
    return terminals


def _write_terminal(terminal: str, uid: int, text: str) -> int:
    """1 if the text was written to a terminal of the user. One that is stopped (Ctrl-S) must not hold us."""
    try:
        if os.stat(terminal).st_uid != uid:
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
