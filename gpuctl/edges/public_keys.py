"""Public ssh keys of the user: from the ssh agent, and from GitHub."""

from __future__ import annotations

import http.client
import urllib.error
import urllib.request
from typing import Any

from gpuctl.core.errors import GpuctlError, InvalidInput, Unreachable
from gpuctl.edges.processes import Processes
from gpuctl.edges.programs import gist, installed

GITHUB = "https://github.com"
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


def of_github(user: str, server: str = GITHUB) -> str:
    """Public keys of a user (a valid name), one a line, over TLS; `InvalidInput` if GitHub does not know it."""
    doing = f"read the public keys of the GitHub user {user}"
    request = urllib.request.Request(f"{server}/{user}.keys", headers={"User-Agent": "gpuctl"})  # noqa: S310
    try:
        with urllib.request.build_opener(_OverTls).open(request, timeout=LIMIT_S) as answer:
            content: bytes = answer.read(MOST + 1)
            unread = answer.length or 0  # `read` of a size raises nothing if the connection ends early
    except urllib.error.HTTPError as error:
        if error.code == 404:
            raise InvalidInput(doing, "GitHub has no such user", "check the name") from error
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
