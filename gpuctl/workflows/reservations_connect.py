"""Logins to the nodes of a reservation: as a command, as entries of an ssh configuration, or at once.

A session in a pod is reached through the service, which connects its owner's ssh with the sshd of the pod.
"""

from __future__ import annotations

import os
import shlex
import signal
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from gpuctl.core.errors import InvalidInput
from gpuctl.core.paths import write_atomically
from gpuctl.edges import ssh, terminal
from gpuctl.edges.programs import gpuctl_program, need
from gpuctl.edges.ssh import Login
from gpuctl.eks.gpu_pod import scripts, ssh_files
from gpuctl.eks.gpu_pod.ssh_files import HostEntry
from gpuctl.reservations.client import Client
from gpuctl.workflows import eks_pod_jupyter, eks_ssh

Row = Mapping[str, Any]


def commands(row: Row) -> list[str]:
    """The command for each node of a reservation that is not this host."""
    texts = []
    for login in row["logins"]:
        if login.get("pod"):
            node = ["--node", login["node"]] if len(row["logins"]) > 1 else []
            texts.append(shlex.join(["gpuctl", "reservations", "connect", row["id"], *node]))
        elif login["node"] != os.uname().nodename:
            texts.append(shlex.join(_words(login)))
    return texts


def entries(client: Client, row: Row) -> str:
    """Host entries for an included ssh configuration: gpuctl-ID, or gpuctl-ID-NODE for each node of a gang.

    The keys of hosts that are pods are written to files of ours, which the entries name.
    """
    logins = _logins(row, "print the ssh configuration of a reservation")
    texts = []
    for login in logins:
        if login.get("pod"):
            texts.append(ssh_files.entry(_pod(client, row, login)))
            continue
        lines = [f"HostName {login['address']}", f"User {login['user']}"]
        lines += [f"Port {login['port']}"] if login["port"] else []
        texts.append("\n    ".join([f"Host {_host(row, login)}", *lines]) + "\n")
    return "\n".join(texts)


def _host(row: Row, login: Row) -> str:
    return f"gpuctl-{row['id']}" + (f"-{login['node']}" if len(row["logins"]) > 1 else "")


def _pod(client: Client, row: Row, login: Row) -> HostEntry:
    """The entry of a session in a pod; the key of its host, which the service delivers, is in a file of ours."""
    values = client.login(row["id"], login["node"])
    host, node = _host(row, login), login["node"]
    known = eks_ssh.folder() / f"{host}.known_hosts"
    tunnel = ["reservations", "tunnel", row["id"], "--node", node, "--socket", str(client.socket.absolute())]
    proxy = [gpuctl_program(), *tunnel]
    leads_to = f"reservation {row['id']} on {node}"
    entry = HostEntry(
        host,
        values.alias,
        values.host_key,
        root=False,
        port=values.port,
        known_hosts=str(known),
        proxy=proxy,
        leads_to=leads_to,
    )
    write_atomically(known, ssh_files.known_host(entry))
    return entry


def forward_jupyter(client: Client, row: Row, local: int | None, announce: Callable[[int], object]) -> int:
    """Forward Jupyter of a reservation's first pod to a port of this machine until ssh ends; its exit code.

    `announce`: receives the port before that.
    """
    login = _jupyter_login(row)
    port = eks_pod_jupyter.local_port(local)
    entry = _pod(client, row, login)
    announce(port)
    return eks_ssh.forward(entry, port, scripts.JUPYTER_PORT)


def jupyter_token(client: Client, row: Row) -> str:
    return client.login(row["id"], _jupyter_login(row)["node"]).token


def _jupyter_login(row: Row) -> Row:
    doing = "use Jupyter of a reservation"
    login = _logins(row, doing)[0]
    if not row.get("jupyter"):
        raise InvalidInput(doing, f"reservation {row['id']} was made without it", "`gpuctl reserve --jupyter` has it")
    return login


def tunnel(client: Client, id_: str, node: str) -> None:
    """Connect standard input and output with the sshd of a session; a signal ends it in silence."""
    for number in (signal.SIGHUP, signal.SIGINT, signal.SIGTERM):  # ssh sends SIGHUP at its end
        signal.signal(number, signal.SIG_DFL)
    client.tunnel(id_, node, sys.stdin.fileno(), sys.stdout.fileno())


def connect(client: Client, row: Row, node: str | None, argv: Sequence[str]) -> int:
    """Log in to a node of an active reservation until the session ends; its exit code. `node`: None for the first."""
    doing = "connect to a reservation"
    logins = _logins(row, doing)
    chosen = [login for login in logins if node in (None, login["node"])]
    if not chosen:
        wrong = f"reservation {row['id']} has no node {node}"
        raise InvalidInput(doing, wrong, f"it has {', '.join(login['node'] for login in logins)}")
    need("ssh")
    login = chosen[0]
    if login.get("pod"):
        return eks_ssh.connect(_pod(client, row, login), argv)
    target = Login(login["address"], port=login["port"], user=login["user"])
    return terminal.show(ssh.program(target, argv, terminal=True))


def _logins(row: Row, doing: str) -> Sequence[Row]:
    if row["state"] != "active":
        wrong = f"reservation {row['id']} is {row['state']}"
        raise InvalidInput(doing, wrong, "wait until it is active: `gpuctl reservations queue` shows why it waits")
    logins: Sequence[Row] = row["logins"]
    return logins


def _words(login: Row) -> list[str]:
    port = ["-p", str(login["port"])] if login["port"] else []
    return ["ssh", *port, f"{login['user']}@{login['address']}"]
