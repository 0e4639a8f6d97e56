"""Commands of people: read from calls, with the keys of GitHub that they name, decided once."""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

from gpuctl.core.errors import GpuctlError, InvalidInput
from gpuctl.reservations.calls import DOING, as_dict, build, nothing_left
from gpuctl.reservations.decisions import Decisions
from gpuctl.reservations.disk_work import DiskWork
from gpuctl.reservations.github_keys import GithubSource
from gpuctl.reservations.order_work import OrderWork
from gpuctl.reservations.rules import access, commands, requests
from gpuctl.reservations.rules.access import AddUser, RemoveUser
from gpuctl.reservations.rules.commands import Cancel, Command, Edit, Extend, Keep, Message, Submit
from gpuctl.reservations.rules.disks import DISK_COMMANDS
from gpuctl.reservations.rules.model import Caller, GithubKeys, Receipt
from gpuctl.reservations.rules.requests import Request
from gpuctl.reservations.views import Views

COMMANDS: Mapping[str, type[Command]] = {
    kind.__name__.lower(): kind for kind in (Cancel, Extend, Edit, Keep, AddUser, RemoveUser, *DISK_COMMANDS)
}
VERBS = frozenset({"submit", *COMMANDS})
KEY = re.compile(r"[\x21-\x7e]{8,100}")  # of a call: it becomes a key of stores, which have UTF-8


def read_command(verb: str, content: dict[str, Any]) -> Command:
    """Take the command of a call out of its content; `InvalidInput` for other fields or types."""
    if verb == "submit":
        return Submit(build(Request, content.pop("request", None)))
    return build(COMMANDS[verb], content.pop("command", None))


def read_key(content: dict[str, Any]) -> str:
    """Take the idempotency key of a call out of its content, which has nothing else then."""
    key = content.pop("key", None)
    if not isinstance(key, str) or not KEY.fullmatch(key):
        wrong = "the call has no idempotency key of 8 to 100 printable ASCII characters without spaces"
        raise InvalidInput(DOING, wrong, "send a random one")
    nothing_left(content)
    return key


class CommandCalls:
    """Answers commands. Those that wait for GitHub do so without the lock of decisions."""

    def __init__(  # noqa: PLR0913 - what a command needs, and what it sets off
        self,
        decisions: Decisions,
        github: GithubSource,
        disks: DiskWork,
        orders: OrderWork,
        views: Views,
        *,
        has_account: Callable[[str], bool],
    ) -> None:
        self._decisions, self._github, self._disks = decisions, github, disks
        self._orders, self._views, self._has_account = orders, views, has_account
        self._callers = 0  # that wait for the lock
        self._counting = threading.Lock()

    @contextmanager
    def turn(self) -> Iterator[None]:
        """The lock, once a caller has it."""
        with self._counting:
            self._callers += 1
        with self._decisions.lock:
            with self._counting:
                self._callers -= 1
            yield

    def answer(self, caller: Caller, verb: str, content: dict[str, Any]) -> dict[str, Any]:
        """Decide a command, carry out what follows from it, and show the reservation."""
        command = read_command(verb, content)
        key = read_key(content)
        with self._decisions.lock:
            is_known = self._decisions.store.receipt(commands.receipt_key(caller, key)) is not None
        command = command if is_known else self._resolved(caller, key, command)  # a known one has its answer already
        with self.turn():
            receipt = self._decisions.handle(Message(command, caller, key))
            if not receipt.accepted:
                return {"error": receipt.message, "hint": receipt.hint, "exit_code": InvalidInput.exit_code}
            of_disk = isinstance(command, DISK_COMMANDS)
            # The last of the callers makes a pass for all; the wait of this one is not known yet.
            if self._callers and not of_disk:
                row = self._decisions.store.reservation(receipt.reservation)
                return {"message": receipt.message, "reservation": row and as_dict(row, None, self._decisions.load())}
        if of_disk:
            return self._disk_command(caller, receipt)
        self._orders.advance()
        with self._decisions.lock:
            return {"message": receipt.message, "reservation": self._views.row(receipt.reservation)}

    def _resolved(self, caller: Caller, key: str, command: Command) -> Command:
        """The command with the keys of the users of GitHub that it names; `GpuctlError` if it is refused before that.

        GitHub is asked without the lock of decisions, and only for a command that is accepted if it answers.
        """
        if not isinstance(command, AddUser | Submit):
            return command
        doing, people, github = _named(command)
        try:
            for person in people:
                access.check_account(person, doing)
                if not self._has_account(person):
                    wrong = f"there is no account {person} on this machine, or it is one of root or of a daemon"
                    hint = "they log in to this machine once, or an admin makes the account"
                    raise InvalidInput(doing, wrong, hint)
            if not github:
                return command
            access.check_github(github, doing)
            message = Message(_with_standins(command, github), caller, key)
            commands.check(self._decisions.load(), message, self._decisions.clock())
            return replace(command, resolved=self._github.resolve(github, doing, caller.person))
        except GpuctlError as error:
            action, subject, reason = commands.refusal(command), commands.subject(command, caller), str(error)
            self._decisions.decide(caller.person, lambda draft: draft.note(action, subject, reason))
            raise

    def _disk_command(self, caller: Caller, receipt: Receipt) -> dict[str, Any]:
        """The answer to a command about a disk, after the first step on its volume."""
        self._disks.step()
        return {"message": receipt.message, "reservation": None, **self._disks.rows(caller, {})}


def _named(command: AddUser | Submit) -> tuple[str, list[str], list[str]]:
    """The purpose of a command in messages, the people whom it adds, and its users of GitHub."""
    if isinstance(command, AddUser):
        return f"add {command.person!r} to a reservation", [command.person], command.github.split()
    pairs = access.pairs(command.request.users)
    github = [*command.request.github.split(), *(login for _, login in pairs if login)]
    return requests.DOING, [person for person, _ in pairs], github


def _with_standins(command: AddUser | Submit, github: Sequence[str]) -> Command:
    """The command as if GitHub had answered, for a check that decides nothing."""
    return replace(command, resolved=tuple(GithubKeys(login.casefold(), 0, "stand-in") for login in github))
