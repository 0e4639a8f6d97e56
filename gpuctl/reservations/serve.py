"""Run the service on a single server: its GPUs are the node, its accounts are the people."""

from __future__ import annotations

import grp
import os
import pwd
import re
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from gpuctl.core.errors import GpuctlError, InvalidInput
from gpuctl.core.paths import private
from gpuctl.edges import unix_socket
from gpuctl.reservations.agent import NotObeyed
from gpuctl.reservations.local_node import LocalNode
from gpuctl.reservations.rules.model import Caller, Limits, Node, Site
from gpuctl.reservations.service import Service
from gpuctl.reservations.stores.sqlite import SqliteStore

STATE = Path("/var/lib/gpuctl/reservations")
DOING = "serve reservations"
PASS_S = 10
UNIT = """\
[Unit]
Description=gpuctl reservations of this host's GPUs
After=systemd-udevd.service nvidia-persistenced.service

[Service]
ExecStart={program} reservations serve{options}
Restart=always
SuccessExitStatus=130
RuntimeDirectory=gpuctl
RuntimeDirectoryPreserve=yes
StateDirectory=gpuctl

[Install]
WantedBy=multi-user.target
"""


@dataclass(frozen=True)
class ServeOptions:
    """`gpu_type` None: by the driver's model name. `admins`: accounts beside root."""

    socket: Path
    state: Path = STATE
    gpu_type: str | None = None
    admins: tuple[str, ...] = ()
    limits: Limits = field(default_factory=Limits)
    root: Path = Path("/")


@contextmanager
def running(options: ServeOptions) -> Iterator[Callable[[], None]]:
    """Answer calls while the context lasts; yields the pass that is to be run every `PASS_S` seconds."""
    node = this_host(options.root, options.gpu_type)
    if os.geteuid() != 0:
        raise InvalidInput(DOING, "only root can give and take access to GPUs", "run it with sudo or as a service")
    for folder in (private(options.state), options.socket.parent):
        folder.mkdir(parents=True, exist_ok=True)
    store = SqliteStore(options.state / "reservations.db", Site(options.limits), [node])
    try:
        agent = LocalNode(node.name, len(node.allocated), options.state, options.root)
    except (NotObeyed, ValueError, KeyError) as error:
        raise GpuctlError(
            DOING, str(error), "see that /dev supports access lists, and its state can be read"
        ) from error
    service = Service(store, {node.name: agent}, lambda: int(time.time()))
    service.pass_once()

    def answer(peer: unix_socket.Peer, call: Any) -> Any:
        return service.answer(caller_of(peer.uid, peer.gid, options.admins), call)

    with unix_socket.serving(options.socket, answer):
        yield service.pass_once
    store.close()


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


def this_host(root: Path, gpu_type: str | None) -> Node:
    """This host as a node: the GPUs that the driver has device files for."""
    indexes = sorted(int(path.name.removeprefix("nvidia")) for path in (root / "dev").glob("nvidia[0-9]*"))
    if not indexes or indexes != list(range(len(indexes))):
        wrong = "there are no /dev/nvidia0, /dev/nvidia1, ..." if not indexes else f"/dev/nvidia* are {indexes}"
        raise InvalidInput(DOING, wrong, "load the driver first: `nvidia-smi` makes the device files")
    name = gpu_type.casefold() if gpu_type else _driver_type(root)
    return Node(os.uname().nodename, name, (None,) * len(indexes))


def _driver_type(root: Path) -> str:
    models = {
        match[1]
        for path in (root / "proc/driver/nvidia/gpus").glob("*/information")
        if (match := re.search(r"^Model:\s*(.+)$", path.read_text(), re.MULTILINE))
    }
    names = {
        match[1].casefold() for model in models if (match := re.search(r"\b([A-Z]{1,2}\d{1,4}[A-Z]{0,2})\b", model))
    }
    if len(models) != 1 or len(names) != 1:
        wrong = f"the GPU type is not clear: {', '.join(sorted(models)) or 'the driver names no model'}"
        raise InvalidInput(DOING, wrong, "name it with --type, such as --type h100")
    return names.pop()
