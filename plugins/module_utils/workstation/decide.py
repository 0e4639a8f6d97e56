"""Decide for each tool: keep it, install its package, install a release, or report why it is missing."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from ..progress import report_progress
from .install import Installer
from .machine import Machine
from .model import INSTALLED, MISSING, OK, Outcome, WorkstationError, new_enough, program_of
from .packages import Packages

Tool = Mapping[str, Any]
_AT_ONCE = 6  # version checks or downloads in parallel


class Tools:
    """Makes a machine's tools match their rows: checks all of them, then tries packages, then the other sources."""

    def __init__(self, machine: Machine, packages: Packages, installer: Installer, check: bool) -> None:
        self.machine, self.packages, self.installer, self.check = machine, packages, installer, check

    def converge(self, tools: Sequence[Tool]) -> list[Outcome]:
        """Install what is missing or too old; return one outcome per tool, in the order of the tools."""
        report_progress(f"checking {_names(tools)}")
        outcomes = self._in_parallel(self._present, tools)
        reasons: dict[str, str] = {}
        for tool, outcome in self._by_packages([t for t in tools if t["name"] not in outcomes]):
            if isinstance(outcome, str):
                reasons[tool["name"]] = outcome
            else:
                outcomes[tool["name"]] = outcome
        remaining = [t for t in tools if t["name"] not in outcomes]
        outcomes.update(self._in_parallel(lambda tool: self._install(tool, reasons[tool["name"]]), remaining))
        return [outcomes[tool["name"]] for tool in tools]

    def _in_parallel(self, job: Callable[[Tool], Outcome | None], tools: Sequence[Tool]) -> dict[str, Outcome]:
        """Run a job for several tools at a time, so that one slow program or server does not delay the others."""

        def safely(tool: Tool) -> Outcome | None:
            try:
                return job(tool)
            except (WorkstationError, OSError) as error:
                return _outcome(tool, MISSING, why=str(error))

        with ThreadPoolExecutor(_AT_ONCE) as pool:
            return {tool["name"]: done for tool, done in zip(tools, pool.map(safely, tools)) if done}

    def _present(self, tool: Tool) -> Outcome | None:
        """Return the outcome for an installed tool that is new enough; else None."""
        path = self.machine.which(program_of(tool))
        if not path:
            return None
        if path == self._link(tool) and self.installer.record.owns(path):
            if os.path.realpath(path) != os.path.realpath(self.installer.target(tool) or "/"):
                return None  # a version that we installed, but not the desired one
            return _outcome(tool, OK, version=self.installer.version(tool), source=path)
        version = self.machine.version(tool, path)
        if new_enough(version, str(tool.get("minimal", "0"))):
            return _outcome(tool, OK, version=version, source=path)
        return None

    def _by_packages(self, tools: Sequence[Tool]) -> Iterable[tuple[Tool, Outcome | str]]:
        """Yield the outcome of each tool's package, or the reason why there is none."""
        if tools and not self.machine.without_packages:
            report_progress(f"looking up the packages of {_names(tools)}")
        why_not = {tool["name"]: self.packages.why_not(tool, self.check) for tool in tools}
        due = [tool for tool in tools if not why_not[tool["name"]]]
        if due and not self.check:
            report_progress(f"installing the packages of {_names(due)}")
        failures = {} if self.check else self.packages.install(due)
        for tool in tools:
            yield tool, why_not[tool["name"]] or self._by_package(tool, failures.get(self.packages.name(tool), ""))

    def _by_package(self, tool: Tool, failure: str) -> Outcome | str:
        package = self.packages.name(tool)
        if self.check:
            return _outcome(tool, INSTALLED, source=f"package {package}", why="would be installed", changed=True)
        # Checked even after a failure: Homebrew may have installed a part of its list.
        path = self.machine.which(program_of(tool))
        version = self.machine.version(tool, path) if path else ""
        if path and new_enough(version, str(tool.get("minimal", "0"))):
            return _outcome(tool, INSTALLED, version=version, source=f"package {package}", changed=True)
        return failure or f"the package {package} was installed, but {program_of(tool)} is {version or 'missing'}"

    def _install(self, tool: Tool, reason: str) -> Outcome:
        if self.check:
            report_progress(f"{tool['name']}: checking that it is available")
        if not (failure := self.installer.why_not(tool, self.check)):
            try:
                version, source = self.installer.version(tool), self.installer.origin(tool)
                was, replaces = self._replaced(tool)
                if not self.check:
                    report_progress(f"{tool['name']}: installing {' '.join(filter(None, [version, 'from', source]))}")
                if not self.check:
                    self.installer.install(tool, was)
                why = ", ".join([*(["would be installed"] if self.check else []), *([replaces] if replaces else [])])
                report_progress(f"{tool['name']}: {'available' if self.check else 'installed'}")
                return _outcome(tool, INSTALLED, version=version, source=source, why=why, changed=True)
            except (WorkstationError, OSError) as error:
                failure = str(error)
        report_progress(f"{tool['name']}: missing")
        older, minimal = self._older(tool), str(tool.get("minimal", "0"))
        old = f"{older} is older than {minimal}; " if older and not new_enough(older, minimal) else ""
        return _outcome(tool, MISSING, why=f"{old}{reason}; {failure}", version=older)

    def _replaced(self, tool: Tool) -> tuple[str, str]:
        """Return the version behind our link, which undo notes, and what the new version replaces, in words."""
        path = self.machine.which(program_of(tool))
        if not path:
            return "", ""
        version = self.machine.version(tool, path) or "an unknown version"
        if path != self._link(tool):
            return "", f"takes precedence over {version} at {path}"
        if self.installer.record.owns(path):
            return version, f"replaces {version}, which stays beside it"
        return version, f"replaces {version}, which is kept"

    def _older(self, tool: Tool) -> str:
        path = self.machine.which(program_of(tool))
        return self.machine.version(tool, path) if path else ""

    def _link(self, tool: Tool) -> str:
        return os.path.join(self.installer.folders.bin, program_of(tool))


def _names(tools: Sequence[Tool]) -> str:
    return ", ".join(str(tool["name"]) for tool in tools)


def _outcome(tool: Tool, state: str, **more: Any) -> Outcome:
    flags = {name: bool(tool.get(name)) for name in ("required", "optional")}
    return Outcome(tool=str(tool["name"]), state=state, **{**flags, **more})
