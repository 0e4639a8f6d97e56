"""gpuctl dash --web over HTTP and its websocket: who gets in, what leaves, and how it ends."""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import re
import signal
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

import pytest
import websocket

from gpuctl.nodes import facts_file
from gpuctl.nodes.model import Fleet
from tests.rig.gpu_user_facts import NOW, facts
from tests.rig.tmux.screen import GPUCTL, User, user, wait_until


@pytest.fixture
def me(tmp_path: Path) -> Iterator[User]:
    with user(tmp_path) as made:
        facts_file.save(made.home / "facts.json", Fleet({"gpu-1": facts(), "gpu-2": facts()}, {}, NOW))
        yield made


@dataclass(frozen=True)
class Answer:
    """An answer over HTTP."""

    status: int
    headers: http.client.HTTPMessage
    text: str


@dataclass
class Server:
    """A running server. `host`: with its port."""

    process: subprocess.Popen[str]
    host: str
    token: str

    def get(self, path: str, **headers: str) -> Answer:
        connection = http.client.HTTPConnection(self.host, timeout=60)
        connection.request("GET", path, headers={name.capitalize(): value for name, value in headers.items()})
        answer = connection.getresponse()
        return Answer(answer.status, answer.headers, answer.read().decode(errors="replace"))

    def status(self, path: str, **headers: str) -> int:
        return self.get(path, **headers).status

    def cookie(self) -> str:
        return str(self.get(f"/?token={self.token}").headers["Set-Cookie"]).partition(";")[0]

    def key(self) -> str:
        return str(self.get(f"/?token={self.token}").headers["Location"]).removeprefix("/#")

    def connect(self, cookie: str = "", origin: str = "", key: str = "") -> websocket.WebSocket:
        url = f"ws://{self.host}/ws/{key or self.key()}?width=90&height=30"
        return websocket.create_connection(url, timeout=60, cookie=cookie, origin=origin or f"http://{self.host}")

    def children(self) -> list[int]:
        path = Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children")
        return [int(pid) for pid in path.read_text().split()]


@pytest.fixture
def server(me: User) -> Iterator[Server]:
    argv = [str(GPUCTL), "dash", "--from", "facts.json", "--web", "127.0.0.1:0"]
    pipe = subprocess.PIPE
    with subprocess.Popen(argv, cwd=me.home, env=me.environment, text=True, stdout=pipe, stderr=pipe) as process:
        try:
            assert process.stdout is not None
            url = urlsplit(process.stdout.readline().removeprefix("open ").strip())
            yield Server(process, url.netloc, url.query.removeprefix("token="))
        finally:
            process.kill()


def shown(connection: websocket.WebSocket, text: str) -> None:
    """Wait until the program has drawn a text."""
    drawn = b""
    while text.encode() not in drawn:
        opcode, data = connection.recv_data()
        assert opcode != websocket.ABNF.OPCODE_CLOSE, drawn
        drawn += data


def test_only_the_token_opens_the_page_and_only_the_page_the_program(server: Server) -> None:
    assert server.status("/") == server.status("/?token=") == server.status("/?token=x") == 403
    assert server.status("/ws/x") == server.status("/static/js/textual.js") == server.status("/screen.js") == 403
    opened = server.get(f"/?token={server.token}")
    attributes = str(opened.headers["Set-Cookie"])
    assert (opened.status, opened.headers["Location"]) == (303, f"/#{server.key()}")
    assert "HttpOnly" in attributes
    assert "SameSite=Strict" in attributes
    assert server.token not in attributes
    cookie = server.cookie()
    assert server.status("/", cookie=cookie, host="evil.example") == 403
    for origin in ("http://evil.example", f"https://{server.host}", "null"):
        with pytest.raises(websocket.WebSocketBadStatusException, match="403"):
            server.connect(cookie, origin)
    with pytest.raises(websocket.WebSocketBadStatusException, match="403"):
        server.connect("gpuctl-dash=x")
    for key in ("x", server.token, cookie.partition("=")[2]):  # of a page at another port, which is sent the cookie
        with pytest.raises(websocket.WebSocketBadStatusException, match="403"):
            server.connect(cookie, key=key)
    assert server.key() not in server.get("/", cookie=cookie).text + server.get("/screen.js", cookie=cookie).text
    assert not server.children()


def test_the_page_loads_nothing_from_another_site(server: Server) -> None:
    cookie = server.cookie()
    page = server.get("/", cookie=cookie)
    assert set(re.findall(r"\w+://[^/\"]*", page.text)) == {f"ws://{server.host}"}
    for path in re.findall(r"(?:src|href)=\"(/[^\"]+)|url\(\"([^\"]+)", page.text):
        assert server.status("".join(path), cookie=cookie) == 200, path
    assert "default-src 'none'" in str(page.headers["Content-Security-Policy"])
    assert page.headers["Referrer-Policy"] == "no-referrer"


def test_keys_reach_the_program_which_has_no_token_and_ends_with_its_tab(server: Server) -> None:
    connection = server.connect(server.cookie())
    shown(connection, "gpu-2")
    [child] = server.children()
    for name in ("cmdline", "environ"):
        assert server.token.encode() not in Path(f"/proc/{child}/{name}").read_bytes()
        assert server.token.encode() not in Path(f"/proc/{server.process.pid}/{name}").read_bytes()
    connection.send("no JSON")
    connection.send(json.dumps({"stdin": "q"}))
    connection.send(json.dumps(["stdin", "4"]))
    shown(connection, "no run has changed a host")
    connection.send(json.dumps(["stdin", "c"]))
    shown(connection, "It was copied")
    connection.send(json.dumps(["stdin", "jjx"]))
    shown(connection, "no terminal that a program could take over")
    connection.close()
    wait_until(lambda: not server.children(), "the end of the program")
    again = server.connect(server.cookie())
    shown(again, "gpu-2")


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_the_programs_end_with_the_server(server: Server, number: signal.Signals) -> None:
    connection = server.connect(server.cookie())
    shown(connection, "gpu-2")
    [child] = server.children()
    server.process.send_signal(number)
    assert server.process.wait(60) == (-9 if number is signal.SIGKILL else 130)

    def gone() -> bool:
        with contextlib.suppress(ProcessLookupError):
            os.kill(child, 0)
            return "\nState:\tZ" in Path(f"/proc/{child}/status").read_text()
        return True

    wait_until(gone, "the end of the program")
    if number is not signal.SIGKILL:
        output = server.process.communicate()
        assert server.token not in "".join(output)  # once, when it was printed


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--web", "8080"), "is not an address and port"),
        (("--web", "0.0.0.0:0"), "--allow-remote serves it nevertheless"),
        (("--allow-remote",), "--allow-remote is for --web"),
        (("--web", "127.0.0.1:0", "--allow-changes"), "cannot be combined with --web"),
        (("--web", "127.0.0.1:0", "--inventory", "gone"), "gone"),
    ],
)
def test_wrong_options_serve_nothing(me: User, words: tuple[str, ...], message: str) -> None:
    done = me.gpuctl("dash", *words)
    assert (done.returncode, done.stdout) == (2, "")
    assert message in done.stderr


def test_a_port_that_is_taken_is_named(me: User, server: Server) -> None:
    done = me.gpuctl("dash", "--from", me.home / "facts.json", "--web", server.host)
    assert done.returncode == 2
    assert f"{server.host} cannot be used: Address already in use" in done.stderr
