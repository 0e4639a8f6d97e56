"""The distribution's packages: which version it has, and how one is installed."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from .machine import Machine
from .model import Wrong, new_enough

_APT = [
    "apt-get",
    "-q",
    "-o",
    "Acquire::http::Timeout=10",
    "-o",
    "Acquire::https::Timeout=10",
    "-o",
    "Acquire::Retries=0",
]
_REFRESH_SECONDS = 60
_INSTALL_SECONDS = 300


class Packages:
    """What this machine's package manager has."""

    def __init__(self, machine: Machine) -> None:
        self.machine = machine
        self._refreshed = False

    def why_not(self, tool: Mapping[str, Any], check: bool) -> str:
        """Empty where the package will do, else why not."""
        name = tool.get("packages", {}).get(self.machine.family)
        if not name:
            return "this distribution has no package of it" if self.machine.family else self.machine.may_install()
        if wrong := self.machine.may_install():
            return wrong
        if self.machine.family == "brew":
            return ""  # Homebrew follows each release
        candidate = self._candidate(name) or ("" if check else self._after_refresh(name))
        if not candidate:
            return f"the package {name} is not in the package lists"
        minimal = str(tool.get("minimal", "0"))
        return "" if new_enough(candidate, minimal) else f"the package {name} {candidate} is older than {minimal}"

    def install(self, tool: Mapping[str, Any]) -> None:
        """Install it; `Wrong` with the package manager's last words."""
        name = tool["packages"][self.machine.family]
        argv = {
            "debian": [*_APT, "install", "-y", "--no-install-recommends", name],
            "redhat": ["dnf", "-q", "-y", "install", "--setopt=timeout=10", "--setopt=retries=1", name],
            "brew": ["brew", "bundle", "--no-upgrade", "--file=-"],
        }[self.machine.family]
        bundle = f'brew "{name}"\n' if self.machine.family == "brew" else ""
        done = self.machine.run(*self.machine.as_root(argv), stdin=bundle, limit=_INSTALL_SECONDS)
        if not done.ok:
            raise Wrong(f"the package {name} could not be installed: {done.said}")

    def _after_refresh(self, name: str) -> str:
        if self._refreshed:
            return ""
        self._refreshed = True
        if self.machine.family == "debian":
            self.machine.run(*self.machine.as_root([*_APT, "update"]), limit=_REFRESH_SECONDS)
        return self._candidate(name)

    def _candidate(self, name: str) -> str:
        """The version that would be installed, without epoch; empty where there is none."""
        if self.machine.family == "debian":
            said = self.machine.run("apt-cache", "policy", name, limit=20)
            found = re.search(r"Candidate: (?:\d+:)?(\d\S*)", said.out)
        else:
            argv = ["dnf", "-q", "--setopt=timeout=10", "--setopt=retries=1", "list", name]
            said = self.machine.run(*argv, limit=_REFRESH_SECONDS)
            found = re.search(rf"^{re.escape(name)}\.\S+\s+(?:\d+:)?(\d\S*)", said.out, re.MULTILINE)
        return found.group(1) if found else ""
