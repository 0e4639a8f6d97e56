"""Users of GitHub with their keys and numeric ids, over HTTP from a stand-in of GitHub."""

from __future__ import annotations

import http.server
import json
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from typing import ClassVar

import pytest

from gpuctl.core.errors import InvalidInput, Unreachable
from gpuctl.edges.public_keys import NoAnswer, RateLimited, github_user

KEY, TOKEN = "ssh-ed25519 AAAA\n", "token-of-a-test"


def read(user: str, github: str, token: str = "", limit_s: float = 10) -> tuple[int, str]:
    return github_user(user, limit_s, token=token, server=github, api=github)


class StandinGithub(http.server.BaseHTTPRequestHandler):
    """Stand-in for github.com and its API; it says so in each answer. `authorizations`: headers of requests."""

    authorizations: ClassVar[list[str | None]] = []

    def do_GET(self) -> None:
        name = self.path.rsplit("/", 1)[-1].removesuffix(".keys")
        status, headers = 200, dict[str, str]()
        if name == "nobody":
            status = 404
        elif self.path.startswith("/users/"):
            self.authorizations.append(self.headers.get("Authorization"))
            status, headers = {
                "later": (429, {"Retry-After": "90"}),
                "never": (429, {"Retry-After": "9" * 5000}),
                "endless": (403, {"X-RateLimit-Remaining": "0", "X-RateLimit-Reset": "9" * 5000}),
                "limited": (403, {"X-RateLimit-Remaining": "0", "X-RateLimit-Reset": str(int(time.time()) + 600)}),
                "blocked": (403, {"X-RateLimit-Remaining": "10"}),
                "down": (503, {}),
                "moved": (
                    301,
                    {"Location": f"http://{self.headers['Host'].replace('127.0.0.1', 'localhost')}/users/ada"},
                ),
                "renamed": (301, {"Location": "/users/ada"}),
            }.get(name, (200, {}))
        bodies = {"odd": "[]", "nonsense": "<html>", "text": json.dumps({"id": "7"})}
        bodies |= {"deep": "[" * 200_000, "huge": json.dumps({"id": 1 << 64})}
        api = bodies.get(name, json.dumps({"id": 7, "login": name}))
        self.send_response(status)
        for header, value in {"X-Answered-By": "stand-in of GitHub", **headers}.items():
            self.send_header(header, value)
        self.end_headers()
        content = (api if self.path.startswith("/users/") else KEY).encode()
        if name != "slow":
            self.wfile.write(content)
            return
        with suppress(OSError):  # the client does not wait for the end
            for byte in content * 20:
                self.wfile.write(bytes([byte]))
                time.sleep(0.02)

    def log_message(self, *_: object) -> None:
        """Tests print nothing."""


@pytest.fixture(scope="module")
def github() -> Iterator[str]:
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), StandinGithub) as server:
        threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


def test_a_user_has_a_numeric_id_and_keys(github: str) -> None:
    assert read("ada", github) == (7, KEY)
    assert StandinGithub.authorizations[-1] is None
    read("ada", github, TOKEN)
    assert StandinGithub.authorizations[-1] == f"Bearer {TOKEN}"


@pytest.mark.parametrize(("user", "again_in_s"), [("later", 90), ("limited", 600), ("never", 86400), ("endless", 60)])
def test_a_rate_limit_says_when_github_answers_again(github: str, user: str, again_in_s: int) -> None:
    with pytest.raises(RateLimited, match=r"rate limit is reached; it answers again in \d+ min") as error:
        read(user, github)
    assert again_in_s - 5 <= error.value.again_in_s <= again_in_s


@pytest.mark.parametrize(
    ("user", "kind", "message"),
    [
        ("nobody", InvalidInput, "GitHub has no such user"),
        ("blocked", Unreachable, "HTTP status 403"),
        ("down", Unreachable, "HTTP status 503"),
        ("odd", Unreachable, "has no id of the user"),
        ("nonsense", Unreachable, "has no id of the user"),
        ("text", Unreachable, "has no id of the user"),
        ("deep", Unreachable, "has no id of the user"),
        ("huge", Unreachable, "has no id of the user"),
    ],
)
def test_what_is_no_user_is_an_error_and_never_an_empty_list(
    github: str, user: str, kind: type[Exception], message: str
) -> None:
    with pytest.raises(kind, match=message) as error:
        read(user, github, TOKEN)
    assert not isinstance(error.value, RateLimited)
    assert TOKEN not in str(error.value)


def test_the_token_goes_to_no_other_server(github: str) -> None:
    StandinGithub.authorizations.clear()
    with pytest.raises(NoAnswer, match="it redirects to another server"):
        read("moved", github, TOKEN)
    assert StandinGithub.authorizations == [f"Bearer {TOKEN}"]
    assert read("renamed", github, TOKEN) == (7, KEY)


def test_an_answer_that_comes_byte_by_byte_ends_in_time(github: str) -> None:
    begin = time.monotonic()
    with pytest.raises(NoAnswer, match=r"timed out|too long"):
        read("slow", github, limit_s=0.3)
    assert time.monotonic() - begin < 3  # all of it would take seven seconds
