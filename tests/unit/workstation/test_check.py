"""A check promises nothing that npm would then refuse: it is tried aside, and nothing out of the package is run."""

from __future__ import annotations

from pathlib import Path

from ansible_collections.gpuctl.fleet.plugins.module_utils.workstation.decide import Tools
from ansible_collections.gpuctl.fleet.plugins.module_utils.workstation.install import Installer
from ansible_collections.gpuctl.fleet.plugins.module_utils.workstation.machine import Machine
from ansible_collections.gpuctl.fleet.plugins.module_utils.workstation.model import Folders, Outcome
from ansible_collections.gpuctl.fleet.plugins.module_utils.workstation.packages import Packages
from ansible_collections.gpuctl.fleet.plugins.module_utils.workstation.record import Record

from tests.unit.workstation.test_sources import ROW

# A stand-in for npm, which is given a folder and either refuses, or brings what the test says.
NPM = """#!/bin/sh
echo "$*" > "$(dirname "$0")/called"
for word; do case $word in --prefix=*) folder=${word#--prefix=} ;; esac; done
DOES
"""


def checked(home: Path, does: str) -> Outcome:
    npm = home / "bin/npm"
    npm.parent.mkdir()
    npm.write_text(NPM.replace("DOES", does))
    npm.chmod(0o755)
    machine = Machine(str(home), str(home / "bin"), without_packages=True, check=True)
    folders = Folders(str(home), str(home / "bin"), str(home / "tools"), str(home / "state"))
    tools = Tools(machine, Packages(machine), Installer(machine, folders, Record(folders.state), ""), check=True)
    (outcome,) = tools.converge([{**ROW, "name": "no-such-tool", "minimal": "2"}])
    assert sorted(path.name for path in home.iterdir()) == ["bin"]
    return outcome


def test_a_check_does_not_promise_a_package_that_npm_refuses(tmp_path: Path) -> None:
    outcome = checked(tmp_path, "echo 'npm error code EINTEGRITY' >&2; exit 1")
    assert (outcome.state, outcome.changed) == ("MISSING", False)
    assert "EINTEGRITY" in outcome.why


def test_a_check_does_not_promise_a_program_that_npm_omits(tmp_path: Path) -> None:
    outcome = checked(tmp_path, 'mkdir -p "$folder/node_modules/@a/tool"')
    assert outcome.state == "MISSING"
    assert "unavailable or was rejected" in outcome.why


def test_a_check_promises_what_npm_installs_without_running_it(tmp_path: Path) -> None:
    outcome = checked(tmp_path, 'mkdir -p "$folder/node_modules/@a/tool-linux"')
    assert (outcome.state, outcome.changed) == ("INSTALLED", True)
    assert "--ignore-scripts" in (tmp_path / "bin/called").read_text().split()
