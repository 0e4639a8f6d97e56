"""Values of the reservation rules. Instants are whole seconds since 1970 UTC (`_at`), lengths are seconds (`_s`)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TypeAlias

HOUR = 3600
DAY = 24 * HOUR


class State(StrEnum):
    """State of a reservation; `state_machine.TRANSITIONS` lists the moves."""

    REQUESTED = "requested"
    QUEUED = "queued"
    PREPARING = "preparing"
    ACTIVE = "active"
    ENDING = "ending"
    EXPIRED = "expired"
    CANCELLED = "cancelled"
    FAILED = "failed"


class DiskState(StrEnum):
    """READY disks can be used. A LOST one has no volume any more; DELETED ones leave the database."""

    MAKING = "being made"
    COPYING = "being copied"
    READY = "ready"
    LOST = "lost"
    DELETING = "being deleted"
    DELETED = "deleted"


class NodeState(StrEnum):
    """READY nodes take reservations. A LOST node that is back is CLEANING until no old session is left."""

    READY = "ready"
    LOST = "lost"
    CLEANING = "cleaning"


@dataclass(frozen=True)
class Limits:
    """Limits of a site. `warnings_min` are minutes before the end, the largest first."""

    shortest_s: int = HOUR // 4
    longest_s: int = DAY
    longest_extended_s: int = 2 * DAY
    gpus_per_person: int | None = None
    gpus_per_group: int | None = None
    queued_per_person: int = 50
    half_life_s: int = 7 * DAY
    longest_wait_s: int = 14 * DAY
    starving_s: int = DAY  # a request that has waited so long goes before every younger one
    warnings_min: tuple[int, ...] = (30, 15, 5)
    grace_s: int = 120  # between the end and the loss of access, and at least between last warning and loss
    prepare_limit_s: int = 600
    most_attempts: int = 3  # starts of a request whose node was lost while it was prepared
    clear_limit_s: int = 300  # allowance for clearing a node, part of every promise
    pass_s: int = 60  # allowance for the time between two passes of the service, part of every promise
    stuck_factor: int = 6  # after so many allowances, a node that was not cleared leaves the pool
    node_lost_s: int = 180  # a node without an answer for so long counts as lost
    idle_ends: bool = False  # sessions that nobody uses for the window end
    idle_window_s: int = HOUR
    idle_sample_gap_s: int = 300  # a longer gap between samples means unknown, not idle
    idle_notice_s: int = 30 * 60
    longest_keep_s: int = 12 * HOUR  # opt-out of idle detection, in total for a reservation
    receipts_s: int = 30 * DAY  # longer than any queue keeps a message (SQS: 14 days)


@dataclass(frozen=True)
class Site:
    """Rules of a site. `shares`: group -> share of the machines, 1 if not listed. `aliases`: name -> GPU type.

    `pods`: sessions are pods, which people reach with their public keys, and not accounts of hosts. `disks`: sessions
    can have a disk that stays. `no_copies`: why disks cannot be cloned, "" if they can.
    """

    limits: Limits = field(default_factory=Limits)
    shares: Mapping[str, float] = field(default_factory=dict)
    aliases: Mapping[str, str] = field(default_factory=dict)
    pods: bool = False
    disks: bool = True
    no_copies: str = ""


@dataclass(frozen=True)
class Slot:
    """GPUs of one node, by index."""

    node: str
    gpus: tuple[int, ...]


@dataclass(frozen=True)
class GithubKeys:
    """Public keys of a GitHub user, one a line. The `id` says who it is: a name can become somebody else's."""

    login: str
    id: int
    keys: str


@dataclass(frozen=True)
class AddedUser:
    """A person whom the owner of a reservation has given access. `keys` and `github`: where sessions are pods."""

    person: str
    keys: str = ""
    github: tuple[GithubKeys, ...] = ()


@dataclass(frozen=True)
class Reservation:
    """One request and what became of it. `gpus` is per node; `nodes` above 1 are a gang: all or none.

    `since_at`: entry into `state`. `attempt`: counts starts; reports of an earlier attempt are ignored. `promised_at`:
    latest start that was promised. `outcome`: the state that follows ENDING. `warned_min`: the most urgent warning that
    was sent; `unwarned`: nodes it has not reached, where it is tried again. `idle_at`: end because of idleness.
    `keep_until_at`: idle detection is off until then. `keys`: public ssh keys of a pod, one a line; `image`: of a pod,
    "" for the site's. `jupyter`: it runs Jupyter. `github`: keys of its owner from GitHub. `access`: counts changes of
    who has access; `without_access`: nodes that have not carried out the last one, and `access_reason`: why.
    """

    id: str
    person: str
    group: str
    gpu_type: str
    nodes: int
    gpus: int
    length_s: int
    submitted_at: int
    state: State
    since_at: int
    name: str = ""
    disk: str | None = None
    attempt: int = 0
    slots: tuple[Slot, ...] = ()
    allocated_at: int | None = None
    active_at: int | None = None
    expires_at: int | None = None
    finished_at: int | None = None
    promised_at: int | None = None
    outcome: State | None = None
    reason: str = ""
    ready: tuple[str, ...] = ()
    cleared: tuple[str, ...] = ()
    warned_min: int | None = None
    warned_at: int | None = None
    unwarned: tuple[str, ...] = ()
    idle_at: int | None = None
    keep_until_at: int = 0
    kept_s: int = 0
    keys: str = ""
    image: str = ""
    jupyter: bool = False
    github: tuple[GithubKeys, ...] = ()
    users: tuple[AddedUser, ...] = ()
    access: int = 0
    without_access: tuple[str, ...] = ()
    access_reason: str = ""
    version: int = 0

    @property
    def people(self) -> tuple[str, ...]:
        """Everybody who may log in: the owner, then the added people."""
        return self.person, *(user.person for user in self.users)

    @property
    def total_gpus(self) -> int:
        return self.nodes * self.gpus

    @property
    def end_at(self) -> int | None:
        """The earlier of expiry and end by idleness; None before the session is active."""
        if self.expires_at is None or self.idle_at is None:
            return self.expires_at
        return min(self.expires_at, self.idle_at)


@dataclass(frozen=True)
class Node:
    """A node's row in the ledger: the reservation on each GPU, or None.

    `fence` grows with every change of the allocation. A node ignores an order with a lower one than it knows, so that
    a late order cannot give GPUs to somebody who lost them. `uuids`: of its GPUs by index; empty if unknown. `address`
    and `port`: for logins; empty where the name is the address. `place`: uid of the namespace of its sessions, which
    are pods; "" for accounts of a host.
    """

    name: str
    gpu_type: str
    allocated: tuple[str | None, ...]
    zone: str = ""
    state: NodeState = NodeState.READY
    fence: int = 0
    efa: int = 0
    version: int = 0
    uuids: tuple[str, ...] = ()
    address: str = ""
    port: int | None = None
    place: str = ""

    @property
    def pods(self) -> bool:
        return self.place != ""

    @property
    def free(self) -> tuple[int, ...]:
        return tuple(index for index, holder in enumerate(self.allocated) if holder is None)


@dataclass(frozen=True)
class Usage:
    """Decayed GPU-seconds of a person or group as of `at`. `key`: "person:ada" or "group:vision"."""

    key: str
    gpu_seconds: float
    at: int
    version: int = 0


@dataclass(frozen=True)
class Disk:
    """A person's disk; `attached` is the only reservation that may write to it.

    `volume`: name under which its volume was made, "" for `name`. `made`: the volume has existed. `source`: volume that
    it is copied from. `reason`: what work on it waits for, or why it is lost.
    """

    name: str  # "ada/data"
    person: str
    attached: str | None = None
    version: int = 0
    state: DiskState = DiskState.READY
    volume: str = ""
    made: bool = False
    source: str = ""
    reason: str = ""

    @property
    def volume_id(self) -> str:
        return self.volume or self.name


@dataclass(frozen=True)
class Clock:
    """Latest instant at which something was decided. Decisions never go back behind it."""

    at: int = 0
    version: int = 0


Row: TypeAlias = Reservation | Node | Usage | Disk | Clock


@dataclass(frozen=True)
class Receipt:
    """Answer to a command, kept by its idempotency key. `fingerprint`: digest of the command's content."""

    key: str
    fingerprint: str
    at: int
    accepted: bool
    reservation: str
    message: str
    hint: str = ""


@dataclass(frozen=True)
class AuditEntry:
    """One decision: who caused it, what changed, and why. `before` and `after` are empty if no state changed."""

    at: int
    actor: str
    action: str
    subject: str
    reason: str
    before: str = ""
    after: str = ""


@dataclass(frozen=True)
class Book:
    """Snapshot of everything that decisions depend on: live reservations, the ledger, use, disks and the clock."""

    site: Site
    nodes: Mapping[str, Node]
    reservations: Mapping[str, Reservation] = field(default_factory=dict)
    usage: Mapping[str, Usage] = field(default_factory=dict)
    disks: Mapping[str, Disk] = field(default_factory=dict)
    clock: Clock = field(default_factory=Clock)

    def in_state(self, *states: State) -> list[Reservation]:
        return [reservation for reservation in self.reservations.values() if reservation.state in states]


@dataclass(frozen=True)
class Caller:
    """The identity that the transport proved; never read from a message."""

    person: str
    group: str = ""
    admin: bool = False
