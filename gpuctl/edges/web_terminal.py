"""A full-screen program in browsers, with the page and protocol of textual-serve, for the holder of a token.

textual-serve supplies the terminal of the page and the connection to the program. Its server is not used: it has no
token, starts programs through a shell, and its page loads a font from another site.
"""

from __future__ import annotations

import asyncio
import contextlib
import hmac
import html
import json
import logging
import os
import re
import secrets
import signal
import socket
import sys
from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import textual_serve
from aiohttp import WSMsgType, web
from textual_serve.app_service import AppService
from textual_serve.download_manager import DownloadManager

from gpuctl.edges.background import tied
from gpuctl.engine import printable

MOST_SESSIONS = 8  # programs at a time, one for each tab
MOST_MESSAGE = 2**18  # bytes of a message of the browser, such as pasted text
MOST_SIDE = 1000  # columns and rows
MOST_ERRORS = 2**13  # bytes that a program writes to standard error, of which the last are printed
END_S = 5.0  # for a program to end
STATIC = Path(textual_serve.__file__).parent / "static"
LOCAL_NAMES = ("127.0.0.1", "localhost", "[::1]")
REFUSED = "403: open the address that `gpuctl dash --web` printed\n"
HOST = re.compile(r"(?P<name>[A-Za-z0-9._-]+|\[[0-9A-Fa-f:.]+\])(?::(?P<port>[0-9]{1,5}))?")
Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]

# The font of textual-serve, from this server; no script, image or connection of another site is accepted.
PAGE = """<!DOCTYPE html>
<html lang="en"><head><meta charset="utf-8"><title>{title}</title>
<link rel="icon" href="data:,">
<link rel="stylesheet" href="/static/css/xterm.css">
<style>
@font-face {{ font-family: "Roboto Mono"; src: url("/static/fonts/RobotoMono-VariableFont_wght.ttf"); }}
@font-face {{ font-family: "Roboto Mono"; font-style: italic;
  src: url("/static/fonts/RobotoMono-Italic-VariableFont_wght.ttf"); }}
body {{ background: #0c181f; }}
#closed {{ display: none; position: absolute; inset: 0 0 auto 0; padding: 1em; z-index: 10;
  color: #fff; background: #12232d; font-family: "Roboto Mono", monospace; }}
body.-closed #closed {{ display: block; }}
</style>
<script src="/screen.js"></script>
<script src="/static/js/textual.js"></script></head>
<body><div id="closed" role="status">The session has ended. Reload the page for another.</div>
<div id="terminal" class="textual-terminal" data-session-websocket-url="ws://{host}/ws/" data-font-size="{size}"></div>
</body></html>
"""

# The key of the connection comes in the address's fragment, which is sent to no server.
# It stays in a storage that pages of other ports do not share. What is typed reaches the program without a click first.
SCRIPT = """const key = location.hash.slice(1);
if (key) {
  sessionStorage.setItem("key", key);
  history.replaceState(null, "", "/");
}
addEventListener("DOMContentLoaded", () => {
  const key = sessionStorage.getItem("key");
  document.querySelector("#terminal").dataset.sessionWebsocketUrl += key ?? "";
  if (!key) document.querySelector("#closed").textContent = "Open the address that gpuctl dash --web printed.";
});
addEventListener("load", () => document.querySelector(".xterm-helper-textarea")?.focus());
"""


def policy(host: str) -> Mapping[str, str]:
    """Return the security headers of every answer to a browser at this host."""
    sources = [
        "default-src 'none'",
        "script-src 'self'",
        "style-src 'self' 'unsafe-inline'",
        "font-src 'self'",
        "img-src 'self' data:",
        f"connect-src 'self' ws://{host}" if host else "connect-src 'self'",
        "base-uri 'none'",
        "form-action 'none'",
        "frame-ancestors 'none'",
    ]
    return {
        "Content-Security-Policy": "; ".join(sources),
        "Referrer-Policy": "no-referrer",
        "X-Content-Type-Options": "nosniff",
        "Cache-Control": "no-store",
    }


class _Session(AppService):
    """A program of one browser tab; it ends with the connection, and with this process."""

    def __init__(self, argv: Sequence[str], connection: web.WebSocketResponse, downloads: DownloadManager) -> None:
        async def send_bytes(data: bytes) -> None:
            with contextlib.suppress(ConnectionError):  # the tab was closed meanwhile
                await connection.send_bytes(data)

        async def send_text(text: str) -> None:
            with contextlib.suppress(ConnectionError):
                await connection.send_str(text)

        async def close() -> None:
            await connection.close()

        super().__init__(argv[0], write_bytes=send_bytes, write_str=send_text, close=close, download_manager=downloads)
        self._argv = list(argv)
        self._errors = bytearray()
        self._reading: asyncio.Task[None] | None = None

    async def _open_app_process(self, width: int = 80, height: int = 24) -> asyncio.subprocess.Process:
        """Start the program without a shell, in a session that Ctrl-C of this terminal does not reach."""
        process = await asyncio.create_subprocess_exec(
            *tied(self._argv),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            env=self._build_environment(width=width, height=height),
            start_new_session=True,
        )
        self._process, self._stdin = process, process.stdin
        if process.stderr is not None:
            self._reading = asyncio.create_task(self._read_errors(process.stderr))
        process.stderr = asyncio.StreamReader()  # AppService would collect all of it, and print it as it is
        process.stderr.feed_eof()
        return process

    async def _read_errors(self, stream: asyncio.StreamReader) -> None:
        """Read what the program writes to standard error, of which the last bytes stay."""
        while data := await stream.read(MOST_ERRORS):
            self._errors += data
            del self._errors[:-MOST_ERRORS]

    async def end(self) -> None:
        """Ask the program to end; after END_S, or an error, kill it and all that it started in its session."""
        process = self._process
        if process is None:
            return
        # Not by a timeout that cancels: AppService.run ends as if nothing had happened, and the wait would go on.
        asked = asyncio.ensure_future(self._ask_to_end(process))
        try:
            await asyncio.wait([asked], timeout=END_S)
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            done, _ = await asyncio.wait([asked], timeout=END_S)
            asked.cancel()
            await self._print_errors()
        for one in done:
            one.result()

    async def _ask_to_end(self, process: asyncio.subprocess.Process) -> None:
        await self.stop()
        await process.wait()

    async def _print_errors(self) -> None:
        """Print the last lines of the program's standard error, without control characters."""
        if self._reading is not None:
            await asyncio.wait([self._reading], timeout=END_S)  # a program of another session may hold it open
            self._reading.cancel()
        for line in self._errors.decode(errors="replace").splitlines():
            sys.stderr.write(f"{printable(line)}\n")
        self._errors.clear()


class WebTerminal:
    """Server of one program. `hosts`: of the addresses that browsers may use; none for any.

    `token`: opens the page until the server ends, so it is as good as a password; the browser then has a cookie and a
    key, two other secrets. A cookie is sent to every port of an address, so that it alone connects nobody.
    """

    def __init__(self, argv: Sequence[str], title: str, hosts: Sequence[str]) -> None:
        self.token = secrets.token_urlsafe(32)
        self._cookie, self._key = secrets.token_urlsafe(32), secrets.token_urlsafe(32)
        self._argv, self._title, self._hosts = argv, title, hosts
        self._downloads = DownloadManager()
        self._connections: set[web.WebSocketResponse] = set()

    def run(self, listener: socket.socket) -> None:
        """Serve until SIGINT or SIGTERM, then end all programs."""
        logging.getLogger("textual-serve").setLevel(logging.CRITICAL)  # its log could have what was typed
        # The access log would have the token.
        web.run_app(self.application(), sock=listener, access_log=None, print=None, shutdown_timeout=END_S)

    def application(self) -> web.Application:
        """Make the pages of the server."""
        app = web.Application(middlewares=[self._guard])
        routes = [web.get("/", self._page), web.get("/screen.js", self._script), web.get("/ws/{key}", self._connect)]
        app.add_routes([*routes, web.static("/static", STATIC)])
        app.on_response_prepare.append(self._add_policy)
        app.on_shutdown.append(self._close)
        return app

    async def _add_policy(self, request: web.Request, answer: web.StreamResponse) -> None:
        """Add the security headers, also to an answer of aiohttp itself (404, 500)."""
        host = request.headers.get("Host", "")
        answer.headers.update(policy(host if self._is_ours(host) else ""))

    async def _close(self, _: web.Application) -> None:
        await asyncio.gather(*(connection.close() for connection in list(self._connections)))

    @web.middleware
    async def _guard(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        """Answer only to the holder of the token or cookie, at a host that this server has."""
        host = request.headers.get("Host", "")
        if not self._is_ours(host):
            return web.Response(status=403, text=REFUSED)
        name = f"gpuctl-dash-{_port(host)}"
        if request.path == "/" and _same(request.query.get("token", ""), self.token):
            answer = web.Response(status=303, headers={"Location": f"/#{self._key}"})
            answer.set_cookie(name, self._cookie, httponly=True, samesite="Strict", path="/")
            return answer
        if not _same(request.cookies.get(name, ""), self._cookie):
            return web.Response(status=403, text=REFUSED)
        return await handler(request)

    def _is_ours(self, host: str) -> bool:
        """True for a host that this server has: a name of somebody else may lead here, too (DNS rebinding)."""
        parts = HOST.fullmatch(host)
        return parts is not None and (not self._hosts or parts["name"] in self._hosts)

    async def _page(self, request: web.Request) -> web.Response:
        host = html.escape(request.headers["Host"], quote=True)
        text = PAGE.format(title=html.escape(self._title), host=host, size=16)
        return web.Response(text=text, content_type="text/html")

    @staticmethod
    async def _script(_: web.Request) -> web.Response:
        return web.Response(text=SCRIPT, content_type="text/javascript")

    async def _connect(self, request: web.Request) -> web.StreamResponse:
        """Connect a tab to a program; only pages of this server may, and those with its key."""
        if not _same(request.match_info["key"], self._key):
            return web.Response(status=403, text=REFUSED)
        if request.headers.get("Origin") != f"http://{request.headers['Host']}":
            return web.Response(status=403, text="403: another page may not connect\n")
        if len(self._connections) >= MOST_SESSIONS:
            return web.Response(status=503, text=f"503: {MOST_SESSIONS} tabs are open; close one\n")
        connection = web.WebSocketResponse(heartbeat=15, max_msg_size=MOST_MESSAGE)
        self._connections.add(connection)
        try:
            await connection.prepare(request)
            session = _Session(self._argv, connection, self._downloads)
            try:
                await session.start(_side(request.query.get("width"), 80), _side(request.query.get("height"), 24))
                await _pass_on(connection, session)
            finally:
                await asyncio.shield(session.end())
        finally:
            self._connections.discard(connection)
        return connection


async def _pass_on(connection: web.WebSocketResponse, session: AppService) -> None:
    """Pass the messages of a tab to its program; one that is malformed ends the connection."""
    async for message in connection:
        if message.type is not WSMsgType.TEXT:
            continue
        kind, content = _message(message.data)
        if kind == "stdin" and isinstance(content, str):
            await session.send_bytes(content.encode(errors="replace"))
        elif kind == "resize" and isinstance(content, dict):
            await session.set_terminal_size(_side(content.get("width"), 80), _side(content.get("height"), 24))
        elif kind == "ping":
            await connection.send_json(["pong", content])
        elif kind == "blur":
            await session.blur()
        elif kind == "focus":
            await session.focus()


def _message(text: str) -> tuple[str, Any]:
    """Kind and content of a message; ("", None) for a malformed one. `Any`: JSON of any shape."""
    try:
        envelope = json.loads(text)
    except ValueError:
        return "", None
    if not isinstance(envelope, list) or not envelope or not isinstance(envelope[0], str):
        return "", None
    return envelope[0], envelope[1] if len(envelope) > 1 else None


def _side(value: object, default: int) -> int:
    """Columns or rows, within bounds."""
    try:
        return min(max(1, int(str(value))), MOST_SIDE)
    except ValueError:
        return default


def _port(host: str) -> str:
    """Port that the browser uses, which is another than that of the server behind `ssh -L`."""
    parts = HOST.fullmatch(host)
    return (parts and parts["port"]) or "80"


def _same(text: str, secret: str) -> bool:
    """Compare in a time that does not depend on the text."""
    return hmac.compare_digest(text.encode(errors="surrogateescape"), secret.encode())
