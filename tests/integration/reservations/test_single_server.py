"""A single server: two accounts, real access lists and processes, device files of the test's."""

from __future__ import annotations

import json
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from gpuctl.core.errors import GpuctlError
from gpuctl.reservations.rules.model import Limits
from gpuctl.reservations.serve import ServeOptions, running

CALL = """
import json, socket, sys
client = socket.socket(socket.AF_UNIX)
client.connect(sys.argv[1])
client.sendall(sys.argv[2].encode() + b"\\n")
print(client.makefile().readline())
"""
# PR_SET_DUMPABLE 0: the folder of the process in /proc belongs to root.
HOLD = """
import ctypes, sys, time
ctypes.CDLL(None).prctl(4, 0)
gpu = open(sys.argv[1], "r+")
print("open", flush=True)
time.sleep(60)
"""


class Server:
    """The service, and programs of other accounts."""

    def __init__(self, root: Path) -> None:
        self.root, self.socket = root, root / "run/s"
        self.step: Callable[[], object] = lambda: None
        self._keys = 0

    def call(self, user: str, do: str, **content: Any) -> Any:
        if do not in ("state", "history"):
            self._keys += 1
            content["key"] = f"key-{self._keys:04}"
        argv = ["/usr/bin/python3", "-c", CALL, str(self.socket), json.dumps({"do": do, **content})]
        return json.loads(subprocess.run(argv, user=user, group=user, capture_output=True, check=True).stdout)

    def hold(self, user: str, gpu: int) -> subprocess.Popen[str]:
        argv = ["/usr/bin/python3", "-c", HOLD, str(self.root / f"dev/nvidia{gpu}")]
        return subprocess.Popen(argv, user=user, group=user, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


@pytest.fixture
def server() -> Iterator[Server]:
    with tempfile.TemporaryDirectory(prefix="gpuctl-reservations-") as folder:  # other accounts have to enter it
        root = Path(folder)
        root.chmod(0o755)
        for name in ("dev/pts", "run", "state"):
            (root / name).mkdir(parents=True)
        for index in range(2):
            (root / f"dev/nvidia{index}").touch()
        server = Server(root)
        limits = Limits(shortest_s=1, longest_s=3600, grace_s=1, warnings_min=(1,))
        with running(ServeOptions(server.socket, root / "state", "h100", limits=limits, root=root)) as step:
            server.step = step
            yield server


def test_two_people_at_once_have_their_own_gpus_and_lose_them_at_the_end(server: Server) -> None:
    first = server.call("daemon", "submit", request={"gpus": 1, "length_s": 2})["reservation"]
    second = server.call("games", "submit", request={"gpus": 1, "length_s": 3600})["reservation"]
    assert (first["person"], second["person"]) == ("daemon", "games")
    [mine], [theirs] = first["slots"][0]["gpus"], second["slots"][0]["gpus"]
    with server.hold("daemon", theirs) as refused:
        assert "Permission denied" in refused.communicate()[1]
    with server.hold("daemon", mine) as program:
        assert program.stdout is not None
        assert program.stdout.readline() == "open\n"
        spoofed = server.call("games", "cancel", command={"reservation": first["id"]})
        assert "it belongs to daemon, and you are games" in spoofed["error"]
        deadline = time.monotonic() + 20
        while program.poll() is None and time.monotonic() < deadline:
            server.step()
            time.sleep(0.2)
        assert program.returncode == -15
    with server.hold("daemon", mine) as refused:
        assert "Permission denied" in refused.communicate()[1]
    assert "ends in 1 min" in (server.root / "run/gpuctl-reservations/daemon.warning").read_text()
    [left] = server.call("games", "state")["reservations"]
    assert (left["id"], left["state"]) == (second["id"], "active")
    entries = server.call("daemon", "history", subject=first["id"])["entries"]
    assert entries[0]["after"] == "expired"


def test_a_node_refuses_a_new_database_until_its_sessions_are_deleted(tmp_path: Path) -> None:
    for name in ("dev/pts", "run", "state"):
        (tmp_path / name).mkdir(parents=True)
    (tmp_path / "dev/nvidia0").touch()
    server = Server(tmp_path)
    options = ServeOptions(server.socket, tmp_path / "state", "h100", root=tmp_path)
    with running(options):
        assert server.call("root", "submit", request={"gpus": 1})["reservation"]["state"] == "active"
    for path in (tmp_path / "state").glob("reservations.db*"):
        path.unlink()
    with pytest.raises(GpuctlError, match="belongs to the reservations of"), running(options):
        pass
    (tmp_path / "var/lib/gpuctl/reservations/sessions.json").unlink()
    with running(options):
        assert server.call("root", "submit", request={"gpus": 1})["reservation"]["state"] == "active"


def test_a_name_in_the_call_does_not_make_somebody_else(server: Server) -> None:
    answer = server.call("games", "submit", request={"gpus": 1, "length_s": 60}, person="daemon")
    assert "unknown fields: person" in answer["error"]
    assert server.call("games", "state")["reservations"] == []
