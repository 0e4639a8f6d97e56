"""HTTP server of one page, such as metrics: read only, on loopback unless another address is named."""

from __future__ import annotations

import ipaddress
import socket
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, cast

from gpuctl.core.errors import GpuctlError, InvalidInput


@dataclass(frozen=True)
class Served:
    """A page: its path and type. `local_names`: on loopback, a request that names another host is refused.

    So no page of the Internet can read it through a browser of this machine (DNS rebinding).
    """

    noun: str
    path: str
    content_type: str
    headers: Mapping[str, str] = field(default_factory=dict)
    local_names: bool = False


METRICS = Served("metrics", "/metrics", "text/plain; version=0.0.4; charset=utf-8")
WEB_PAGE = Served(
    "a web page",
    "/",
    "text/html; charset=utf-8",
    {
        "Content-Security-Policy": "default-src 'none'; style-src 'unsafe-inline'; frame-ancestors 'none'",
        "X-Content-Type-Options": "nosniff",
        "Referrer-Policy": "no-referrer",
        "Cache-Control": "no-store",
    },
    local_names=True,
)
MOST_CLIENTS = 16  # at the same time; Prometheus and its replicas are a few
CLIENT_S = 10  # seconds for a client to send its request, and to take the answer
HINT = "set a port for this machine alone, 9400, or an address and a port, 10.0.0.5:9400"


def address(text: str) -> tuple[str, int]:
    """ "9400" or "10.0.0.5:9400", "[::1]:9400"; `InvalidInput` for anything else. A port alone is on loopback."""
    host, _, port = text.rpartition(":")
    host = host.removeprefix("[").removesuffix("]") or ("127.0.0.1" if text.isdecimal() else "")
    if host == "localhost":
        host = "127.0.0.1"
    try:
        ipaddress.ip_address(host)
        number = int(port) if port.isascii() and port.isdecimal() else -1
    except ValueError:
        number = -1
    if not 0 <= number <= 65535:
        raise InvalidInput(f"serve HTTP on {text!r}", "it is not an IP address with a port", HINT)
    return host, number


def is_loopback(host: str) -> bool:
    """True if only this machine can connect."""
    return ipaddress.ip_address(host).is_loopback


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 32

    def __init__(self, at: tuple[str, int], text: Callable[[], str], served: Served) -> None:
        self.address_family = socket.AF_INET6 if ":" in at[0] else socket.AF_INET
        self.text, self.served = text, served
        self.local = served.local_names and is_loopback(at[0])
        self.free = threading.BoundedSemaphore(MOST_CLIENTS)
        super().__init__(at, _Page)

    def process_request(self, request: Any, client_address: Any) -> None:
        if self.free.acquire(blocking=False):
            super().process_request(request, client_address)
        else:
            self.shutdown_request(request)

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        try:
            super().process_request_thread(request, client_address)
        finally:
            self.free.release()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Clients that leave early are no event."""


class _Page(BaseHTTPRequestHandler):
    timeout = CLIENT_S
    server_version = "gpuctl"
    sys_version = ""

    def do_GET(self) -> None:
        self._answer(body=True)

    def do_HEAD(self) -> None:
        self._answer(body=False)

    def _answer(self, *, body: bool) -> None:
        server = cast(_Server, self.server)
        served = server.served
        if server.local and not _names_this_host(self.headers.get("Host", "")):
            self.send_error(403, "ask for it by the name localhost")
            return
        if self.path.partition("?")[0] != served.path:
            self.send_error(404, f"the page is at {served.path}")
            return
        text = server.text().encode()
        self.send_response(200)
        self.send_header("Content-Type", served.content_type)
        for name, value in served.headers.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        if body:
            self.wfile.write(text)

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the name that http.server uses
        """Scrapes are no news."""


def _names_this_host(host: str) -> bool:
    """True if the Host of a request is localhost or an address of loopback, with or without a port."""
    name = host.rpartition(":")[0] if host.rpartition(":")[2].isdecimal() else host
    try:
        return name.casefold() == "localhost" or is_loopback(name.removeprefix("[").removesuffix("]"))
    except ValueError:
        return False


@contextmanager
def serving(at: tuple[str, int], text: Callable[[], str], served: Served = METRICS) -> Iterator[int]:
    """Answer GET with the text of that moment while the context lasts; yields the port."""
    try:
        server = _Server(at, text, served)
    except OSError as error:
        where = f"{at[0]}:{at[1]}"
        hint = "another program has this port; choose another one" if error.errno == 98 else HINT
        raise GpuctlError(f"serve {served.noun} on {where}", error.strerror or str(error), hint) from error
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.2}, daemon=True)
    thread.start()
    try:
        yield int(server.server_address[1])
    finally:
        server.shutdown()
        server.server_close()
