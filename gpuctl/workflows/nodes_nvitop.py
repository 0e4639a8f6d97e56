"""nvitop on a node in one step: its pinned wheels are there for the session only."""

from __future__ import annotations

import hashlib
import json
import sys
from collections.abc import Sequence
from pathlib import Path

from gpuctl.core.errors import GpuctlError
from gpuctl.core.paths import cache_dir, private
from gpuctl.edges import ssh, terminal
from gpuctl.edges.processes import Done, Processes
from gpuctl.edges.session_program import SessionProgram
from gpuctl.engine import launch, typed_json
from gpuctl.hosts.fan_out import login_of
from gpuctl.hosts.model import Target
from gpuctl.nodes.acts import nvitop
from gpuctl.nodes.acts.nvitop import Wheel

DOWNLOAD_S = 120.0


def run(host: Target, arguments: tuple[str, ...], timeout_s: float) -> int:
    """Show nvitop of a node in this terminal until it is left; its exit code. Nothing of it stays on the node."""
    login = login_of(host)
    doing = f"run nvitop on {host.name}"
    keeper = SessionProgram(ssh.command(login, stays=True), feed(wheels()))
    try:
        line = keeper.first_line(timeout_s)
        if not line:
            code, err = keeper.close()
            failure = ssh.explain(login, Done(code, b"", err), timeout_s)
            raise GpuctlError(doing, failure.wrong, failure.hint)
        answer = typed_json.read(typed_json.parse(line), dict[str, str])
        if "error" in answer:
            raise GpuctlError(doing, answer["error"])
        argv = nvitop.arguments(answer["python"], answer["folder"], arguments)
        return terminal.show(ssh.program(login, argv, terminal=True))
    finally:
        keeper.close()


def feed(files: Sequence[tuple[Wheel, bytes]]) -> bytes:
    """Input of the program that keeps the files: its own text, what comes, and the files."""
    program = Path(launch.__path__[0], "session_files.py").read_bytes()
    rows = [
        {"name": wheel.name, "size": len(data), "sha256": wheel.sha256, "machine": wheel.machine}
        for wheel, data in files
    ]
    head = b"%d\n%s%s\n" % (len(program), program, json.dumps(rows).encode())
    return head + b"".join(data for _, data in files)


def wheels() -> list[tuple[Wheel, bytes]]:
    """Wheels from the cache, downloaded if they are missing; each with the content of its pin."""
    folder = private(cache_dir() / "nvitop")
    return [(wheel, _content(folder, wheel)) for wheel in nvitop.WHEELS]


def _content(folder: Path, wheel: Wheel) -> bytes:
    path = folder / wheel.name
    data = path.read_bytes() if path.is_file() else b""
    if hashlib.sha256(data).hexdigest() != wheel.sha256:
        path.unlink(missing_ok=True)
        _download(folder, wheel)
        data = path.read_bytes() if path.is_file() else b""
    if hashlib.sha256(data).hexdigest() != wheel.sha256:
        raise GpuctlError(f"download {wheel.name}", "its content is not that of its pin", f"put it into {folder}")
    return data


def _download(folder: Path, wheel: Wheel) -> None:
    """Let pip download a wheel, from the package index that it is configured for."""
    options = [*nvitop.pip_options(wheel), f"--dest={folder}", "--requirement=/dev/stdin"]
    line = f"{wheel.requirement} --hash=sha256:{wheel.sha256}\n".encode()
    done = Processes().run([sys.executable, "-m", "pip", "download", *options], line, DOWNLOAD_S)
    if done.code != 0:
        last = next((text for text in reversed(done.err.splitlines()) if text.strip()), "it gave no answer")
        hint = f"put that file into {folder} (sha256 {wheel.sha256})"
        raise GpuctlError(f"download {wheel.name}", last, hint)
