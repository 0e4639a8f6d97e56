"""Public ssh keys of the user: from the ssh agent, and from GitHub."""

from __future__ import annotations

import http.client
import json
import time
import urllib.error
import urllib.request
from collections.abc import Mapping
from typing import Any

from gpuctl.core.errors import GpuctlError, InvalidInput, Unreachable
from gpuctl.edges.processes import Processes
from gpuctl.edges.programs import gist, installed

GITHUB, GITHUB_API = "https://github.com", "https://api.github.com"
LIMIT_S = 10
MOST = 1 << 20  # bytes; a user has a few kilobytes
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


class _OverTls(urllib.request.HTTPRedirectHandler):
    """Follows redirects to TLS alone: what a plain connection answers is not authenticated."""

    def redirect_request(  # noqa: PLR0913, PLR0917 - as urllib's
        self, req: Any, fp: Any, code: int, msg: str, headers: Any, newurl: str
    ) -> Any:
        if not newurl.lower().startswith("https://"):
            raise ValueError("it redirects to an address without TLS")
        return super().redirect_request(req, fp, code, msg, headers, newurl)


class RateLimited(Unreachable):
    """GitHub answers no more requests for `again_in_s` seconds."""

    def __init__(self, doing: str, again_in_s: int) -> None:
        wrong = f"GitHub's rate limit is reached; it answers again in {max(1, again_in_s // 60)} min"
        super().__init__(doing, wrong, "wait, name the keys with --key FILE, or give the service a token of GitHub")
        self.again_in_s = again_in_s


def of_github(user: str, server: str = GITHUB) -> str:
    """Public keys of a user (a valid name), one a line, over TLS; `InvalidInput` if GitHub does not know it."""
    return _read(f"{server}/{user}.keys", f"read the public keys of the GitHub user {user}", {})


def github_user(user: str, token: str = "", server: str = GITHUB, api: str = GITHUB_API) -> tuple[int, str]:
    """The id of a user (a valid name) and its public keys, one a line; errors as of `of_github`.

    `token`: for a higher rate limit; "" for none. The id is read last: keys of somebody who has had the name meanwhile
    do not get the id of the user before.
    """
    doing = f"read the GitHub user {user}"
    keys = of_github(user, server)
    headers = {"Accept": "application/vnd.github+json", "X-GitHub-Api-Version": "2022-11-28"}
    text = _read(f"{api}/users/{user}", doing, headers | ({"Authorization": f"Bearer {token}"} if token else {}))
    try:
        plain = json.loads(text)
    except ValueError:
        plain = None
    id_ = plain.get("id") if isinstance(plain, dict) else None
    if type(id_) is not int:
        raise Unreachable(doing, "GitHub's answer has no id of the user", "try again, or use --key FILE")
    return id_, keys


def _read(url: str, doing: str, headers: Mapping[str, str]) -> str:
    request = urllib.request.Request(url, headers={"User-Agent": "gpuctl", **headers})  # noqa: S310
    try:
        with urllib.request.build_opener(_OverTls).open(request, timeout=LIMIT_S) as answer:
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
        raise Unreachable(
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
        return int(after)
    return max(1, int(reset) - int(time.time())) if reset.isdecimal() else 60
