"""Logins to the nodes of a reservation: as a command, as entries of an ssh configuration, or at once."""

from __future__ import annotations

import os
import shlex
from collections.abc import Mapping, Sequence
from typing import Any

from gpuctl.core.errors import InvalidInput
from gpuctl.edges import ssh, terminal
from gpuctl.edges.programs import need
from gpuctl.edges.ssh import Login

Row = Mapping[str, Any]


def commands(row: Row) -> list[str]:
    """The ssh command for each node of a reservation that is not this host."""
    return [shlex.join(_words(login)) for login in row["logins"] if login["node"] != os.uname().nodename]


def entries(row: Row) -> str:
    """Host entries for an included ssh configuration: gpuctl-ID, or gpuctl-ID-NODE for each node of a gang."""
    logins = _logins(row, "print the ssh configuration of a reservation")
    texts = []
    for login in logins:
        lines = [f"HostName {login['address']}", f"User {login['user']}"]
        lines += [f"Port {login['port']}"] if login["port"] else []
        name = f"gpuctl-{row['id']}" + (f"-{login['node']}" if len(logins) > 1 else "")
        texts.append("\n    ".join([f"Host {name}", *lines]) + "\n")
    return "\n".join(texts)


def connect(row: Row, node: str | None, argv: Sequence[str]) -> int:
    """Log in to a node of an active reservation until the session ends; its exit code. `node`: None for the first."""
    doing = "connect to a reservation"
    logins = _logins(row, doing)
    chosen = [login for login in logins if node in (None, login["node"])]
    if not chosen:
        wrong = f"reservation {row['id']} has no node {node}"
        raise InvalidInput(doing, wrong, f"it has {', '.join(login['node'] for login in logins)}")
    need("ssh")
    login = chosen[0]
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
