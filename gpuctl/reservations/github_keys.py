"""Public keys of GitHub users for sessions: read by the service, kept for a short time, and read again while they last.

Without an answer of GitHub nobody gets a new access. Sessions that run keep the keys that were read before: an outage
of GitHub is no reason to lock people out, and is shown.
"""

from __future__ import annotations

import itertools
import threading
import time
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from functools import partial

from gpuctl.core.errors import GpuctlError, InvalidInput, Unreachable
from gpuctl.domain import public_keys
from gpuctl.edges.public_keys import LIMIT_S, NoAnswer, RateLimited
from gpuctl.reservations.rules import access
from gpuctl.reservations.rules.decision import Draft
from gpuctl.reservations.rules.model import HOUR, Book, GithubKeys
from gpuctl.reservations.rules.requests import MOST_KEYS

FRESH_S = 300  # age of keys that are given without asking again, and time between two readings for sessions
RETRY_S = 300  # after a reading that failed
LONGEST_LIMIT_S = 2 * HOUR  # GitHub counts requests by the hour
MOST_A_PASS = 5  # users that are read in one pass
MOST_AN_HOUR = 30  # readings for the commands of a person: without a token GitHub allows all of them together 60
COMMAND_S = 15  # for all users of a command; its sender waits 30 s

# The id of a user and its public keys, one a line, within some seconds; `InvalidInput` if GitHub has no such user,
# `GpuctlError` without an answer, `NoAnswer` if nobody would get one, and `RateLimited` if it is to be asked later.
ReadUser = Callable[[str, float], tuple[int, str]]
Decide = Callable[[str, Callable[[Draft], object]], object]


@dataclass(frozen=True)
class _Reading:
    """`keys`: None if GitHub has no such user. `number`: order of the requests. `reason`: why there is no key."""

    keys: GithubKeys | None
    at: int
    number: int
    reason: str = ""


class GithubSource:
    """Keys of GitHub users. `read`: None for a service that does not ask GitHub. `clock`: seconds since 1970."""

    def __init__(self, read: ReadUser | None, clock: Callable[[], int]) -> None:
        self._read, self._clock = read, clock
        self._lock = threading.Lock()
        self._numbers = itertools.count(1)
        self._readings: dict[str, _Reading] = {}
        self._tried: dict[str, int] = {}  # number of the last reading for sessions, which may have failed
        self._retry_at: dict[str, int] = {}  # after such a failure
        self._asked: dict[str, list[int]] = {}  # person -> instants of readings for their commands
        self._limited: tuple[int, RateLimited] | None = None  # nobody asks before this instant
        self.trouble = ""  # why the keys of sessions could not be read again the last time

    def resolve(self, logins: Sequence[str], doing: str, person: str = "") -> tuple[GithubKeys, ...]:
        """Keys of users, at most `FRESH_S` old; `InvalidInput` for a user without keys, `GpuctlError` as `read`.

        `person`: who needs them; each one's readings in an hour are limited.
        """
        access.check_github(logins, doing)
        end = time.monotonic() + COMMAND_S
        return tuple(self._some(login, doing, person, end) for login in dict.fromkeys(map(str.casefold, logins)))

    def _some(self, login: str, doing: str, person: str, end: float) -> GithubKeys:
        with self._lock:
            reading = self._readings.get(login)
        if reading is None or reading.keys is None or not self._is_fresh(reading):
            if end <= time.monotonic():
                raise Unreachable(doing, f"GitHub needs more than {COMMAND_S} s", "name fewer users, or try again")
            self._count(person, doing)
            reading = self._ask(login, doing, min(LIMIT_S, end - time.monotonic()))
        if reading.keys is None or not reading.keys.keys:
            wrong = reading.reason or f"the GitHub user {login} has no public key that sshd takes"
            hint = "change them at github.com/settings/keys, or name the keys with --key FILE"
            raise InvalidInput(doing, wrong, hint)
        return reading.keys

    def _is_fresh(self, reading: _Reading) -> bool:
        return 0 <= self._clock() - reading.at < FRESH_S

    def _count(self, person: str, doing: str) -> None:
        now = self._clock()
        with self._lock:
            recent = [at for at in self._asked.get(person, ()) if 0 <= now - at < HOUR]
            if len(recent) >= MOST_AN_HOUR:
                wrong = f"your commands have named {MOST_AN_HOUR} users of GitHub in an hour"
                raise InvalidInput(doing, wrong, "wait, or name the keys with --key FILE")
            self._asked[person] = [*recent, now]

    def _ask(self, login: str, doing: str, limit_s: float) -> _Reading:
        if self._read is None:
            raise InvalidInput(doing, "this service does not ask GitHub", "name the keys with --key FILE")
        if self._limited is not None and 0 < self._limited[0] - self._clock() <= LONGEST_LIMIT_S:
            raise self._limited[1]
        at, number = self._clock(), next(self._numbers)
        try:
            id_, text = self._read(login, limit_s)
        except RateLimited as error:
            self._limited = self._clock() + min(error.again_in_s, LONGEST_LIMIT_S), error
            raise
        except InvalidInput:
            self._remember(login, _Reading(None, at, number))
            raise
        keys = public_keys.text(public_keys.accepted(text, f"github:{login}"))
        reading = _Reading(GithubKeys(login, id_, keys), at, number)
        if len(keys) > MOST_KEYS:
            reason = f"the keys of the GitHub user {login} have more than {MOST_KEYS} characters"
            reading = _Reading(GithubKeys(login, id_, ""), at, number, reason)
        return self._remember(login, reading)

    def _remember(self, login: str, reading: _Reading) -> _Reading:
        """The newer of this reading and the known one."""
        with self._lock:
            known = self._readings.get(login)
            if known is None or known.number < reading.number:
                self._readings[login] = reading
            return self._readings[login]

    def refresh(self, load: Callable[[], Book], decide: Decide) -> None:
        """Read keys of sessions again where that is due, and take away what GitHub does not have any more.

        It lasts as long as GitHub does: not for a thread that others wait for. Readings for commands count, too.
        """
        if self._read is None:
            return
        logins = access.logins(load())
        for login in self._due(logins)[:MOST_A_PASS]:
            if not self._read_again(login, decide):
                break
        with self._lock:
            self._readings = {
                login: one for login, one in self._readings.items() if login in logins or self._is_fresh(one)
            }
            known = {login: one for login, one in self._readings.items() if login in logins}
        if known:
            fresh = {login: one.keys for login, one in known.items()}
            reasons = {login: one.reason for login, one in known.items()}
            decide("github", partial(access.refresh, fresh=fresh, reasons=reasons))

    def _due(self, logins: Collection[str]) -> list[str]:
        """Users that are to be read again, the one whose last try is the oldest first."""
        now = self._clock()
        self._tried = {login: number for login, number in self._tried.items() if login in logins}
        self._retry_at = {login: at for login, at in self._retry_at.items() if login in logins}
        with self._lock:
            fresh = {login for login, one in self._readings.items() if self._is_fresh(one)}
        waits = {login for login, at in self._retry_at.items() if now < at <= now + RETRY_S}
        return sorted(set(logins) - fresh - waits, key=lambda login: (self._tried.get(login, 0), login))

    def _read_again(self, login: str, decide: Decide) -> bool:
        """Read a user for sessions; False if the next one would not be answered either."""
        try:
            self._ask(login, "read keys of sessions again", LIMIT_S)
        except InvalidInput:
            pass  # remembered: GitHub has no such user
        except RateLimited as error:
            self._failed(str(error), decide)
            return False
        except GpuctlError as error:
            self._tried[login] = next(self._numbers)
            self._retry_at[login] = self._clock() + RETRY_S
            self._failed(str(error), decide)
            return not isinstance(error, NoAnswer)
        self._tried[login] = next(self._numbers)
        self._retry_at.pop(login, None)
        if not self._retry_at:
            self.trouble = ""
        return True

    def _failed(self, reason: str, decide: Decide) -> None:
        if not self.trouble:
            decide("github", lambda draft: draft.note("keep keys", "github", f"they cannot be read again: {reason}"))
        self.trouble = reason
