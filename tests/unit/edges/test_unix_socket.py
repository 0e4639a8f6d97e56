"""Calls over a real Unix socket."""

from __future__ import annotations

import os
import socket
from pathlib import Path
from typing import Any

import pytest

from gpuctl.core.errors import GpuctlError, Unreachable
from gpuctl.edges.unix_socket import LONGEST, Peer, call, serving


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
