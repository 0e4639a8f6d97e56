"""The messages of an exec, as servers of any version may cut and mix them; the other end of the socket is the test."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest
from websocket import ABNF, WebSocket

from gpuctl.core.errors import GpuctlError, Unreachable
from gpuctl.edges.kube.pod_exec import AT_ONCE, PART, V4, V5, BrokenOff, Command, Done, NotStarted, Program

FAILED = {"status": "Failure", "reason": "NonZeroExitCode"}


class Server:
    """The server's end of a connection."""

    def __init__(self, protocol: str) -> None:
        ours, self.socket = socket.socketpair()
        found: Any = WebSocket()
        found.sock, found.handshake_response = ours, SimpleNamespace(subprotocol=protocol)
        found.connected = True  # else its `close` does nothing
        self.program = Program(found, "run it in the pod a", Command(["it"], silent_s=2))
        self.reads: Any = WebSocket()
        self.reads.sock = self.socket

    def says(self, channel: int, data: bytes) -> None:
        self.sends(bytes([channel]) + data)

    def sends(self, payload: bytes, opcode: int = ABNF.OPCODE_BINARY, last: int = 1) -> None:
        self.socket.sendall(ABNF.create_frame(payload, opcode, last).format())

    def ends(self, **status: Any) -> None:
        self.says(3, json.dumps(status).encode())
        self.sends(b"\x03\xe8", ABNF.OPCODE_CLOSE)


@pytest.fixture(params=[V4, V5])
def server(request: pytest.FixtureRequest) -> Iterator[Server]:
    found = Server(request.param)
    yield found
    found.socket.close()  # first: `close` waits a moment for an answer
    found.program.close()


def everything(program: Program) -> bytes:
    return b"".join(iter(program.read, b""))


def test_output_and_the_end_are_reported_apart(server: Server) -> None:
    server.says(1, b"out")
    server.says(2, b"warning: x\n")
    server.ends(status="Success")
    assert everything(server.program) == b"out"
    assert server.program.done() == Done(0, "warning: x")


def test_an_exit_code_is_read_from_the_status(server: Server) -> None:
    server.ends(**FAILED, details={"causes": [{"reason": "ExitCode", "message": "7"}]}, message="it ended with 7")
    assert everything(server.program) == b""
    assert server.program.done() == Done(7, "")


def test_a_connection_without_a_status_is_broken_whatever_it_printed(server: Server) -> None:
    server.says(1, b"all is well")
    server.socket.shutdown(socket.SHUT_RDWR)
    assert everything(server.program) == b"all is well"
    with pytest.raises(Unreachable, match="the connection broke before it ended"):
        server.program.done()


def test_a_program_that_is_not_there_was_never_started(server: Server) -> None:
    server.ends(**FAILED, message='exec failed: "python3": executable file not found in $PATH: unknown')
    everything(server.program)
    with pytest.raises(NotStarted, match="executable file not found"):
        server.program.done()


def test_another_failure_is_reported_in_the_servers_words(server: Server) -> None:
    server.ends(**FAILED, message="container not running")
    everything(server.program)
    with pytest.raises(GpuctlError, match="container not running"):
        server.program.done()


def test_a_message_in_pieces_and_with_a_ping_between_is_one(server: Server) -> None:
    server.sends(b"\x01one ", last=0)
    server.sends(b"still there?", ABNF.OPCODE_PING)
    server.sends(b"two ", ABNF.OPCODE_CONT, last=0)
    server.sends(b"three", ABNF.OPCODE_CONT)
    server.says(1, b"")  # as servers begin a channel
    server.ends(status="Success")
    assert everything(server.program) == b"one two three"


def test_a_ping_is_answered_and_never_in_the_middle_of_a_message(server: Server) -> None:
    server.sends(b"still there?", ABNF.OPCODE_PING)
    data = bytes(range(256)) * 4096
    sending = threading.Thread(target=server.program.send, args=(data,))
    sending.start()
    got = b""
    answers: list[bytes] = []
    while len(got) < len(data) or not answers:
        frame = server.reads.recv_frame()
        if frame.opcode == ABNF.OPCODE_PONG:
            answers.append(frame.data)
        else:
            assert frame.data[0] == 0
            assert len(frame.data) <= PART + 1
            got += frame.data[1:]
    sending.join()
    assert (got, answers) == (data, [b"still there?"])


def test_a_silent_connection_can_be_kept_alive_and_the_answer_is_no_output(server: Server) -> None:
    server.program.ping()
    assert server.reads.recv_frame().opcode == ABNF.OPCODE_PING
    server.sends(b"", ABNF.OPCODE_PONG)
    server.says(1, b"out")
    server.ends(status="Success")
    assert everything(server.program) == b"out"


def test_input_goes_on_while_the_program_floods_us(server: Server) -> None:
    """Neither side reads before it has sent: whoever waits for one side alone never ends."""
    data = b"x" * (8 << 20)

    def flood() -> None:
        for _ in range(64):
            server.says(1, data[: 1 << 17])
        left = len(data)
        while left:
            left -= len(server.reads.recv_frame().data) - 1
        server.ends(status="Success")

    other = threading.Thread(target=flood)
    other.start()
    server.program.send(data)
    assert len(everything(server.program)) == 64 << 17
    other.join()
    assert server.program.done().code == 0


def test_a_stop_is_noticed_although_there_is_always_more_to_read(server: Server) -> None:
    for _ in range(20):
        server.says(1, b"y\n")
    assert server.program.read() == b"y\n"
    server.program.stop.set()
    with pytest.raises(BrokenOff):
        server.program.read()


def test_what_we_say_goes_out_although_there_is_always_more_to_read(server: Server) -> None:
    for _ in range(3 * AT_ONCE):
        server.says(1, b"y\n")
    server.program.ping()
    server.socket.settimeout(2)
    assert server.reads.recv_frame().opcode == ABNF.OPCODE_PING


def test_only_the_newer_protocol_can_end_the_input(server: Server) -> None:
    assert server.program.end_input() is (server.program.protocol == V5)
    if server.program.protocol == V5:
        assert server.reads.recv_frame().data == b"\xff\x00"


def test_a_program_that_takes_nothing_is_given_up(server: Server) -> None:
    with pytest.raises(Unreachable, match="it takes no more input for 2 s"):
        server.program.send(b"x" * (16 << 20))


def test_a_program_that_takes_nothing_more_is_left_within_seconds(server: Server) -> None:
    server.program.silent_s = 0.1
    with pytest.raises(Unreachable):
        server.program.send(b"x" * (16 << 20))
    closing = threading.Thread(target=server.program.close, daemon=True)
    closing.start()
    closing.join(5)
    assert not closing.is_alive()


def test_input_for_a_program_that_has_ended_is_an_end(server: Server) -> None:
    server.ends(status="Success")
    server.socket.shutdown(socket.SHUT_RDWR)
    with pytest.raises(EOFError):
        server.program.send(b"x" * (1 << 20))
    assert server.program.done().code == 0
