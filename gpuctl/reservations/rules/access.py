"""People whom the owner of a reservation gives access, public keys of all of them, and reports of nodes about it.

A change of who has access counts up `Reservation.access`. Nodes get an order until each has carried out the latest one.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType

from gpuctl.core.errors import InvalidInput
from gpuctl.core.text import named
from gpuctl.domain import public_keys
from gpuctl.reservations.rules.decision import Draft
from gpuctl.reservations.rules.model import AddedUser, Book, Caller, GithubKeys, Reservation, State
from gpuctl.reservations.rules.requests import MOST_KEYS

MOST_USERS = 20  # beside the owner
MOST_GITHUB = 10  # users of GitHub in one command
# Public keys in characters. A Secret has the keys of a session, and at most 1 MiB: those of GitHub, which their users
# can add to at any time, must not fill it, or nobody could take a key away any more.
MOST_NAMED = 100_000  # of a session, without those of GitHub
MOST_GITHUB_OF_SESSION = 30
ACCOUNT = re.compile(r"[A-Za-z_][A-Za-z0-9_.@-]{0,63}")
_OPEN = (State.QUEUED, State.PREPARING, State.ACTIVE)


@dataclass(frozen=True)
class AddUser:
    """`keys`: public keys, one a line, and `github`: users of GitHub, separated by spaces; where sessions are pods.

    `resolved`: keys of these users, which the service has read.
    """

    reservation: str
    person: str
    keys: str = ""
    github: str = ""
    resolved: tuple[GithubKeys, ...] = ()


@dataclass(frozen=True)
class RemoveUser:
    """`person`: who has the access no longer; "" for the caller."""

    reservation: str
    person: str = ""


def add_user(draft: Draft, command: AddUser, caller: Caller, _: str) -> tuple[str, str]:
    doing = f"add {command.person!r} to reservation {command.reservation}"
    reservation = draft.book.reservations.get(command.reservation)
    if reservation is None:
        raise InvalidInput(doing, "no live reservation has this id", "`gpuctl reservations list` shows yours")
    if reservation.person != caller.person:  # not even an admin: it would be a login to somebody else's session
        raise InvalidInput(doing, f"it belongs to {reservation.person}, and you are {caller.person}", "ask its owner")
    if reservation.state not in _OPEN:
        raise InvalidInput(doing, f"it is {reservation.state}", "reserve again with --add-user")
    pods = draft.book.site.pods
    check_account(command.person, doing)
    check_github(command.github.split(), doing)
    keys = parse_keys(command.keys, command.person, doing) if command.keys else ""
    user = AddedUser(command.person, keys, resolved(command.github.split(), command.resolved, doing))
    _check_keys(user, doing, pods=pods)
    others = tuple(one for one in reservation.users if one.person != user.person)
    if len(others) < len(reservation.users) and user in reservation.users:
        return reservation.id, f"{user.person} has access already"
    _check_number((*others, user), reservation.person, doing)
    after = replace(reservation, users=(*others, user))
    check_size(after, doing)
    changed(draft, after, "add user", f"{user.person}: {_by(user)}")
    return reservation.id, f"{user.person} gets access"


def remove_user(draft: Draft, command: RemoveUser, caller: Caller, _: str) -> tuple[str, str]:
    """The owner removes anybody who was added, and everybody themselves: nobody has to stay in a session of others."""
    person = command.person or caller.person
    doing = f"remove {person!r} from reservation {command.reservation}"
    reservation = draft.book.reservations.get(command.reservation)
    if reservation is None:
        raise InvalidInput(doing, "no live reservation has this id", "`gpuctl reservations list` shows yours")
    if caller.person not in (reservation.person, person):
        raise InvalidInput(doing, f"it belongs to {reservation.person}, and you are {caller.person}", "ask its owner")
    if reservation.state not in _OPEN:
        raise InvalidInput(doing, f"it is {reservation.state}", "the access ends with it")
    left = tuple(user for user in reservation.users if user.person != person)
    if len(left) == len(reservation.users):
        raise InvalidInput(doing, f"{person} was not added to it", f"it has {named(reservation.people)}")
    changed(draft, replace(reservation, users=left), "remove user", person)
    return reservation.id, f"{person} has no access any more"


def users_of(text: str, github: Sequence[GithubKeys], owner: str, doing: str, *, pods: bool) -> tuple[AddedUser, ...]:
    """People of a request: NAME, in pods NAME=GITHUB_USER, separated by spaces; `InvalidInput` for a bad one."""
    users = tuple(
        AddedUser(person, github=resolved([login] if login else [], github, doing)) for person, login in pairs(text)
    )
    for user in users:
        check_account(user.person, doing)
        _check_keys(user, doing, pods=pods)
    _check_number(users, owner, doing)
    return users


def pairs(text: str) -> list[tuple[str, str]]:
    """Accounts with their users of GitHub, "" without one."""
    return [(person, login) for person, _, login in (word.partition("=") for word in text.split())]


def check_account(person: str, doing: str) -> None:
    if not ACCOUNT.fullmatch(person):
        raise InvalidInput(doing, f"{person!r} is not a name of an account", "name somebody's account on this machine")


def check_github(logins: Sequence[str], doing: str) -> None:
    """`InvalidInput` for a name that GitHub does not have, or too many."""
    if len(logins) > MOST_GITHUB:
        raise InvalidInput(doing, f"{len(logins)} users of GitHub are named", f"name at most {MOST_GITHUB}")
    for login in logins:
        if not public_keys.GITHUB_USER.fullmatch(login):
            hint = "it has letters, digits and single hyphens"
            raise InvalidInput(doing, f"{login!r} is no name of a GitHub user", hint)


def resolved(logins: Sequence[str], github: Sequence[GithubKeys], doing: str) -> tuple[GithubKeys, ...]:
    """Keys of these users; `InvalidInput` if nobody has read them."""
    known = {one.login.casefold(): one for one in github}
    if missing := [login for login in logins if login.casefold() not in known]:
        raise InvalidInput(doing, f"no keys of the GitHub user {named(missing)} were read", "use --key FILE")
    return tuple(dict.fromkeys(known[login.casefold()] for login in logins))


def parse_keys(text: str, origin: str, doing: str) -> str:
    """Public keys, each line rebuilt from its type and its base64."""
    if len(text) > MOST_KEYS:
        raise InvalidInput(doing, f"the public keys have more than {MOST_KEYS} characters", "name fewer with --key")
    return public_keys.text(public_keys.parse(text, origin, doing))


def session_keys(reservation: Reservation) -> str:
    """Public keys that may log in to a session in a pod, one a line; "" if none is left."""
    texts = [
        reservation.keys,
        *(user.keys for user in reservation.users),
        *(one.keys for one in github_of(reservation)),
    ]
    keys = [key for text in texts for key in public_keys.read(text).keys]
    return public_keys.text(public_keys.merged([], keys)) if keys else ""


def github_of(reservation: Reservation) -> list[GithubKeys]:
    """Keys from GitHub of the owner and of the added people."""
    return [*reservation.github, *(one for user in reservation.users for one in user.github)]


def check_size(reservation: Reservation, doing: str) -> None:
    """`InvalidInput` for more keys than a session can have."""
    if (number := len({one.login for one in github_of(reservation)})) > MOST_GITHUB_OF_SESSION:
        hint = f"name at most {MOST_GITHUB_OF_SESSION} for a session"
        raise InvalidInput(doing, f"it would have the keys of {number} users of GitHub", hint)
    if len(reservation.keys) + sum(len(user.keys) for user in reservation.users) > MOST_NAMED:
        raise InvalidInput(doing, f"its keys would have more than {MOST_NAMED} characters", "name fewer with --key")


def changed(draft: Draft, reservation: Reservation, action: str, reason: str) -> None:
    """Write a reservation whose people or keys are others now: each of its nodes gets an order."""
    nodes = tuple(slot.node for slot in reservation.slots)
    draft.put(replace(reservation, access=reservation.access + 1, without_access=nodes, access_reason=""))
    draft.note(action, reservation.id, reason)


def logins(book: Book) -> set[str]:
    """Users of GitHub whose keys open a live session, or will."""
    return {one.login for row in book.reservations.values() for one in github_of(row)}


def refresh(
    draft: Draft, fresh: Mapping[str, GithubKeys | None], reasons: Mapping[str, str] = MappingProxyType({})
) -> None:
    """Take what GitHub answers now by login: None if it has no such user. Who lost a key loses the access.

    `reasons`: why none of the keys of a user is taken, "" if they are.
    """
    for row in list(draft.book.reservations.values()):
        if row.state not in _OPEN:
            continue
        notes = list[str]()
        github = _refreshed(row.github, fresh, reasons, notes)
        users = tuple(replace(user, github=_refreshed(user.github, fresh, reasons, notes)) for user in row.users)
        if (github, users) != (row.github, row.users):
            changed(draft, replace(row, github=github, users=users), "change keys", "; ".join(dict.fromkeys(notes)))


def _refreshed(
    github: Sequence[GithubKeys],
    fresh: Mapping[str, GithubKeys | None],
    reasons: Mapping[str, str],
    notes: list[str],
) -> tuple[GithubKeys, ...]:
    result = []
    for known in github:
        now = fresh.get(known.login, known)
        if now is None:
            now = replace(known, keys="")
            reason = f"GitHub has no user {known.login} any more"
        elif now.id != known.id:
            now, reason = replace(known, keys=""), f"the GitHub user {known.login} is somebody else now (id {now.id})"
        else:
            reason = reasons.get(known.login) or f"GitHub has other keys of {known.login}"
        if now != known:
            notes.append(reason)
        result.append(now)
    return tuple(result)


def _check_keys(user: AddedUser, doing: str, *, pods: bool) -> None:
    has_keys = bool(user.keys or any(one.keys for one in user.github))
    if pods and not has_keys:
        wrong = f"there is no public key of {user.person} to log in with"
        raise InvalidInput(doing, wrong, f"name the keys: --add-user {user.person}=GITHUB_USER, or --key FILE")
    if not pods and (has_keys or user.github):
        wrong = "sessions of this site are accounts of hosts"
        raise InvalidInput(doing, wrong, f"name the account alone: {user.person} logs in as on any host")


def _check_number(users: Sequence[AddedUser], owner: str, doing: str) -> None:
    people = [user.person for user in users]
    if owner in people:
        raise InvalidInput(doing, f"it is the reservation of {owner}", "name somebody else")
    if len(set(people)) < len(people):
        raise InvalidInput(doing, "somebody is named twice", "name each person once")
    if len(people) > MOST_USERS:
        raise InvalidInput(doing, f"it would have {len(people)} added people", f"add at most {MOST_USERS}")


def _by(user: AddedUser) -> str:
    """Means by which an added person logs in, for the audit."""
    keys = public_keys.read(user.keys).keys
    words = [f"key {key.fingerprint}" for key in keys] + [
        f"GitHub user {one.login} (id {one.id})" for one in user.github
    ]
    return ", ".join(words) or "the account of that name"


# ---- reports of nodes -----------------------------------------------------------------------------------------------


def granted(draft: Draft, id_: str, access: int, node: str) -> None:
    """A node has carried out a change of who has access, if it is the latest one."""
    row = _current(draft.book, id_, access, node)
    if row is None:
        return
    left = tuple(name for name in row.without_access if name != node)
    draft.put(replace(row, without_access=left, access_reason=row.access_reason if left else ""))
    if not left:
        draft.note("give access", id_, f"to {named(row.people)} on all of its nodes")


def delayed(draft: Draft, id_: str, access: int, node: str, reason: str) -> None:
    """A node has not carried it out, such as for an account that it does not have; it gets the order again."""
    row = _current(draft.book, id_, access, node)
    text = f"{node}: {reason}"
    if row is not None and row.access_reason != text:
        draft.put(replace(row, access_reason=text))
        draft.note("wait for access", id_, text)


def _current(book: Book, id_: str, access: int, node: str) -> Reservation | None:
    row = book.reservations.get(id_)
    return row if row is not None and row.access == access and node in row.without_access else None
