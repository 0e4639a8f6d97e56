"""Homebrew gets one Brewfile with all packages; what it could not bring is told, tool by tool."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from ansible_collections.gpuctl.fleet.plugins.module_utils.workstation.decide import Tools
from ansible_collections.gpuctl.fleet.plugins.module_utils.workstation.install import Installer
from ansible_collections.gpuctl.fleet.plugins.module_utils.workstation.machine import Machine
from ansible_collections.gpuctl.fleet.plugins.module_utils.workstation.model import Folders
from ansible_collections.gpuctl.fleet.plugins.module_utils.workstation.packages import Packages
from ansible_collections.gpuctl.fleet.plugins.module_utils.workstation.record import Record

# A stand-in for Homebrew, which runs on no machine of ours: it keeps the Brewfile it is given and answers in the words
# of `brew bundle`. Like that it installs nothing of a list in which one package cannot be fetched.
STANDIN = """#!/bin/sh
folder=$(dirname "$0")
echo "$*" >> "$folder/calls"
cat > "$folder/Brewfile"
cat "$folder/Brewfile" >> "$folder/Brewfiles"
names=$(sed -n 's/^brew "\\(.*\\)"$/\\1/p' "$folder/Brewfile")
for name in $names; do
  if [ "$name" = lost ]; then
    echo 'Error: No available formula with the name "lost".' >&2
    echo '`brew bundle` failed! Failed to fetch lost' >&2
    exit 1
  fi
done
for name in $names; do
  echo "Installing $name"
  printf '#!/bin/sh\\necho 9.1\\n' > "$folder/$name-program"
  chmod 755 "$folder/$name-program"
done
echo '`brew bundle` complete!'
"""


class Mac:
    """Tools on a machine of Homebrew's family."""

    def __init__(self, home: Path) -> None:
        self.bin = home / "bin"
        self.bin.mkdir(parents=True)
        brew = self.bin / "brew"
        brew.write_text(STANDIN)
        brew.chmod(0o755)
        machine = Machine(str(home), str(self.bin))
        machine.family, machine.is_root = "brew", False
        folders = Folders(str(home), str(self.bin), str(home / "tools"), str(home / "state"))
        installer = Installer(machine, folders, Record(folders.state), "")
        self.tools = Tools(machine, Packages(machine), installer, check=False)

    def bring(self, *packages: str) -> dict[str, Any]:
        rows = [{"name": p, "program": f"{p}-program", "minimal": "9", "packages": {"brew": p}} for p in packages]
        return {outcome.tool: outcome for outcome in self.tools.converge(rows)}

    def kept(self, name: str) -> list[str]:
        return (self.bin / name).read_text().splitlines()


@pytest.fixture
def mac(tmp_path: Path) -> Mac:
    return Mac(tmp_path / "home")


def test_all_packages_go_into_one_brewfile(mac: Mac) -> None:
    outcomes = mac.bring("one", "two")
    assert {name: (o.state, o.version, o.changed) for name, o in outcomes.items()} == {
        "one": ("INSTALLED", "9.1", True),
        "two": ("INSTALLED", "9.1", True),
    }
    assert mac.kept("calls") == ["bundle --no-upgrade --file=-"]
    assert mac.kept("Brewfile") == ['brew "one"', 'brew "two"']


def test_a_failed_download_does_not_fail_other_packages(mac: Mac) -> None:
    outcomes = mac.bring("one", "lost")
    assert {name: o.state for name, o in outcomes.items()} == {"one": "INSTALLED", "lost": "MISSING"}
    assert "Failed to fetch lost" in outcomes["lost"].why
    assert mac.kept("Brewfiles") == ['brew "one"', 'brew "lost"', 'brew "one"', 'brew "lost"']


def test_an_installed_tool_is_not_requested_from_homebrew(mac: Mac) -> None:
    mac.bring("one")
    assert mac.bring("one")["one"].state == "OK"
    assert len(mac.kept("calls")) == 1
