"""`gpuctl bootstrap laptop` against a mirror that is slow, falls silent, breaks off or sends too much, and Ctrl-C."""

from __future__ import annotations

import os
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
import yaml

from tests.rig.command import Gpuctl, Said
from tests.rig.mirror import HOST, Mirror

OFTEN = 0.05


class Unruly(ThreadingHTTPServer):
    """A mirror with a manner for each tool: name -> whole, slow, cut, long or silent."""

    daemon_threads = True

    def __init__(self, root: Path, manners: dict[str, str]) -> None:
        super().__init__(("127.0.0.1", 0), Answer)
        self.root, self.manners = root, manners
        self.ended = threading.Event()
        self.at_once = self.most_at_once = 0

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"


class Answer(BaseHTTPRequestHandler):
    server: Unruly

    def do_GET(self) -> None:
        self.server.at_once += 1
        self.server.most_at_once = max(self.server.most_at_once, self.server.at_once)
        manner = self.server.manners[self.path.rpartition("/")[2].partition("-")[0]]
        data = (self.server.root / self.path.lstrip("/")).read_bytes() + (b"more" if manner == "long" else b"")
        if manner == "silent":
            self.server.ended.wait()
            return
        self.send_response(200)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.send(manner, data)
        self.server.at_once -= 1

    def send(self, manner: str, data: bytes) -> None:
        if manner == "slow":  # half of it, then byte after byte: never silent for long
            self.wfile.write(data[: len(data) // 2])
            for byte in data[len(data) // 2 :]:
                if self.server.ended.wait(0.5):
                    return
                self.wfile.write(bytes([byte]))
        else:
            self.wfile.write(data[: len(data) // 2] if manner == "cut" else data)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - its name there
        pass


@contextmanager
def unruly(gpuctl: Gpuctl, root: Path, manners: dict[str, str]) -> Iterator[Unruly]:
    """A mirror that behaves so, and rows for its tools in the user's own list."""
    rows = [Mirror(root).row(name, "1.0") for name in manners]
    own = gpuctl.home / ".config/gpuctl/tools.yml"
    own.parent.mkdir(parents=True)
    own.write_text(yaml.safe_dump(rows))
    assert (root / HOST).is_dir()
    with Unruly(root, manners) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        try:
            yield server
        finally:
            server.ended.set()
            server.shutdown()


def asked(server: Unruly) -> tuple[list[str], dict[str, str]]:
    only = [word for name in server.manners for word in ("--tool", name)]
    return ["bootstrap", "laptop", "--no-packages", "--output", "json", *only], {"GPUCTL_MIRROR": server.address}


def places(gpuctl: Gpuctl) -> dict[str, str]:
    return {"GPUCTL_TOOLS_BIN": str(gpuctl.home / "bin"), "GPUCTL_TOOLS_FOLDER": str(gpuctl.home / "tools")}


def bring(gpuctl: Gpuctl, server: Unruly) -> Said:
    words, environment = asked(server)
    return gpuctl(*words, **environment, **places(gpuctl))


@pytest.mark.parametrize(
    ("manner", "reason"),
    [("cut", "the download ended after"), ("long", "is pinned: refused"), ("silent", "cannot be downloaded")],
)
def test_what_comes_wrong_is_missing_with_the_reason_and_the_next_run_completes(
    gpuctl: Gpuctl, tmp_path: Path, manner: str, reason: str
) -> None:
    with unruly(gpuctl, tmp_path / "mirror", {"goodtool": "whole", "badtool": manner}) as server:
        said = bring(gpuctl, server)
        tools = {tool["tool"]: tool for tool in said.json["tools"]}
        assert said.code == 1, said.err  # it was asked for by name
        assert tools["goodtool"]["state"] == "INSTALLED"
        assert (tools["badtool"]["state"], reason in tools["badtool"]["why"]) == ("MISSING", True), tools["badtool"]
        assert [path.name for path in (gpuctl.home / "tools").iterdir()] == ["goodtool"]
        server.manners["badtool"] = "whole"
        assert [tool["state"] for tool in bring(gpuctl, server).json["tools"]] == ["OK", "INSTALLED"]


def test_several_silent_addresses_cost_the_time_of_one(gpuctl: Gpuctl, tmp_path: Path) -> None:
    names = [f"tool{number}" for number in range(4)]
    with unruly(gpuctl, tmp_path / "mirror", dict.fromkeys(names, "silent")) as server:
        began = time.monotonic()
        said = bring(gpuctl, server)
        assert time.monotonic() - began < 25
        assert server.most_at_once == len(names)
        assert {tool["state"] for tool in said.json["tools"]} == {"MISSING"}


def test_ctrl_c_half_way_leaves_nothing_half_made_and_the_next_run_completes(gpuctl: Gpuctl, tmp_path: Path) -> None:
    with unruly(gpuctl, tmp_path / "mirror", {"goodtool": "slow"}) as server:
        words, environment = asked(server)
        running = gpuctl.start(*words, stderr=subprocess.PIPE, **environment, **places(gpuctl))
        half = gpuctl.home / "tools/goodtool/1.0/.archive"
        until(half.exists)
        running.send_signal(signal.SIGINT)
        said = gpuctl.said(running)
        assert said.code == 130, said.err
        assert not (gpuctl.home / "bin/goodtool").is_symlink()
        until(lambda: not gpuctl.processes())
        assert not (gpuctl.home / "tools").exists()
        server.manners["goodtool"] = "whole"
        again = bring(gpuctl, server)
        assert [tool["state"] for tool in again.json["tools"]] == ["INSTALLED"]
        assert not half.exists()


def test_ctrl_c_ends_the_installers_and_removes_what_they_left(gpuctl: Gpuctl) -> None:
    """A stand-in for npm, which starts another program, as npm does."""
    npm = gpuctl.home / "programs/npm"
    npm.parent.mkdir()
    pids = gpuctl.home / "pids"
    npm.write_text(f"#!/bin/sh\nsleep 600 &\necho $$ $! > {pids}.new\nmv {pids}.new {pids}\nwait\n")
    npm.chmod(0o755)
    npm_row = {"package": "slowtool", "version": "1.0", "program": "x.js", "integrity": f"sha512-{'A' * 86}=="}
    row = {"name": "slowtool", "why": "it is slow", "source": "a test", "npm": npm_row}
    rows = gpuctl.home / ".config/gpuctl/tools.yml"
    rows.parent.mkdir(parents=True, exist_ok=True)
    rows.write_text(yaml.safe_dump([row]))
    words = ("bootstrap", "laptop", "--no-packages", "--tool", "slowtool")
    path = f"{npm.parent}:{os.environ['PATH']}"
    running = gpuctl.start(*words, stderr=subprocess.PIPE, PATH=path, **places(gpuctl))
    until(pids.exists)
    running.send_signal(signal.SIGINT)
    assert gpuctl.said(running).code == 130
    until(lambda: not any(alive(int(pid)) for pid in pids.read_text().split()))
    until(lambda: not gpuctl.processes())
    assert not (gpuctl.home / "tools").exists()


def alive(pid: int) -> bool:
    stat = Path(f"/proc/{pid}/stat")
    try:
        return stat.read_text().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False


def until(true: Callable[[], bool], seconds: float = 30) -> None:
    """Wait until it is so."""
    ends = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < ends, "it did not come about"
        time.sleep(OFTEN)
