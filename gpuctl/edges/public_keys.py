"""Public ssh keys of the user: from the ssh agent, and from GitHub."""

from __future__ import annotations

import http.client
import io
import json
import socket
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from gpuctl.core.errors import GpuctlError, InvalidInput, Unreachable
from gpuctl.edges.processes import Processes
from gpuctl.edges.programs import gist, installed

GITHUB, GITHUB_API = "https://github.com", "https://api.github.com"
LIMIT_S = 10
MOST = 1 << 20  # bytes; a user has a few kilobytes
LONGEST_WAIT_S = 24 * 3600  # of a rate limit; more digits than that are nonsense
EMPTY, NO_AGENT = 1, 2  # exit codes of ssh-add -L


def of_agent() -> tuple[str, str]:
    """The agent's public keys, one a line, and why there are none ("" if there are)."""
    if not installed("ssh-add"):
        return "", "ssh-add is not installed"
    done = Processes(new_session=False).run(["ssh-add", "-L"], b"", LIMIT_S)
    if done.code == EMPTY:
        return "", "the ssh agent has no key"
    if done.code == NO_AGENT:
        return "", "no ssh agent runs"
    if done.code is None:
        return "", f"the ssh agent gives no answer within {LIMIT_S} s"
    return (done.out.decode(errors="replace"), "") if done.code == 0 else ("", gist(done.err))


class _SameServer(urllib.request.HTTPRedirectHandler):
    """Follows redirects to the same server by the same scheme alone: urllib repeats all headers, the token, too."""

    def redirect_request(  # noqa: PLR0913, PLR0917 - as urllib's
        self, req: Any, fp: Any, code: int, msg: str, headers: Any, newurl: str
    ) -> Any:
        before, after = urllib.parse.urlsplit(req.full_url), urllib.parse.urlsplit(newurl)
        if (before.scheme, before.netloc) != (after.scheme, after.netloc):
            raise ValueError("it redirects to another server")
        return super().redirect_request(req, fp, code, msg, headers, newurl)


class _InTime(io.RawIOBase):
    """Bytes of a connection until `end` (time.monotonic()), however slowly they come."""

    def __init__(self, connection: socket.socket, end: float) -> None:
        self._connection, self._end = connection, end
        self._raw = connection.makefile("rb", buffering=0)

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int | None:
        self._connection.settimeout(_left_s(self._end))
        return self._raw.readinto(buffer)

    def close(self) -> None:
        self._raw.close()
        super().close()


def _left_s(end: float) -> float:
    left_s = end - time.monotonic()
    if left_s <= 0:
        raise TimeoutError("the answer takes too long")
    return left_s


class _Answer(http.client.HTTPResponse):
    def __init__(self, sock: socket.socket, *args: Any, end: float, **named: Any) -> None:
        super().__init__(sock, *args, **named)
        self.fp.close()
        self.fp = io.BufferedReader(_InTime(sock, end))


class _Connections(urllib.request.HTTPSHandler, urllib.request.HTTPHandler):
    """Connections with and without TLS whose answers are read until `end`; a timeout alone is one of each packet."""

    def __init__(self, end: float) -> None:
        super().__init__()
        self._end = end

    def http_open(self, req: urllib.request.Request) -> http.client.HTTPResponse:
        return self.do_open(partial(self._connection, http.client.HTTPConnection), req)

    def https_open(self, req: urllib.request.Request) -> http.client.HTTPResponse:
        return self.do_open(partial(self._connection, http.client.HTTPSConnection), req)

    def _connection(
        self, kind: Callable[..., http.client.HTTPConnection], host: str, **named: Any
    ) -> http.client.HTTPConnection:
        connection = kind(host, **{**named, "timeout": _left_s(self._end)})
        connection.response_class = partial(_Answer, end=self._end)  # type: ignore[assignment]
        return connection


class NoAnswer(Unreachable):
    """GitHub is not reached, or its answer does not arrive: about no user in particular."""


class RateLimited(Unreachable):
    """GitHub answers no more requests for `again_in_s` seconds."""

    def __init__(self, doing: str, again_in_s: int) -> None:
        wrong = f"GitHub's rate limit is reached; it answers again in {max(1, again_in_s // 60)} min"
        super().__init__(doing, wrong, "wait, name the keys with --key FILE, or give the service a token of GitHub")
        self.again_in_s = again_in_s


def of_github(user: str, server: str = GITHUB, limit_s: float = LIMIT_S) -> str:
    """Public keys of a user (a valid name), one a line, over TLS; `InvalidInput` if GitHub does not know it."""
    return _read(f"{server}/{user}.keys", f"read the public keys of the GitHub user {user}", {}, limit_s)


def github_user(
    user: str, limit_s: float = LIMIT_S, *, token: str = "", server: str = GITHUB, api: str = GITHUB_API
) -> tuple[int, str]:
    """The id of a user (a valid name) and its public keys, one a line; errors as of `of_github`.

    `token`: for a higher rate limit; "" for none. `limit_s`: for both. The id is read last: keys of somebody who has
    had the name meanwhile do not get the id of the user before.
    """
    end = time.monotonic() + limit_s
    doing = f"read the GitHub user {user}"
    keys = of_github(user, server, limit_s)
    headers = {"Accept": "application/vnd.github+json", "X-GitHub-Api-Version": "2022-11-28"}
    headers |= {"Authorization": f"Bearer {token}"} if token else {}
    text = _read(f"{api}/users/{user}", doing, headers, end - time.monotonic())
    try:
        plain = json.loads(text)
    except (ValueError, RecursionError):
        plain = None
    id_ = plain.get("id") if isinstance(plain, dict) else None
    if type(id_) is not int or not 0 <= id_ < 1 << 63:
        raise Unreachable(doing, "GitHub's answer has no id of the user", "try again, or use --key FILE")
    return id_, keys


def _read(url: str, doing: str, headers: Mapping[str, str], limit_s: float) -> str:
    end = time.monotonic() + limit_s
    request = urllib.request.Request(url, headers={"User-Agent": "gpuctl", **headers})  # noqa: S310
    try:
        with urllib.request.build_opener(_SameServer, _Connections(end)).open(request) as answer:
            content: bytes = answer.read(MOST + 1)
            unread = answer.length or 0  # `read` of a size raises nothing if the connection ends early
    except urllib.error.HTTPError as error:
        if error.code == 404:
            raise InvalidInput(doing, "GitHub has no such user", "check the name") from error
        if (again_in_s := _limit_s(error)) is not None:
            raise RateLimited(doing, again_in_s) from error
        raise Unreachable(doing, f"GitHub answers with HTTP status {error.code}", "try again, or use --key") from error
    except (OSError, ValueError, http.client.HTTPException) as error:
        why = str(getattr(error, "reason", None) or error)
        raise NoAnswer(
            doing,
            f"GitHub does not answer as it should: {why or type(error).__name__}",
            "check the network, or use --key FILE",
        ) from error
    if len(content) > MOST:
        raise GpuctlError(doing, "the answer is too long for keys", "use --key FILE")
    if unread:
        raise Unreachable(doing, f"GitHub's answer is cut off: {unread} bytes are missing", "try again")
    return content.decode(errors="replace")


def _limit_s(error: urllib.error.HTTPError) -> int | None:
    """Seconds until GitHub answers again; None if the answer is about something else than a rate limit."""
    after, left = error.headers.get("Retry-After", ""), error.headers.get("X-RateLimit-Remaining", "")
    reset = error.headers.get("X-RateLimit-Reset", "")
    if error.code not in (403, 429) or not (error.code == 429 or after or left == "0"):
        return None
    if after.isdecimal():
        return LONGEST_WAIT_S if len(after) > 9 else min(int(after), LONGEST_WAIT_S)
    if not reset.isdecimal() or len(reset) > 12:
        return 60
    return min(max(1, int(reset) - int(time.time())), LONGEST_WAIT_S)
