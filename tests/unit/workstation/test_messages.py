"""The reasons in the table say what is meant."""

from __future__ import annotations

import socket
from pathlib import Path
from typing import Any
from urllib.error import URLError

import pytest
from ansible_collections.gpuctl.fleet.plugins.module_utils.workstation.decide import Tools
from ansible_collections.gpuctl.fleet.plugins.module_utils.workstation.fetch import fetch
from ansible_collections.gpuctl.fleet.plugins.module_utils.workstation.install import Installer
from ansible_collections.gpuctl.fleet.plugins.module_utils.workstation.machine import Machine
from ansible_collections.gpuctl.fleet.plugins.module_utils.workstation.model import Folders, WorkstationError
from ansible_collections.gpuctl.fleet.plugins.module_utils.workstation.packages import Packages
from ansible_collections.gpuctl.fleet.plugins.module_utils.workstation.record import Record


def why(home: Path, **row: Any) -> str:
    machine = Machine(str(home), str(home / "bin"), without_packages=True)
    machine.family = "debian"
    folders = Folders(str(home), str(home / "bin"), str(home / "tools"), str(home / "state"))
    tools = Tools(machine, Packages(machine), Installer(machine, folders, Record(folders.state), ""), check=False)
    (outcome,) = tools.converge([{"name": "no-such-tool", "minimal": "99.1", **row}])
    assert outcome.state == "MISSING"
    return outcome.why


def test_disabled_packages_are_reported_only_for_tools_with_a_package(tmp_path: Path) -> None:
    assert "packages are disabled (--no-packages)" in why(tmp_path, packages={"debian": "tool"})
    assert "--no-packages" not in why(tmp_path)


def test_a_tool_that_is_too_old_is_reported_as_such(tmp_path: Path) -> None:
    (tmp_path / "bin").mkdir()
    program = tmp_path / "bin/no-such-tool"
    program.write_text("#!/bin/sh\necho tool 1.6\n")
    program.chmod(0o755)
    assert why(tmp_path).startswith("1.6 is older than 99.1; ")


def test_an_unresolvable_name_is_explained(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def unknown(*_: object, **__: object) -> None:
        raise URLError(socket.gaierror(-2, "Name or service not known"))

    monkeypatch.setattr("urllib.request.urlopen", unknown)
    with pytest.raises(WorkstationError, match=r"name cannot be resolved \(GPUCTL_MIRROR"):
        fetch("https://h.example/a.tar.gz", "0" * 64, str(tmp_path / "a"))
