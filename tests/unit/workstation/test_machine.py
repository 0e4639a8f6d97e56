"""Tools are seen where the user has them, and what a program needs to know stands on no command line."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.gpuctl.fleet.plugins.module_utils.gpuhost.host import Host
from ansible_collections.gpuctl.fleet.plugins.module_utils.workstation.machine import Machine


def a_machine(home: Path) -> Machine:
    return Machine(str(home), str(home / ".local/bin"), without_packages=True)


def program(path: Path, script: str = "echo 9.1") -> str:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)
    return str(path)


class Listening(Host):
    """Keeps the command lines."""

    def __init__(self) -> None:
        super().__init__()
        self.lines: list[Sequence[str]] = []

    def _run(self, argv: Sequence[str], *more: Any) -> Any:
        self.lines.append(argv)
        return super()._run(argv, *more)


def test_a_proxy_password_is_passed_but_never_on_a_command_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("https_proxy", "http://user:secret@proxy.example")
    asks = program(tmp_path / "bin/asks", 'echo "$https_proxy $HOME"')
    machine, host = a_machine(tmp_path), Listening()
    machine.host = host
    assert machine.run(asks).out == f"http://user:secret@proxy.example {tmp_path}\n"
    assert host.lines == [(asks,)]


def test_a_tool_on_the_users_path_is_recognised(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    mine = program(tmp_path / "go/bin/mytool")
    monkeypatch.setenv("PATH", f"{tmp_path}/go/bin:/usr/bin:/bin")
    assert a_machine(tmp_path).which("mytool") == mine


def test_the_users_path_order_is_respected(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    mine = program(tmp_path / "bin/sh")
    monkeypatch.setenv("PATH", f"{tmp_path}/bin:/usr/bin:/bin")
    assert a_machine(tmp_path).which("sh") == mine


def test_programs_of_an_active_virtual_environment_do_not_count(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program(tmp_path / "venv/bin/mytool")
    (tmp_path / "venv/pyvenv.cfg").write_text("")
    program(tmp_path / "mytool")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PATH", f"{tmp_path}/venv/bin::.:/usr/bin:/bin")
    assert a_machine(tmp_path).which("mytool") == ""


def test_a_program_runs_with_the_users_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program(tmp_path / "bin/shim", "exec helper")
    program(tmp_path / "bin/helper", "echo 2.5")
    monkeypatch.setenv("PATH", f"{tmp_path}/bin:/usr/bin:/bin")
    machine = a_machine(tmp_path)
    assert machine.version({"name": "shim"}, machine.which("shim")) == "2.5"


def test_sudo_is_never_taken_from_nor_run_with_the_users_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program(tmp_path / "bin/sudo", "echo wrong")
    monkeypatch.setenv("PATH", f"{tmp_path}/bin:/usr/bin:/bin")
    machine = a_machine(tmp_path)
    ours = program(tmp_path / ".local/bin/sudo", 'echo "$PATH"')
    done = machine.run("sudo", "-n", "true")
    assert Path(ours).is_file()
    assert "wrong" not in done.out
    assert f"{tmp_path}/bin:" not in done.out
