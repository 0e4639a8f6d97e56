"""The distribution's packages: available versions, and installation."""

from __future__ import annotations

import re
import tempfile
from collections.abc import Mapping, Sequence
from typing import Any

from .machine import Machine
from .model import new_enough

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
_DNF = ["dnf", "-q", "--setopt=timeout=10", "--setopt=retries=1"]
_REFRESH_SECONDS = 60
_INSTALL_SECONDS = 300


class Packages:
    """The machine's package manager."""

    def __init__(self, machine: Machine) -> None:
        self.machine = machine
        self._refreshed = False
        self._lists: list[str] = []  # apt options for private package lists, if any
        self._installed: dict[str, str] = {}  # in this run: package -> error, or ""

    def why_not(self, tool: Mapping[str, Any], check: bool) -> str:
        """Return the reason why the package cannot be used; empty if it can. Only then may sudo ask for a password."""
        family, name = self.machine.family, self.name(tool)
        if not name:
            none = family or not tool.get("packages")
            return "this distribution has no package for it" if none else self.machine.may_install()
        if self.machine.without_packages:
            return self.machine.may_install()
        if family == "brew":
            return self.machine.may_install()  # Homebrew follows every release
        candidate = self._candidate(name) or self._after_refresh(name, check)
        if not candidate:
            return self.machine.may_install() or f"the package {name} is not in the package lists"
        minimal = str(tool.get("minimal", "0"))
        if not new_enough(candidate, minimal):
            return f"the package {name} {candidate} is older than {minimal}"
        return self.machine.may_install()

    def name(self, tool: Mapping[str, Any]) -> str:
        """Return the package's name on this system; empty if there is none."""
        return str(tool.get("packages", {}).get(self.machine.family, ""))

    def install(self, tools: Sequence[Mapping[str, Any]]) -> dict[str, str]:
        """Install packages and return the failed ones with their reasons; Homebrew gets one list of all."""
        names = list(dict.fromkeys(self.name(tool) for tool in tools))
        due = [name for name in names if name not in self._installed]
        failure = self._install(due) if due and self.machine.family == "brew" else ""
        self._installed.update(dict.fromkeys(due, ""))
        # Homebrew installs nothing of a list if one download fails: then each package is tried alone.
        for name in due if failure or self.machine.family != "brew" else []:
            self._installed[name] = self._install([name])
        return {name: self._installed[name] for name in names if self._installed[name]}

    def _install(self, names: Sequence[str]) -> str:
        argv = {
            "debian": [*_APT, "install", "-y", "--no-install-recommends", *names],
            "redhat": [*_DNF, "-y", "install", *names],
            "brew": ["brew", "bundle", "--no-upgrade", "--file=-"],
        }[self.machine.family]
        brewfile = "".join(f'brew "{name}"\n' for name in names) if self.machine.family == "brew" else ""
        limit = _INSTALL_SECONDS * len(names)
        done = self.machine.run(*self.machine.as_root(argv), stdin=brewfile, limit=limit)
        if not done.ok and self.machine.family == "debian" and not self._refreshed:
            self._refresh(check=False)  # the lists may name files that no longer exist
            done = self.machine.run(*self.machine.as_root(argv), limit=limit)
        return "" if done.ok else f"the package {' '.join(names)} could not be installed: {done.last_line}"

    def _after_refresh(self, name: str, check: bool) -> str:
        """Return the version after a refresh of the lists; a check refreshes a private copy."""
        if self.machine.may_install():
            return ""
        if not self._refreshed:
            self._refresh(check)
        return self._candidate(name)

    def _refresh(self, check: bool) -> None:
        self._refreshed = True
        if self.machine.family != "debian":
            return  # dnf refreshes its lists itself
        if not check:
            self.machine.run(*self.machine.as_root([*_APT, "update"]), limit=_REFRESH_SECONDS)
            return
        self._aside = tempfile.TemporaryDirectory()  # removed at exit
        self._lists = ["-o", f"Dir::State::Lists={self._aside.name}", "-o", f"Dir::Cache={self._aside.name}"]
        self.machine.run(*_APT, *self._lists, "-o", "APT::Sandbox::User=", "update", limit=_REFRESH_SECONDS)

    def _candidate(self, name: str) -> str:
        """Return the version that would be installed, without epoch; empty if there is none."""
        if self.machine.family == "debian":
            result = self.machine.run("apt-cache", *self._lists, "policy", name, limit=20)
            match = re.search(r"Candidate: (?:\d+:)?(\d\S*)", result.out)
        else:
            result = self.machine.run(*_DNF, "list", name, limit=_REFRESH_SECONDS)
            match = re.search(rf"^{re.escape(name)}\.\S+\s+(?:\d+:)?(\d\S*)", result.out, re.MULTILINE)
        return match.group(1) if match else ""
