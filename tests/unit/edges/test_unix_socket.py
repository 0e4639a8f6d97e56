"""Calls over a real Unix socket."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from gpuctl.core.errors import GpuctlError, Unreachable
from gpuctl.edges import unix_socket
from gpuctl.edges.descriptors import write_all
from gpuctl.edges.unix_socket import LONGEST, Peer, Stream, call, connect, serving


def echo(peer: Peer, request: Any) -> Any:
    return {"uid": peer.uid, "pid": peer.pid, "request": request}


def test_the_kernel_proves_who_calls_whatever_the_call_contains(tmp_path: Path) -> None:
    with serving(tmp_path / "s", echo):
        answer = call(tmp_path / "s", {"uid": 12345})
    assert answer == {"uid": os.getuid(), "pid": os.getpid(), "request": {"uid": 12345}}


@pytest.mark.parametrize("sent", [b"not json\n", b"[" * (LONGEST + 10) + b"\n", b"[" * (LONGEST - 10) + b"\n"])
def test_what_is_no_call_is_answered_as_none(tmp_path: Path, sent: bytes) -> None:
    with serving(tmp_path / "s", echo), socket.socket(socket.AF_UNIX) as client:
        client.connect(str(tmp_path / "s"))
        client.sendall(sent)
        assert b'"request": null' in client.makefile("rb").readline()


def test_without_a_service_the_error_names_the_socket(tmp_path: Path) -> None:
    with pytest.raises(Unreachable, match=f"ask the reservation service at {tmp_path}/s: No such file"):
        call(tmp_path / "s", {})


def test_a_socket_that_a_killed_service_left_is_replaced_and_one_in_use_is_not(tmp_path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as old:
        old.bind(str(tmp_path / "s"))
    with serving(tmp_path / "s", echo):
        assert call(tmp_path / "s", 1)["request"] == 1
        with pytest.raises(GpuctlError, match="Address already in use"), serving(tmp_path / "s", echo):
            pass
    assert not (tmp_path / "s").exists()


def backwards(_: Peer, request: Any) -> Any:
    """Answers with what arrives, the other way round; a call with an error gets no connection."""

    def pump(descriptor: int) -> None:
        while data := os.read(descriptor, 1 << 16):
            os.write(descriptor, data[::-1])

    return {"error": "no"} if request == "no" else Stream({"name": request}, pump)


@contextmanager
def ends() -> Iterator[tuple[int, int, int, int]]:
    """What a client reads from, and the end to write to it; what it writes to, and the end to read that."""
    pipes = [*os.pipe(), *os.pipe()]
    try:
        yield pipes[0], pipes[1], pipes[3], pipes[2]
    finally:
        for descriptor in pipes:
            with suppress(OSError):
                os.close(descriptor)


def test_after_the_answer_the_connection_carries_bytes_both_ways_and_ends_with_its_source(tmp_path: Path) -> None:
    with serving(tmp_path / "s", backwards), ends() as (source, feed, sink, result), ThreadPoolExecutor(1) as pool:
        answer = pool.submit(connect, tmp_path / "s", "x", source, sink)
        os.write(feed, b"abc")
        assert os.read(result, 100) == b"cba"
        os.close(feed)
        assert answer.result(10) == {"name": "x"}


def test_a_call_that_gets_an_error_gets_no_connection(tmp_path: Path) -> None:
    with serving(tmp_path / "s", backwards), ends() as (source, _, sink, __):
        assert connect(tmp_path / "s", "no", source, sink) == {"error": "no"}
    with ends() as (source, _, sink, __), pytest.raises(Unreachable, match="No such file"):
        connect(tmp_path / "s", "x", source, sink)


def test_connections_take_no_place_of_a_call_and_have_a_limit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(unix_socket, "MOST_CLIENTS", 1)
    monkeypatch.setattr(unix_socket, "MOST_STREAMS", 1)
    with serving(tmp_path / "s", backwards), ends() as (source, feed, sink, result), ThreadPoolExecutor(1) as pool:
        first = pool.submit(connect, tmp_path / "s", "x", source, sink)
        os.write(feed, b"abc")
        assert os.read(result, 100) == b"cba"  # it lasts
        assert call(tmp_path / "s", "no") == {"error": "no"}
        refused = connect(tmp_path / "s", "y", source, sink)
        assert "has 1 connections already" in refused["error"]
        os.close(feed)
        first.result(10)


def test_both_ways_can_be_full_at_once(tmp_path: Path) -> None:
    """What a service copies stops while its own writing is not taken: a client that stopped reading would end both."""
    size = 4 << 20

    def pump(descriptor: int) -> None:
        left = size
        while left:  # one thread, which writes all that it has before it reads on
            data = os.read(descriptor, 1 << 20)
            write_all(descriptor, data)
            left -= len(data)

    service = serving(tmp_path / "s", lambda *_: Stream({}, pump))
    with service, ends() as (source, feed, sink, result), ThreadPoolExecutor(2) as pool:
        done = pool.submit(connect, tmp_path / "s", "x", source, sink)
        pool.submit(write_all, feed, bytes(size))
        received = 0
        while received < size:
            received += len(os.read(result, 1 << 16))
        assert done.result(10) == {}
