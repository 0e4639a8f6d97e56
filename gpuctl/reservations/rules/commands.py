"""Commands of people. Each carries an idempotency key: a second delivery gets the first answer and changes nothing."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from typing import Any, TypeAlias

from gpuctl.core.errors import InvalidInput
from gpuctl.domain import public_keys
from gpuctl.reservations.rules import access, disks, requests
from gpuctl.reservations.rules.access import AddUser, RemoveUser
from gpuctl.reservations.rules.decision import Decision, Draft
from gpuctl.reservations.rules.disks import DISK_COMMANDS, CloneDisk, CreateDisk, DeleteDisk, DiskCommand, RenameDisk
from gpuctl.reservations.rules.model import HOUR, Book, Caller, GithubKeys, Receipt, Reservation, State
from gpuctl.reservations.rules.pool import Pool, release_s
from gpuctl.reservations.rules.requests import Request
from gpuctl.reservations.rules.state_machine import Event


@dataclass(frozen=True)
class Submit:
    """`resolved`: keys of the users of GitHub of the request, which the service has read."""

    request: Request
    resolved: tuple[GithubKeys, ...] = ()


@dataclass(frozen=True)
class Cancel:
    reservation: str


@dataclass(frozen=True)
class Extend:
    """`over_promise`: grant it although a promised start moves; for admins, and the other person is notified."""

    reservation: str
    seconds: int
    over_promise: bool = False


@dataclass(frozen=True)
class Edit:
    """New name or, before the start, new length. None keeps the value."""

    reservation: str
    name: str | None = None
    length_s: int | None = None


@dataclass(frozen=True)
class Keep:
    """Switch idle detection off for some time."""

    reservation: str
    seconds: int


Command: TypeAlias = Submit | Cancel | Extend | Edit | Keep | AddUser | RemoveUser | DiskCommand


def fingerprint(command: Command) -> str:
    """Digest of a command's content, as its sender wrote it."""
    if isinstance(command, Submit | AddUser):
        command = replace(command, resolved=())
    content = json.dumps([type(command).__name__, asdict(command)], sort_keys=True)
    return hashlib.sha256(content.encode()).hexdigest()


def receipt_key(caller: Caller, key: str) -> str:
    """Key of a receipt: everybody's keys are separate, so that nobody gets somebody else's answer."""
    return f"{caller.person}:{key}"


def reservation_id(caller: Caller, key: str) -> str:
    """Id of a new reservation: the same for each delivery of one request."""
    return "r" + hashlib.sha256(receipt_key(caller, key).encode()).hexdigest()[:11]


@dataclass(frozen=True)
class Message:
    """A command, who the transport proved its sender to be, and its idempotency key."""

    command: Command
    caller: Caller
    key: str


def handle(book: Book, message: Message, now: int, previous: Receipt | None) -> tuple[Decision, Receipt]:
    """Decide a command. `previous`: the receipt of its key, if it was delivered before.

    A refusal is an answer, too: it has a receipt and an audit entry, and changes nothing else.
    """
    command, caller, key = message.command, message.caller, message.key
    digest = fingerprint(command)
    if previous is not None and previous.fingerprint == digest:
        return Decision(), previous
    draft = Draft(book, now, caller.person)
    if previous is not None:
        reused = Receipt(
            previous.key,
            digest,
            draft.now,
            accepted=False,
            reservation="",
            message="its key belongs to another command",
        )
        return Decision(), reused
    answer = Receipt(receipt_key(caller, key), digest, draft.now, accepted=True, reservation="", message="")
    try:
        reservation, text = _HANDLERS[type(command)](draft, command, caller, key)
    except InvalidInput as error:
        answer = replace(answer, accepted=False, message=str(error), hint=error.hint)
        draft = Draft(book, now, caller.person)
        draft.note(refusal(command), subject(command, caller), str(error))
        return draft.decision(answer), answer
    answer = replace(answer, reservation=reservation, message=text)
    return draft.decision(answer), answer


def check(book: Book, message: Message, now: int) -> None:
    """`InvalidInput` if a command is refused on this snapshot; nothing is decided."""
    draft = Draft(book, now, message.caller.person)
    _HANDLERS[type(message.command)](draft, message.command, message.caller, message.key)


def refusal(command: Command) -> str:
    """Action of a refused command in the audit."""
    return f"refuse {type(command).__name__.lower()}"


def subject(command: Command, caller: Caller) -> str:
    """Subject of a command in the audit."""
    if isinstance(command, DISK_COMMANDS):
        return command.disk if "/" in command.disk else f"{caller.person}/{command.disk}"
    return getattr(command, "reservation", "")


def _submit(draft: Draft, command: Submit, caller: Caller, key: str) -> tuple[str, str]:
    request, limits = command.request, draft.book.site.limits
    shape = requests.check(request, requests.catalogue(draft.book))
    waiting = sum(reservation.person == caller.person for reservation in draft.book.in_state(State.QUEUED))
    if waiting >= limits.queued_per_person:
        hint = "cancel one, or wait until one starts"
        raise InvalidInput(requests.DOING, f"{waiting} of your requests wait already, as many as are allowed", hint)
    disk = disks.first_use(draft, caller, request.disk, requests.DOING) if request.disk else None
    pods = draft.book.site.pods
    users = access.users_of(request.users, command.resolved, caller.person, requests.DOING, pods=pods)
    new = Reservation(
        id=reservation_id(caller, key),
        person=caller.person,
        group=caller.group,
        gpu_type=shape.gpu_type,
        nodes=shape.nodes,
        gpus=shape.gpus,
        length_s=request.length_s,
        submitted_at=draft.now,
        state=State.REQUESTED,
        since_at=draft.now,
        name=request.name,
        disk=disk,
        keys=requests.authorized_keys(request.keys) if draft.book.site.pods and request.keys else "",
        image=request.image,
        jupyter=request.jupyter,
        github=access.resolved(request.github.split(), command.resolved, requests.DOING),
        users=users,
        access=int(bool(users)),
    )
    _check_any_key(draft, new)
    access.check_size(new, requests.DOING)
    draft.move(new, Event.ACCEPT, "within the limits")
    if users:
        draft.note("add user", new.id, ", ".join(new.people[1:]))
    return new.id, "accepted"


def _check_any_key(draft: Draft, reservation: Reservation) -> None:
    """`InvalidInput` for a pod to which its owner could not log in."""
    if draft.book.site.pods and not reservation.keys and not any(one.keys for one in reservation.github):
        raise InvalidInput(requests.DOING, "there is no public key to log in with", public_keys.ADD_KEYS)


def _cancel(draft: Draft, command: Cancel, caller: Caller, _: str) -> tuple[str, str]:
    reservation = _find(draft.book, command.reservation, caller, "cancel")
    if reservation.state is State.ENDING:
        if reservation.outcome is State.QUEUED:  # it would be queued again
            draft.put(replace(reservation, outcome=State.CANCELLED, reason=f"cancelled by {caller.person}"))
            draft.note("cancel", reservation.id, "while it was to be queued again")
        return reservation.id, "it is ending already"
    draft.move(reservation, Event.CANCEL, f"cancelled by {caller.person}")
    return reservation.id, "cancelled" if reservation.state is State.QUEUED else "ending"


def _extend(draft: Draft, command: Extend, caller: Caller, _: str) -> tuple[str, str]:
    doing = f"extend reservation {command.reservation}"
    reservation = _find(draft.book, command.reservation, caller, "extend")
    if reservation.state is not State.ACTIVE or reservation.expires_at is None or reservation.active_at is None:
        hint = "before the start, change its length with `gpuctl reservations edit`"
        raise InvalidInput(doing, f"it is {reservation.state}, not active", hint)
    limits = draft.book.site.limits
    latest_at = reservation.active_at + limits.longest_extended_s
    expires_at = reservation.expires_at + command.seconds
    if command.seconds <= 0 or expires_at > latest_at:
        wrong = f"it would last {(expires_at - reservation.active_at) / HOUR:g} hours"
        possible = max(0, latest_at - reservation.expires_at) // 60
        raise InvalidInput(doing, wrong, f"up to {possible} more minutes are possible")
    _keep_promise(draft, reservation, expires_at, command.over_promise and caller.admin)
    draft.put(replace(reservation, expires_at=expires_at, idle_at=None, warned_min=None, warned_at=None))
    draft.note("extend", reservation.id, f"by {command.seconds} s", str(reservation.expires_at), str(expires_at))
    return reservation.id, "extended"


def _keep_promise(draft: Draft, reservation: Reservation, expires_at: int, over_promise: bool) -> None:
    """Refuse an extension that delays a promised start, or move the promise."""
    limits = draft.book.site.limits
    pool = Pool.of(draft.book, reservation.gpu_type, draft.now)
    slots = [slot for slot in reservation.slots if slot.node in pool.free_at]
    pool.occupy(slots, expires_at + release_s(limits))
    for promised in draft.book.in_state(State.QUEUED):
        if promised.gpu_type != reservation.gpu_type or promised.promised_at is None:
            continue
        start = pool.earliest_at(promised.nodes, promised.gpus)
        if start is not None and start <= promised.promised_at:
            continue
        if not over_promise or start is None:
            wrong = f"reservation {promised.id} of {promised.person} was promised these GPUs"
            last_at = promised.promised_at - release_s(limits)
            minutes = max(0, last_at - (reservation.expires_at or 0)) // 60
            raise InvalidInput(f"extend reservation {reservation.id}", wrong, f"up to {minutes} minutes are possible")
        draft.put(replace(promised, promised_at=start))
        reason = f"{draft.actor} extended reservation {reservation.id}"
        draft.note("move promise", promised.id, reason, str(promised.promised_at), str(start))


def _edit(draft: Draft, command: Edit, caller: Caller, _: str) -> tuple[str, str]:
    doing = f"edit reservation {command.reservation}"
    reservation = _find(draft.book, command.reservation, caller, "edit")
    fields: dict[str, Any] = {}
    if command.name is not None:
        fields["name"] = command.name
    if command.length_s is not None:
        if reservation.state is not State.QUEUED:
            hint = "an active reservation is extended with `gpuctl reservations extend`"
            raise InvalidInput(doing, f"it is {reservation.state}; only a request that waits has another length", hint)
        fields["length_s"] = command.length_s
    if not fields:
        raise InvalidInput(doing, "nothing to change was named", "give --name or --hours")
    changed = replace(reservation, **fields)
    gpus = changed.total_gpus
    request = Request(gpus, changed.gpu_type, changed.length_s, changed.name, None, changed.keys, changed.image)
    request = replace(request, github=" ".join(one.login for one in changed.github))
    requests.check(request, requests.catalogue(draft.book))
    draft.put(changed)
    draft.note("edit", reservation.id, ", ".join(f"{name} {value}" for name, value in fields.items()))
    return reservation.id, "changed"


def _keep(draft: Draft, command: Keep, caller: Caller, _: str) -> tuple[str, str]:
    doing = f"keep reservation {command.reservation} although it is idle"
    reservation = _find(draft.book, command.reservation, caller, "keep")
    left_s = draft.book.site.limits.longest_keep_s - reservation.kept_s
    if reservation.state is not State.ACTIVE:
        raise InvalidInput(doing, f"it is {reservation.state}, not active", "wait until it is")
    if not 0 < command.seconds <= left_s:
        raise InvalidInput(doing, "it would be kept for too long", f"{left_s // 60} minutes are left for it")
    until_at, kept_s = draft.now + command.seconds, reservation.kept_s + command.seconds
    kept = replace(reservation, keep_until_at=until_at, kept_s=kept_s, idle_at=None)
    draft.put(replace(kept, warned_min=None, warned_at=None))
    draft.note("keep", reservation.id, f"idle detection is off for {command.seconds} s", after=str(until_at))
    return reservation.id, "kept"


def _find(book: Book, id_: str, caller: Caller, verb: str) -> Reservation:
    doing, reservation = f"{verb} reservation {id_}", book.reservations.get(id_)
    if reservation is None:
        raise InvalidInput(doing, "no live reservation has this id", "`gpuctl reservations list` shows yours")
    if reservation.person != caller.person and not caller.admin:
        raise InvalidInput(doing, f"it belongs to {reservation.person}, and you are {caller.person}", "ask its owner")
    return reservation


Handler: TypeAlias = Callable[[Draft, Any, Caller, str], tuple[str, str]]
_HANDLERS: dict[type[Command], Handler] = {
    Submit: _submit,
    Cancel: _cancel,
    Extend: _extend,
    Edit: _edit,
    Keep: _keep,
    AddUser: access.add_user,
    RemoveUser: access.remove_user,
    CreateDisk: disks.create,
    CloneDisk: disks.clone,
    RenameDisk: disks.rename,
    DeleteDisk: disks.delete,
}
