"""Files that are on a host for one session: the real program, fed as over ssh, with made-up wheels."""

from __future__ import annotations

import hashlib
import io
import json
import platform
import signal
import subprocess
import sys
import zipfile
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from gpuctl.edges.session_program import SessionProgram
from gpuctl.engine import python_arguments
from gpuctl.nodes.acts.nvitop import WHEELS, Wheel, arguments, pip_options
from gpuctl.workflows.nodes_nvitop import feed

ARGV = [sys.executable, *python_arguments(stays=True)]
Start = Callable[[bytes], SessionProgram]


def wheel(name: str, content: str, machine: str = "") -> tuple[Wheel, bytes]:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        archive.writestr(f"{name}.py", content)
    data = buffer.getvalue()
    return Wheel(f"{name}.whl", f"{name}==1", hashlib.sha256(data).hexdigest(), machine), data


FILES = [wheel("nvitop", "x = 1"), wheel("psutil", "ours = 1", platform.machine()), wheel("other", "", "vax")]


@pytest.fixture
def start() -> Iterator[Start]:
    programs: list[SessionProgram] = []

    def start(text: bytes) -> SessionProgram:
        programs.append(SessionProgram(ARGV, text))
        return programs[-1]

    yield start
    for program in programs:
        program.close()


def folder_of(program: SessionProgram) -> Path:
    return Path(json.loads(program.first_line(20))["folder"])


def test_files_are_there_until_the_session_ends(start: Start) -> None:
    program = start(feed(FILES))
    folder = folder_of(program)
    assert sorted(path.name for path in folder.iterdir()) == ["nvitop.py", "psutil.py"]
    assert folder.stat().st_mode & 0o777 == 0o700
    assert program.close()[0] == 0
    assert not folder.exists()


def test_a_file_with_another_content_is_not_unpacked(start: Start) -> None:
    broken = [(replace(FILES[0][0], sha256="0" * 64), FILES[0][1]), *FILES[1:]]
    assert json.loads(start(feed(broken)).first_line(20)) == {"error": "nvitop.whl arrived with another content"}


def test_a_machine_without_a_build_is_told_so(start: Start) -> None:
    answer = json.loads(start(feed([FILES[0], FILES[2]])).first_line(20))
    assert "no build of it" in answer["error"]


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_a_signal_removes_them_too(number: signal.Signals) -> None:
    with subprocess.Popen(ARGV, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(feed(FILES))
        process.stdin.flush()
        folder = Path(json.loads(process.stdout.readline())["folder"])
        assert folder.exists()
        process.send_signal(number)
        process.wait(20)
        assert not folder.exists()


def test_silence_of_the_other_end_removes_them() -> None:
    text = feed(FILES).replace(b"SILENT_S = 60.0", b"SILENT_S = 00.1")
    with subprocess.Popen(ARGV, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(text)
        process.stdin.flush()
        folder = Path(json.loads(process.stdout.readline())["folder"])
        assert process.wait(20) == 0
        assert not folder.exists()


def test_what_is_sent_is_pinned_and_pip_may_download_nothing_else() -> None:
    assert all(len(one.sha256) == 64 and "==" in one.requirement for one in WHEELS)
    assert all({"--require-hashes", "--no-deps"} <= set(pip_options(one)) for one in WHEELS)
    assert {one.machine for one in WHEELS} == {"", "x86_64", "aarch64"}
    assert arguments("/usr/bin/python3", "/tmp/x", ("-1",))[-2:] == ["/tmp/x", "-1"]  # noqa: S108 - a name
