"""Run the service: its nodes are this host or a fleet, the accounts of this host are the people."""

from __future__ import annotations

import fcntl
import grp
import os
import pwd
import re
import threading
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

from gpuctl.core.errors import GpuctlError, InvalidInput
from gpuctl.core.paths import private
from gpuctl.edges import metrics_server, unix_socket
from gpuctl.edges.metrics_server import WEB_PAGE
from gpuctl.edges.public_keys import github_user
from gpuctl.engine import gpu_sessions, gpuhost_gpus, gpuhost_host
from gpuctl.reservations.agent import DiskAgent, NodeAgent
from gpuctl.reservations.database import Database, FileDatabase, Stored, TableDatabase
from gpuctl.reservations.local_node import adopt_sessions, local_node
from gpuctl.reservations.rules.model import Caller, Limits, Node, Site
from gpuctl.reservations.service import Service
from gpuctl.reservations.web_page import WebPage

STATE = Path("/var/lib/gpuctl/reservations")
DOING = "serve reservations"
PASS_S, SOON_S = 10, 2  # between two passes; while a node has not ended with an order
END_S = 1  # for the end of a thread; one that waits for GitHub is left, and ends with the process
MOST_TUNNELS = 32  # of a person
TUNNEL = "tunnel"  # the call after which the connection leads to the sshd of a session
UNIT = """\
[Unit]
Description=gpuctl reservations of GPUs
After=systemd-udevd.service nvidia-persistenced.service network-online.target
Wants=network-online.target

[Service]
ExecStart={program} reservations serve{options}
Restart=always
RestartSec=5
SuccessExitStatus=130
RuntimeDirectory=gpuctl-reservations
RuntimeDirectoryPreserve=yes
StateDirectory=gpuctl

[Install]
WantedBy=multi-user.target
"""


@dataclass(frozen=True)
class Fleet:
    """Nodes of the service, and how each is reached, by its name. `doubts`: why a node takes no new session.

    `reread`: reads one of those again. `site`: what its sessions are. `disks`: volumes of disks, None without disks.
    """

    nodes: Sequence[Node]
    agents: Mapping[str, NodeAgent]
    doubts: Mapping[str, str] = field(default_factory=dict)
    reread: Callable[[str], Node] | None = None
    site: Site = field(default_factory=lambda: Site(disks=False))
    disks: DiskAgent | None = None


@dataclass(frozen=True)
class ServeOptions:
    """`gpu_type` None: by the driver's model name. `admins`: accounts beside root. `web`: address of the page.

    `table`: of DynamoDB, which functions share; "" for a file in `state`.
    """

    socket: Path
    state: Path = STATE
    gpu_type: str | None = None
    admins: tuple[str, ...] = ()
    limits: Limits = field(default_factory=Limits)
    root: Path = Path("/")
    web: tuple[str, int] | None = None
    github_token: str = ""
    table: str = ""


@contextmanager
def running(options: ServeOptions, ask: Callable[[Stored], Fleet] | None = None) -> Iterator[Callable[[], int]]:
    """Answer calls while the context lasts; yields the pass, which returns the seconds until the next one is due.

    `ask`: reads the nodes, once no other service has the database; None for the GPUs of this host.
    """
    local = ask is None
    ask = ask or _this_fleet(options)
    make_folders(options)
    with alone(options.state):
        if local:
            adopt_sessions(options.root, options.state)
        database = _database(options)
        fleet = ask(database.stored())
        # A node may know orders that the database does not. No service gives an order a millisecond.
        nodes = [replace(node, fence=time.time_ns() // 1_000_000) for node in fleet.nodes]
        service = Service(
            database.open(replace(fleet.site, limits=options.limits), nodes),
            fleet.agents,
            lambda: int(time.time()),
            fleet.doubts,
            fleet.reread,
            disk_agent=fleet.disks,
            read_github=partial(github_user, token=options.github_token),
            has_account=has_account,
        )
        service.pass_once()
        database.report(service.nodes)
        if local and service.silence:  # a service without any node is a mistake
            hint = "see that /dev supports access lists, and its state can be read"
            raise GpuctlError(DOING, next(iter(service.silence.values())), hint)

        tunnels = _Tunnels()

        def answer(peer: unix_socket.Peer, call: Any) -> Any:
            caller = caller_of(peer.uid, peer.gid, options.admins)
            if isinstance(call, dict) and call.get("do") == TUNNEL:
                return tunnels.answer(service, caller, call)
            return service.answer(caller, call)

        def step() -> int:
            database.check()
            service.pass_once()
            database.report(service.nodes)
            keys.check()
            return SOON_S if service.waiting or service.disks.waiting else PASS_S

        public = options.web is not None and not metrics_server.is_loopback(options.web[0])
        page = WebPage(lambda: service.answer(Caller(""), {"do": "state"}), public=public)
        serving = nullcontext() if options.web is None else metrics_server.serving(options.web, page.text, WEB_PAGE)
        keys = _Repeated(service.refresh_keys)
        with serving, unix_socket.serving(options.socket, answer), keys.running():
            yield step
        database.close()


class _Repeated:
    """A thread that does a thing each `PASS_S`, while others go on. `check`: raises the error that has ended it."""

    def __init__(self, do: Callable[[], None]) -> None:
        self._do, self._ended = do, threading.Event()
        self._error: Exception | None = None

    @contextmanager
    def running(self) -> Iterator[None]:
        thread = threading.Thread(target=self._run, daemon=True)
        thread.start()
        try:
            yield
        finally:
            self._ended.set()
            thread.join(END_S)

    def _run(self) -> None:
        while not self._ended.wait(PASS_S):
            try:
                self._do()
            except Exception as error:  # noqa: BLE001 - `check` raises it in the thread that matters
                self._error = error
                return

    def check(self) -> None:
        """Raise the error that has ended the thread, if one has."""
        if self._error is not None:
            raise self._error


class _Tunnels:
    """Connections of people to their sessions; each person has at most `MOST_TUNNELS`, which leaves some to others."""

    def __init__(self) -> None:
        self._numbers: Counter[str] = Counter()
        self._lock = threading.Lock()

    def answer(self, service: Service, caller: Caller, call: Mapping[str, Any]) -> Any:
        """A connection to the caller's session, or the error."""
        with self._lock:
            if self._numbers[caller.person] >= MOST_TUNNELS:
                text = f"cannot log in to a reservation: you have {MOST_TUNNELS} connections already"
                return {"error": text, "hint": "end some of them", "exit_code": GpuctlError.exit_code}
            self._numbers[caller.person] += 1
        try:
            pump = service.pods.tunnel(caller, call)
        except GpuctlError as error:
            self._end(caller)
            return {"error": str(error), "hint": error.hint, "exit_code": error.exit_code}

        def quietly(descriptor: int) -> None:
            try:
                with suppress(GpuctlError, OSError):  # ssh shows that the connection is closed
                    pump(descriptor)
            finally:
                self._end(caller)

        return unix_socket.Stream({}, quietly)

    def _end(self, caller: Caller) -> None:
        with self._lock:
            self._numbers[caller.person] -= 1


@contextmanager
def alone(state: Path) -> Iterator[None]:
    """The only service of a folder while the context lasts; the kernel releases the lock however the process ends."""
    descriptor = os.open(state / ".lock", os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            holder = os.pread(descriptor, 20, 0).decode(errors="replace").strip() or "of unknown number"
            wrong = f"process {holder} serves the reservations of {state} already"
            raise InvalidInput(DOING, wrong, "stop that one first, or name another folder with --state") from None
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, f"{os.getpid()}\n".encode(), 0)
        yield
    finally:
        os.close(descriptor)


def _database(options: ServeOptions) -> Database:
    return TableDatabase(options.state, options.table) if options.table else FileDatabase(options.state)


def make_folders(options: ServeOptions) -> None:
    """The folders of the database and the socket."""
    for folder in (private(options.state), options.socket.parent):
        folder.mkdir(parents=True, exist_ok=True)


def page_address(text: str) -> tuple[str, int]:
    """Address of the page; `InvalidInput` for a bad one. Only one that is named in full is not on loopback."""
    at = metrics_server.address(text)
    if at[1] == 0:
        raise InvalidInput(
            f"serve HTTP on {text!r}", "port 0 is any free one, and its number would be unknown", metrics_server.HINT
        )
    return at


def page_note(host: str, port: int) -> str:
    """Line for the operator: where the page is, and who can read it."""
    address = f"http://[{host}]:{port}/" if ":" in host else f"http://{host}:{port}/"
    public = "; everybody who can reach it reads who has which GPUs"
    return f"the page is at {address}{'' if metrics_server.is_loopback(host) else public}"


def _this_fleet(options: ServeOptions) -> Callable[[Stored], Fleet]:
    node = this_host(options.root, options.gpu_type)
    if os.geteuid() != 0:
        raise InvalidInput(DOING, "only root can give and take access to GPUs", "run it with sudo or as a service")

    def ask(stored: Stored) -> Fleet:
        agent = local_node(node.name, len(node.allocated), stored.identity, options.root, label=stored.label)
        return Fleet([node], {node.name: agent})

    return ask


def caller_of(uid: int, gid: int, admins: tuple[str, ...]) -> Caller:
    """The account of a process; a number where the account has no name, which then has no access to GPUs."""
    try:
        person = pwd.getpwuid(uid).pw_name
    except KeyError:
        person = str(uid)
    try:
        group = grp.getgrgid(gid).gr_name
    except KeyError:
        group = str(gid)
    return Caller(person, group, admin=uid == 0 or person in admins)


def has_account(person: str) -> bool:
    """True if there is an account of this name, of a person who can be added: not of root, and not of a daemon."""
    try:
        return gpu_sessions.is_addable(pwd.getpwnam(person).pw_uid)
    except KeyError:
        return False


def this_host(root: Path, gpu_type: str | None) -> Node:
    """This host as a node: the GPUs that the driver has device files for."""
    indexes = sorted(int(path.name.removeprefix("nvidia")) for path in (root / "dev").glob("nvidia[0-9]*"))
    if not indexes or indexes != list(range(len(indexes))):
        wrong = "there are no /dev/nvidia0, /dev/nvidia1, ..." if not indexes else f"/dev/nvidia* are {indexes}"
        raise InvalidInput(DOING, wrong, "load the driver first: `nvidia-smi` makes the device files")
    name = gpu_type.casefold() if gpu_type else _driver_type(root)
    return Node(os.uname().nodename, name, (None,) * len(indexes), uuids=_uuids(root, len(indexes)))


def _uuids(root: Path, number: int) -> tuple[str, ...]:
    """UUIDs by the number of the device file; empty unless the driver names them all."""
    uuids = {gpu.minor: gpu.uuid for gpu in gpuhost_gpus.gpus(gpuhost_host.Host(root)) if gpu.uuid}
    return tuple(uuids[minor] for minor in range(number)) if uuids.keys() >= set(range(number)) else ()


def _driver_type(root: Path) -> str:
    models = {
        match[1]
        for path in (root / "proc/driver/nvidia/gpus").glob("*/information")
        if (match := re.search(r"^Model:\s*(.+)$", path.read_text(), re.MULTILINE))
    }
    return type_of(models)


def type_of(models: Collection[str]) -> str:
    """The site's name of a GPU type by the driver's model names; `InvalidInput` if it is not clear."""
    names = {
        match[1].casefold() for model in models if (match := re.search(r"\b([A-Z]{1,2}\d{1,4}[A-Z]{0,2})\b", model))
    }
    if len(set(models)) != 1 or len(names) != 1:
        wrong = f"the GPU type is not clear: {', '.join(sorted(models)) or 'the driver names no model'}"
        raise InvalidInput(DOING, wrong, "name it with --type, such as --type h100")
    return names.pop()
