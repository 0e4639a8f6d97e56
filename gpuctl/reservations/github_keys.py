"""Public keys of GitHub users for sessions: read by the service, kept for a short time, and read again while they last.

Without an answer of GitHub nobody gets a new access. Sessions that run keep the keys that were read before: an outage
of GitHub is no reason to lock people out, and is shown.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

from gpuctl.core.errors import GpuctlError, InvalidInput
from gpuctl.domain import public_keys
from gpuctl.edges.public_keys import RateLimited
from gpuctl.reservations.rules import access
from gpuctl.reservations.rules.decision import Draft
from gpuctl.reservations.rules.model import Book, GithubKeys

FRESH_S = 300  # age of keys that are given without asking again, and time between two readings for sessions
RETRY_S = 300  # after a reading that failed
LONGEST_LIMIT_S = 2 * 3600  # GitHub counts requests by the hour
MOST_A_PASS = 5  # users that are read in one pass

# The id of a user and its public keys, one a line; `InvalidInput` if GitHub has no such user, `GpuctlError` without an
# answer, and `RateLimited` if it wants to be asked later.
ReadUser = Callable[[str], tuple[int, str]]
Decide = Callable[[str, Callable[[Draft], object]], object]


@dataclass(frozen=True)
class _Reading:
    """`keys`: None if GitHub has no such user."""

    keys: GithubKeys | None
    at: int


class GithubSource:
    """Keys of GitHub users. `read`: None for a service that does not ask GitHub. `clock`: seconds since 1970."""

    def __init__(self, read: ReadUser | None, clock: Callable[[], int]) -> None:
        self._read, self._clock = read, clock
        self._lock = threading.Lock()
        self._readings: dict[str, _Reading] = {}
        self._retry_at = 0  # for sessions
        self._limited: tuple[int, RateLimited] | None = None  # nobody asks before this instant
        self.trouble = ""  # why the keys of sessions could not be read again the last time

    def resolve(self, logins: Sequence[str], doing: str) -> tuple[GithubKeys, ...]:
        """Keys of users, at most `FRESH_S` old; `InvalidInput` for a user without keys, `GpuctlError` as `read`."""
        access.check_github(logins, doing)
        return tuple(self._some(login, doing) for login in dict.fromkeys(map(str.casefold, logins)))

    def _some(self, login: str, doing: str) -> GithubKeys:
        with self._lock:
            reading = self._readings.get(login)
        now = self._clock()
        keys = reading.keys if reading is not None and 0 <= now - reading.at < FRESH_S else None
        keys = keys or self._ask(login, doing)
        if not keys.keys:
            hint = "add one at github.com/settings/keys, or name the keys with --key FILE"
            raise InvalidInput(doing, f"the GitHub user {login} has no public key that sshd takes", hint)
        return keys

    def _ask(self, login: str, doing: str) -> GithubKeys:
        if self._read is None:
            raise InvalidInput(doing, "this service does not ask GitHub", "name the keys with --key FILE")
        if self._limited is not None and 0 < self._limited[0] - self._clock() <= LONGEST_LIMIT_S:
            raise self._limited[1]
        try:
            id_, text = self._read(login)
        except RateLimited as error:
            self._limited = self._clock() + min(error.again_in_s, LONGEST_LIMIT_S), error
            raise
        except InvalidInput:
            self._remember(login, None)
            raise
        keys = GithubKeys(login, id_, public_keys.text(public_keys.accepted(text, f"github:{login}")))
        self._remember(login, keys)
        return keys

    def _remember(self, login: str, keys: GithubKeys | None) -> None:
        with self._lock:
            self._readings[login] = _Reading(keys, self._clock())

    def refresh(self, load: Callable[[], Book], decide: Decide) -> None:
        """Read keys of sessions again where that is due, and take away what GitHub does not have any more."""
        now = self._clock()
        if self._read is None or now < self._retry_at <= now + RETRY_S:
            return
        with self._lock:
            fresh = {login for login, reading in self._readings.items() if 0 <= now - reading.at < FRESH_S}
        answers: dict[str, GithubKeys | None] = {}
        for login in sorted(access.logins(load()) - fresh)[:MOST_A_PASS]:
            try:
                answers[login] = self._ask(login, "read keys of sessions again")
            except InvalidInput:
                answers[login] = None
            except GpuctlError as error:
                self._failed(str(error), decide)
                break
            else:
                self.trouble = ""
        if answers:
            decide("github", partial(access.refresh, fresh=answers))

    def _failed(self, reason: str, decide: Decide) -> None:
        self._retry_at = self._clock() + RETRY_S
        if not self.trouble:
            decide("github", lambda draft: draft.note("keep keys", "github", f"they cannot be read again: {reason}"))
        self.trouble = reason
