"""Calls to the service; a request that the site can never grant is refused before it is sent."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from gpuctl.core.errors import GpuctlError, InvalidInput, Unreachable
from gpuctl.core.text import named
from gpuctl.reservations.agent import PodLogin
from gpuctl.reservations.rules import requests
from gpuctl.reservations.rules.access import AddUser, RemoveUser
from gpuctl.reservations.rules.commands import Cancel, Edit, Extend, Keep
from gpuctl.reservations.rules.disks import DiskCommand
from gpuctl.reservations.rules.model import Limits
from gpuctl.reservations.rules.requests import Catalogue, Offer, Request
from gpuctl.reservations.transports import transport

SOCKET = Path("/run/gpuctl-reservations/socket")
Plain = dict[str, Any]


class Refused(GpuctlError):
    """An error that the service answered, with its own exit code."""

    def __init__(self, message: str, hint: str, exit_code: int) -> None:
        super().__init__("", "", hint)
        self.args = (message,)
        self.exit_code = exit_code


class Client:
    """The service at an address; it knows the caller from the transport."""

    def __init__(self, address: Path = SOCKET) -> None:
        self.socket, self._transport = address, transport(address)

    def state(self) -> Plain:
        return self._call({"do": "state"})

    def history(self, subject: str | None) -> Plain:
        return self._call({"do": "history", **({"subject": subject} if subject else {})})

    def submit(self, request: Request) -> Plain:
        table = catalogue(self.state())
        requests.check(request, table)
        request = replace(request, gpu_type=requests.canonical_type(request.gpu_type, table))
        return self._act({"do": "submit", "request": asdict(request)})

    def disks(self) -> Plain:
        """The caller's disks, and why their sizes are unknown, "" if they are not."""
        return self._call({"do": "disks"})

    def send(self, command: Cancel | Extend | Edit | Keep | AddUser | RemoveUser | DiskCommand) -> Plain:
        content = {name: value for name, value in asdict(command).items() if name != "resolved"}
        return self._act({"do": type(command).__name__.lower(), "command": content})

    def login(self, id_: str, node: str) -> PodLogin:
        """Values for ssh of a session that is a pod."""
        return PodLogin(**self._call({"do": "login", "reservation": id_, "node": node}))

    def logs(self, id_: str, node: str) -> Sequence[str]:
        """Events and the last lines of the log of a session that is a pod."""
        lines: list[str] = self._call({"do": "logs", "reservation": id_, "node": node})["lines"]
        return lines

    def tunnel(self, id_: str, node: str, source: int, sink: int) -> None:
        """Connect two file descriptors with the sshd of a session, until either side closes."""
        call = {"do": "tunnel", "reservation": id_, "node": node}
        _checked(self._transport.connect(call, source, sink))

    def mine(
        self,
        id_: str | None,
        doing: str,
        choose: Callable[[Sequence[Plain]], Plain] | None = None,
        *,
        shared: bool = False,
    ) -> Plain:
        """The live reservation with this id or name, or the caller's only one. `choose`: takes one of the caller's.

        `shared`: those to which somebody has added the caller count, too; their logins are those of the caller. Without
        an id they count only if the caller has none: nobody makes the commands of others ambiguous.
        """
        state = self.state()
        if shared:
            state = {**state, "reservations": [_for(row, state["person"]) for row in state["reservations"]]}
        mine = _reachable(state, shared=shared, callers_first=id_ is None)
        rows = [row for row in mine if id_ in (None, row["id"], row["name"])]
        if id_ and not rows:  # somebody else's: an admin may change it, others may see it
            rows = [row for row in state["reservations"] if id_ in (row["id"], row["name"])]
        if len(rows) == 1:
            return dict(rows[0])
        if id_ and not rows:
            raise InvalidInput(doing, f"no live reservation has the id or name {id_!r}", "`gpuctl reservations list`")
        if not rows:
            raise InvalidInput(doing, "you have no reservation", "`gpuctl reserve` makes one")
        own = all(row in mine for row in rows)  # nobody picks from other people's by a number
        if choose is not None and own:
            return dict(choose(rows))
        if not own:
            ids = named(f"{row['id']} of {row['person']}" for row in rows)
            raise InvalidInput(doing, f"other people have several that are named {id_!r}", f"name one by its id: {ids}")
        raise InvalidInput(doing, "you have several", f"name one: {named(row['id'] for row in rows)}")

    def _act(self, call: Plain) -> Plain:
        """A call that changes something. Without an answer it is repeated once: its key makes that harmless."""
        call = {**call, "key": secrets.token_urlsafe(12)}
        try:
            return self._call(call)
        except Unreachable:
            return self._call(call)

    def _call(self, call: Plain) -> Plain:
        return _checked(self._transport.call(call))


def _for(row: Plain, person: str) -> Plain:
    """A reservation whose logins are those of an added person; others stay as they are."""
    if person not in row.get("users", ()):
        return row
    logins = [{**login, "user": None if login.get("pod") else person} for login in row["logins"]]
    return {**row, "logins": logins}


def _reachable(state: Plain, *, shared: bool, callers_first: bool) -> list[Plain]:
    """Reservations of the caller, and with `shared` those to which somebody has added the caller."""
    own = [row for row in state["reservations"] if row["person"] == state["person"]]
    if not shared or (own and callers_first):
        return own
    return [row for row in state["reservations"] if row in own or state["person"] in row.get("users", ())]


def _checked(answer: Any) -> Plain:
    if "error" in answer:
        raise Refused(answer["error"], answer["hint"], answer["exit_code"])
    return dict(answer)


def catalogue(state: Plain) -> Catalogue:
    """The table of the service, as it answers it."""
    offers = {offer["gpu_type"]: Offer(**offer) for offer in state["offers"]}
    limits = Limits(**{**state["limits"], "warnings_min": tuple(state["limits"]["warnings_min"])})
    # A service of an older version has sessions on hosts, without disks.
    return Catalogue(offers, limits, state["aliases"], bool(state.get("pods")), bool(state.get("disks")))
