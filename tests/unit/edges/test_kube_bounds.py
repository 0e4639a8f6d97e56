"""Answers of an API server that never end: refused with the limit, and not held in memory."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any

import pytest
from websocket import WebSocketPayloadException

from gpuctl.core.errors import GpuctlError, Unreachable
from gpuctl.edges.kube import api, cluster, pod_exec, watch
from gpuctl.edges.kube.api import Budget, Client
from gpuctl.edges.kube.cancel import Stop
from gpuctl.edges.kube.cluster import Cluster, Kind, Request
from gpuctl.edges.kube.library import Configuration

PODS = Kind("v1", "Pod", "pods", namespaced=True)
PART = 1 << 16
LIMIT = 1 << 20


class Endless(ThreadingHTTPServer):
    """Answers every request with a head, and then with parts without end; counts the bytes it could send."""

    daemon_threads = True

    def __init__(self, head: bytes, part: bytes, status: int) -> None:
        super().__init__(("127.0.0.1", 0), Answer)
        self.head, self.part, self.status, self.sent = head, part, status, 0


class Answer(BaseHTTPRequestHandler):
    server: Endless

    def do_GET(self) -> None:
        """Send until the client has had enough."""
        self.send_response(self.server.status)
        self.end_headers()
        with contextlib.suppress(OSError):
            self.wfile.write(self.server.head)
            while True:
                self.wfile.write(self.server.part)
                self.server.sent += len(self.server.part)

    def log_message(self, *words: Any) -> None:
        """Print nothing."""


@contextlib.contextmanager
def endless(head: bytes, part: bytes, status: int = 200) -> Iterator[tuple[Cluster, Endless]]:
    server = Endless(head, part, status)
    Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True).start()
    settings = Configuration()
    settings.host = f"http://127.0.0.1:{server.server_port}"
    settings.retries = False
    try:
        yield Cluster(Client(settings), "team", patience_s=1), server
    finally:
        server.shutdown()
        server.server_close()


@pytest.fixture(autouse=True)
def low_limits(monkeypatch: pytest.MonkeyPatch) -> None:
    for module, name in (
        (api, "MOST_OF_AN_ANSWER"),
        (api, "MOST_OF_AN_ERROR"),
        (api, "LONGEST_LINE"),
        (cluster, "MOST_OF_A_LIST"),
        (watch, "MOST_OF_A_LIST"),
        (watch, "MOST_OF_A_SECOND"),
    ):
        monkeypatch.setattr(module, name, LIMIT)


def refused(error: GpuctlError, server: Endless, wrong: str) -> None:
    assert wrong in error.wrong
    assert "1.0 MiB" in error.wrong
    assert "kubeconfig" in error.hint
    assert not isinstance(error, Unreachable)  # it would be asked again
    assert server.sent < 16 * LIMIT  # what the sockets hold comes on top of the limit


def test_an_answer_without_an_end_is_refused() -> None:
    with endless(b'{"items": [', b" " * PART) as (api_server, server):
        with pytest.raises(GpuctlError, match="cannot read Pod a: ") as error:
            api_server.get(PODS, "a")
        refused(error.value, server, "sent more than 1.0 MiB, and was not read further")


def test_of_an_error_without_an_end_one_line_is_shown() -> None:
    with endless(b"<html>\nno gateway\n", b"<br>" * PART, status=502) as (api_server, server):
        with pytest.raises(GpuctlError) as error:
            api_server.once(Request("read", "GET", "/api/v1"))
        assert len(str(error.value)) < 1000
        assert server.sent < 16 * LIMIT


def test_an_event_without_an_end_is_refused() -> None:
    with endless(b'{"type": "ADDED", "object": {"x": "', b"x" * PART) as (api_server, server):
        request = Request("watch pods", "GET", "/api/v1/pods", whole_lines=True)
        with pytest.raises(GpuctlError, match="cannot watch pods: ") as error:
            list(api_server.lines(request, Stop(), 5))
        refused(error.value, server, "sent a line of more than 1.0 MiB")


def test_a_log_without_an_end_is_bounded_where_its_end_is_asked_for() -> None:
    with endless(b"", b"step 1\n" * 1000) as (api_server, server):
        request = Request("read the log of a", "GET", "/log", budget=Budget(LIMIT))
        with pytest.raises(GpuctlError, match="cannot read the log of a: ") as error:
            list(api_server.lines(request, Stop(), 5))
        refused(error.value, server, "sent more than 1.0 MiB")


def test_a_followed_log_is_read_on_and_only_its_last_second_is_remembered() -> None:
    line = b"2026-11-27T03:00:01.5Z " + b"x" * 1000 + b"\n"
    with endless(b"", line * 60) as (api_server, _):
        log, stop = watch.Log(api_server, "a", of=PODS), Stop()
        lines = log.lines(lambda: False, stop)
        assert sum(len(next(lines)) for _ in range(3000)) == 3_000_000
        assert sum(len(known) * count for known, count in log.last_second.items()) < LIMIT + 2000
        stop.set()


class Pages(Cluster):
    """A cluster whose lists never end, and whose watches tell of ever more pods."""

    def __init__(self) -> None:
        super().__init__(Client(Configuration()), "team")
        self.pages = 0

    def ask(self, request: Request) -> cluster.Object:
        """A page of 100 KiB, unless it is the first of a watch."""
        self.pages += 1
        if request.budget:
            request.budget.spend(request.doing, self.server, 100 << 10)
        return {"items": [], "metadata": {"resourceVersion": "7", "continue": self.more}}

    more = "next"


def test_a_list_without_an_end_is_refused() -> None:
    pages = Pages()
    with pytest.raises(GpuctlError, match=r"cannot list pods: .* sent more than 1\.0 MiB"):
        pages.find(PODS, {})
    assert pages.pages == 11


def test_a_watch_that_tells_of_ever_more_objects_is_refused_but_not_one_that_tells_of_changes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(Pages, "more", "")

    def lines(*names: str) -> Iterator[str]:
        for name in names:
            pod = {"metadata": {"name": name, "resourceVersion": "8", "note": "x" * 100_000}}
            yield json.dumps({"type": "ADDED", "object": pod})

    def run(*names: str) -> int:
        pages, stop, count = Pages(), Stop(), 0
        monkeypatch.setattr(pages, "lines", lambda *_: lines(*names))
        for known in watch.watch(pages, PODS, {}, stop):
            count = len(known)
            if names[-1] in known:
                stop.set()
        return count

    assert run(*["a"] * 30, "last") == 2
    with pytest.raises(GpuctlError, match=r"cannot watch pods: .* sent more than 1\.0 MiB"):
        run(*[f"pod-{number}" for number in range(30)])


class Frames:
    """What a WebSocket of the library has for messages."""

    def recv_strict(self, size: int) -> bytes:
        return bytes(size)


class Socket:
    """The library's WebSocket, as far as the limit of messages goes."""

    def __init__(self) -> None:
        self.frame_buffer: Any = Frames()


def test_a_message_that_is_too_long_breaks_the_connection_before_it_is_read() -> None:
    socket = Socket()
    pod_exec._bound_messages(socket)
    assert len(socket.frame_buffer.recv_strict(1000)) == 1000
    with pytest.raises(WebSocketPayloadException, match=r"more than 16\.0 MiB"):
        socket.frame_buffer.recv_strict(2**60)
