"""Use of sessions: utilization by minor number, and ssh connections of real processes."""

from __future__ import annotations

import os
import pwd
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.gpuctl.fleet.plugins.module_utils.gpuhost.acts import session_use
from ansible_collections.gpuctl.fleet.plugins.module_utils.gpuhost.host import Host, Result

ACCOUNT = "games"
# Two GPUs whose minor numbers are not in the order of their addresses.
ADDRESSES = {"0000:10:00.0": 1, "0000:20:00.0": 0}
CONNECTED = """
import os, socket, sys
client = socket.create_connection(("127.0.0.1", int(sys.argv[1])))
open("/proc/self/comm", "w").write(sys.argv[3])
os.setgid(int(sys.argv[2])), os.setuid(int(sys.argv[2]))
print(client.recv(1).decode(), flush=True)
sys.stdin.read()
"""


class StandinSmi(Host):
    """A host whose nvidia-smi prints these lines."""

    def __init__(self, root: Path, *lines: str, code: int = 0) -> None:
        super().__init__(root)
        self.result = Result(code, "".join(f"{line}\n" for line in lines), "")
        for address, minor in ADDRESSES.items():
            folder = root / f"proc/driver/nvidia/gpus/{address}"
            folder.mkdir(parents=True, exist_ok=True)
            (folder / "information").write_text(f"Model: \t\t NVIDIA H100\nDevice Minor: \t {minor}\n")

    def run(self, *argv: str, **_: Any) -> Result:
        """See Host."""
        assert argv == ("nvidia-smi", *session_use.QUERY)
        return self.result


def percent(host: Host, *minors: int) -> float | None:
    [row] = session_use.read(host, [{"session": "r1", "person": ACCOUNT, "devices": list(minors)}])
    value: float | None = row["gpu_percent"]
    return value


@pytest.mark.parametrize(
    ("lines", "minors", "expected"),
    [
        (("00000000:10:00.0, 7", "00000000:20:00.0, 0"), (0,), 0.0),
        (("00000000:10:00.0, 7", "00000000:20:00.0, 0"), (1,), 7.0),
        (("00000000:10:00.0, 7", "00000000:20:00.0, 90"), (0, 1), 90.0),
        (("00000000:10:00.0, [N/A]", "00000000:20:00.0, 0"), (0, 1), None),
        (("00000000:10:00.0, [N/A]", "00000000:20:00.0, 3"), (0, 1), 3.0),
        (("00000000:10:00.0, [Unknown Error]",), (1,), None),
        (("00000000:10:00.0, 101",), (1,), None),
        (("No devices were found",), (0,), None),
        ((), (0,), None),
    ],
)
def test_the_busiest_gpu_of_a_session_counts(
    tmp_path: Path, lines: tuple[str, ...], minors: tuple[int, ...], expected: float | None
) -> None:
    assert percent(StandinSmi(tmp_path, *lines), *minors) == expected


def test_without_an_answer_or_a_driver_nothing_is_known(tmp_path: Path) -> None:
    assert percent(StandinSmi(tmp_path, "00000000:20:00.0, 0", code=9), 0) is None
    assert percent(Host(tmp_path / "bare"), 0) is None


@contextmanager
def connected(name: str) -> Iterator[None]:
    """A process of the account with this name and an established connection."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        uid = pwd.getpwnam(ACCOUNT).pw_uid
        argv = [sys.executable, "-c", CONNECTED, str(server.getsockname()[1]), str(uid), name]
        with subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
            peer, _ = server.accept()
            with peer:
                peer.sendall(b"x")
                assert process.stdout is not None
                assert process.stdout.readline() == "x\n"
                yield
            assert process.stdin is not None
            process.stdin.close()


def connections(tmp_path: Path, person: str = ACCOUNT, *people: str) -> int | None:
    asked = {"session": "r1", "person": person, "people": people, "devices": []}
    [row] = session_use.read(StandinSmi(tmp_path), [asked])
    value: int | None = row["connections"]
    return value


@pytest.mark.skipif(os.geteuid() != 0, reason="makes processes of another account")
def test_ssh_connections_of_the_account_are_counted(tmp_path: Path) -> None:
    assert connections(tmp_path) == 0
    with connected("sshd"), connected("sshd-session"), connected("rsync"):
        assert connections(tmp_path) == 2
        assert connections(tmp_path, "daemon") == 0
    assert connections(tmp_path) == 0
    assert connections(tmp_path, "no-such-account") is None


def test_an_added_person_without_an_account_makes_no_use_unknown(tmp_path: Path) -> None:
    assert connections(tmp_path, ACCOUNT, "no-such-account") == 0
    assert connections(tmp_path, "no-such-account", ACCOUNT) is None


def test_without_a_table_of_connections_their_number_is_unknown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(session_use, "TABLE_6", str(tmp_path / "none"))
    assert connections(tmp_path) == 0
    monkeypatch.setattr(session_use, "TABLE", str(tmp_path / "none"))
    assert connections(tmp_path) is None


def test_what_is_hidden_is_unknown(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def hidden(_: str) -> Iterator[str]:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(session_use, "_command", lambda _: "sshd")
    monkeypatch.setattr(session_use, "_open_files", hidden)
    monkeypatch.setattr(session_use, "_established", lambda _: ["1"])
    assert connections(tmp_path) is None
