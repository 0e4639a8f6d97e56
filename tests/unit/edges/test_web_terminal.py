"""Answers of the server of a screen to malformed requests, and the end of its programs."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import cast

import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer
from textual_serve.download_manager import DownloadManager

from gpuctl.edges import web_terminal
from gpuctl.edges.web_terminal import LOCAL_NAMES, WebTerminal, _Session


def answer_to(make: Callable[[WebTerminal, int], bytes]) -> bytes:
    """Answer of a server to a request, which is made of its terminal and port."""

    async def ask() -> bytes:
        terminal = WebTerminal(["false"], "screen", LOCAL_NAMES)
        async with TestServer(terminal.application()) as server:
            assert server.port is not None
            reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
            writer.write(make(terminal, server.port))
            answer = await reader.read()
            writer.close()
            return answer

    return asyncio.run(ask())


def get(path: str, host: str, *headers: bytes) -> bytes:
    head = f"GET {path} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n".encode()
    return head + b"".join(header + b"\r\n" for header in headers) + b"\r\n"


def test_a_cookie_that_is_not_ascii_is_refused() -> None:
    answer = answer_to(lambda _, port: get("/", f"127.0.0.1:{port}", f"Cookie: gpuctl-dash-{port}=".encode() + b"\xff"))
    assert answer.startswith(b"HTTP/1.1 403")
    assert b"Content-Security-Policy" in answer


@pytest.mark.parametrize(
    "host", ["127.0.0.1:x", "127.0.0.1:999999", "127.0.0.1:", "localhost; script-src *", "evil:80"]
)
def test_a_host_that_is_malformed_is_refused_and_in_no_header(host: str) -> None:
    answer = answer_to(lambda terminal, _: get(f"/?token={terminal.token}", host))
    assert answer.startswith(b"HTTP/1.1 403")
    assert b"connect-src 'self';" in answer
    assert b"script-src *" not in answer


def test_an_answer_of_the_library_has_the_headers() -> None:
    def unknown_page(terminal: WebTerminal, port: int) -> bytes:
        cookie = f"Cookie: gpuctl-dash-{port}={terminal._cookie}"
        return get("/gone", f"127.0.0.1:{port}", cookie.encode())

    answer = answer_to(unknown_page)
    assert answer.startswith(b"HTTP/1.1 404")
    assert b"X-Content-Type-Options: nosniff" in answer
    assert b"frame-ancestors 'none'" in answer


def session(*argv: str) -> _Session:
    return _Session(argv, cast("web.WebSocketResponse", None), DownloadManager())


def ended(argv: tuple[str, ...], before: Callable[[_Session], Awaitable[None]]) -> None:
    """Start a program, do what is to be done before its end, and end it."""

    async def run() -> None:
        made = session(*argv)
        await made.start(80, 24)
        await before(made)
        await made.end()

    asyncio.run(run())


def is_alive(pid: int) -> bool:
    status = Path(f"/proc/{pid}/status")
    return status.exists() and "\nState:\tZ" not in status.read_text()


@pytest.mark.parametrize("fault", [None, RuntimeError("the program writes no packets")])
def test_what_a_program_started_ends_with_it_whatever_fails(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fault: Exception | None
) -> None:
    monkeypatch.setattr(web_terminal, "END_S", 0.2)
    pid = tmp_path / "pid"

    async def before(made: _Session) -> None:
        while not pid.exists() or not pid.read_text().endswith("\n"):
            await asyncio.sleep(0.01)
        if fault is not None:

            async def stop() -> None:
                raise fault

            monkeypatch.setattr(made, "stop", stop)

    argv = ("sh", "-c", f"trap '' TERM; sleep 300 & echo $! > {pid}; wait")
    if fault is None:
        ended(argv, before)
    else:
        with pytest.raises(RuntimeError, match="no packets"):
            ended(argv, before)
    assert not is_alive(int(pid.read_text()))


def test_the_last_errors_of_a_program_are_printed_without_control_characters(
    capfd: pytest.CaptureFixture[str],
) -> None:
    async def before(made: _Session) -> None:
        assert made._process is not None
        await made._process.wait()

    program = "import sys; sys.stderr.write('x' * 1_000_000 + '\\n\\x1b[2Jthe reason\\n')"
    ended((sys.executable, "-c", program), before)
    output = "".join(capfd.readouterr())
    assert "the reason" in output
    assert "\x1b" not in output
    assert len(output) <= web_terminal.MOST_ERRORS + 100
