"""One tool: leave it, take the package, or install it ourselves; else say why it is missing."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from .install import Own
from .machine import Machine
from .model import INSTALLED, MISSING, OK, Outcome, Wrong, new_enough, program_of
from .packages import Packages


class Tools:
    """Brings the tools of a machine to what the rows say, one by one."""

    def __init__(self, machine: Machine, packages: Packages, own: Own, check: bool) -> None:
        self.machine, self.packages, self.own, self.check = machine, packages, own, check

    def bring(self, tool: Mapping[str, Any]) -> Outcome:
        try:
            there = self._there(tool)
            return there or self._install(tool)
        except (Wrong, OSError) as error:
            return _outcome(tool, MISSING, why=str(error))

    def _there(self, tool: Mapping[str, Any]) -> Outcome | None:
        """The tool as it is, where it will do."""
        path = self.machine.which(program_of(tool))
        if not path:
            return None
        if path == self._link(tool) and self.own.record.owns(path):
            if os.path.realpath(path) != os.path.realpath(self.own.target(tool) or "/"):
                return None  # another version of ours: bring the wanted one
            return _outcome(tool, OK, version=self.own.version(tool), came=path)
        version = self.machine.version(tool, path)
        if new_enough(version, str(tool.get("minimal", "0"))):
            return _outcome(tool, OK, version=version, came=path)
        return None

    def _install(self, tool: Mapping[str, Any]) -> Outcome:
        reasons = []
        if not (wrong := self.packages.why_not(tool, self.check)):
            try:
                return self._by_package(tool)
            except Wrong as error:
                wrong = str(error)
        reasons.append(wrong)
        if wrong := self.own.why_not(tool, self.check):
            return _outcome(tool, MISSING, why="; ".join([*reasons, wrong]), version=self._older(tool))
        try:
            return self._ourselves(tool)
        except (Wrong, OSError) as error:
            return _outcome(tool, MISSING, why="; ".join([*reasons, str(error)]), version=self._older(tool))

    def _by_package(self, tool: Mapping[str, Any]) -> Outcome:
        package = tool["packages"][self.machine.family]
        if self.check:
            return _outcome(tool, INSTALLED, came=f"package {package}", why="would be installed", changed=True)
        self.packages.install(tool)
        path = self.machine.which(program_of(tool))
        version = self.machine.version(tool, path) if path else ""
        if not new_enough(version, str(tool.get("minimal", "0"))):
            raise Wrong(f"the package {package} was installed, but {program_of(tool)} is {version or 'not there'}")
        return _outcome(tool, INSTALLED, version=version, came=f"package {package}", changed=True)

    def _ourselves(self, tool: Mapping[str, Any]) -> Outcome:
        version, came = self.own.version(tool), self.own.origin(tool)
        if self.check:
            return _outcome(tool, INSTALLED, version=version, came=came, why="would be installed", changed=True)
        self.own.install(tool)
        return _outcome(tool, INSTALLED, version=version, came=came, changed=True)

    def _older(self, tool: Mapping[str, Any]) -> str:
        path = self.machine.which(program_of(tool))
        return self.machine.version(tool, path) if path else ""

    def _link(self, tool: Mapping[str, Any]) -> str:
        return os.path.join(self.own.place.bin, program_of(tool))


def _outcome(tool: Mapping[str, Any], state: str, **more: Any) -> Outcome:
    flags = {name: bool(tool.get(name)) for name in ("required", "optional")}
    return Outcome(tool=str(tool["name"]), state=state, **{**flags, **more})
