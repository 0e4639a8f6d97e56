"""The ways to have a tool other than a package: a release archive, its own virtual environment, its own npm prefix."""

from __future__ import annotations

import contextlib
import os
import sys
import tempfile
from collections.abc import Mapping
from typing import Any

from .fetch import address, fetch, program
from .machine import Machine
from .model import Place, Wrong, program_of
from .record import Record, put_file, remove_tree

_OWN_SECONDS = 300


class Own:
    """Versions lie side by side below the tools folder; a link in the bin folder names the one in use."""

    def __init__(self, machine: Machine, place: Place, record: Record, mirror: str) -> None:
        self.machine, self.place, self.record, self.mirror = machine, place, record, mirror

    def target(self, tool: Mapping[str, Any]) -> str:
        """Where the program of the wanted version lies once it is installed; empty where we install none."""
        kind = _kind(tool)
        if not kind:
            return ""
        inside = "" if kind == "release" else "bin"
        return os.path.join(self._folder(tool), inside, program_of(tool))

    def version(self, tool: Mapping[str, Any]) -> str:
        return str(tool[_kind(tool)]["version"])

    def origin(self, tool: Mapping[str, Any]) -> str:
        """Where it would come from, for people."""
        kind = _kind(tool)
        if kind == "release":
            return address(tool["release"], self.machine.os, self.machine.arch, self.mirror)
        return {"pip": "PyPI", "npm": "npm"}[kind] + f" {tool[kind]['package']}"

    def why_not(self, tool: Mapping[str, Any], check: bool) -> str:
        """Empty where we can install it ourselves, else why not."""
        kind = _kind(tool)
        if not kind:
            return str(tool.get("by_hand") or "no release of it is pinned")
        if kind == "npm":
            return "" if self.machine.which("npm") else "npm is not installed (the package npm or nodejs)"
        if kind == "release" and not self._pin(tool):
            return f"no sha256 of {self.version(tool)} for {self.machine.os}/{self.machine.arch} is pinned"
        return self._proved(tool) if kind == "release" and check else ""

    def install(self, tool: Mapping[str, Any]) -> None:
        """Put the wanted version beside the others and point the link at it."""
        target = self.target(tool)
        folder = self._folder(tool)
        if not os.path.exists(target):
            self.record.make_folders(self.place.tools)
            self.record.add_tool(os.path.dirname(folder))
            remove_tree(folder)  # what a killed run left
            os.makedirs(folder, 0o755)
            try:
                {"release": self._release, "pip": self._pip, "npm": self._npm}[_kind(tool)](tool, folder)
            except BaseException:
                remove_tree(folder)
                with contextlib.suppress(OSError):
                    os.rmdir(os.path.dirname(folder))  # unless other versions are in it
                raise
        self.record.make_folders(self.place.bin)
        link = os.path.join(self.place.bin, program_of(tool))
        if os.path.isdir(link) and not os.path.islink(link):
            raise Wrong(f"{link} is a folder")
        self.record.link(link, target)

    def _release(self, tool: Mapping[str, Any], folder: str) -> None:
        with tempfile.TemporaryDirectory(dir=os.path.dirname(folder)) as aside:
            archive = os.path.join(aside, "archive")
            fetch(self.origin(tool), self._pin(tool), archive)
            member = str(tool["release"].get("member", ""))
            words = {"version": self.version(tool), "os": self.machine.os, "arch": self.machine.arch}
            data = program(archive, member.format(**words))
        put_file(os.path.join(folder, program_of(tool)), data, 0o755)

    def _pip(self, tool: Mapping[str, Any], folder: str) -> None:
        python = self.machine.which("python3") or sys.executable
        made = self.machine.run(python, "-m", "venv", folder, limit=_OWN_SECONDS)
        if not made.ok:
            raise Wrong(f"no virtual environment could be made (Debian: the package python3-venv): {made.said}")
        wish = f"{tool['pip']['package']}=={tool['pip']['version']}"
        pip = [os.path.join(folder, "bin", "pip"), "install", "-q", "--disable-pip-version-check"]
        done = self.machine.run(*pip, "--timeout=10", "--retries=1", wish, limit=_OWN_SECONDS)
        if not done.ok:
            raise Wrong(f"pip cannot install {wish}: {done.said}")

    def _npm(self, tool: Mapping[str, Any], folder: str) -> None:
        wish = f"{tool['npm']['package']}@{tool['npm']['version']}"
        # What it keeps aside goes into its own folder, not into the user's home.
        quiet = ["--no-fund", "--no-audit", "--no-update-notifier", f"--cache={folder}/.npm"]
        patience = ["--fetch-timeout=10000", "--fetch-retries=1"]
        argv = ["npm", "install", "--global", f"--prefix={folder}", *quiet, *patience, wish]
        done = self.machine.run(*argv, limit=_OWN_SECONDS)
        remove_tree(os.path.join(folder, ".npm"))
        if not done.ok or not os.path.exists(self.target(tool)):
            raise Wrong(f"npm cannot install {wish}: {_npm_error(done.err) or done.said}")

    def _proved(self, tool: Mapping[str, Any]) -> str:
        """Fetch it to see that it is whole, and throw it away: a check that only asks for it could promise too much."""
        try:
            with tempfile.TemporaryDirectory() as aside:
                fetch(self.origin(tool), self._pin(tool), os.path.join(aside, "archive"))
        except Wrong as wrong:
            return str(wrong)
        return ""

    def _pin(self, tool: Mapping[str, Any]) -> str:
        return str(tool["release"].get("pins", {}).get(f"{self.machine.os}/{self.machine.arch}", ""))

    def _folder(self, tool: Mapping[str, Any]) -> str:
        return os.path.join(self.place.tools, str(tool["name"]), self.version(tool))


def _kind(tool: Mapping[str, Any]) -> str:
    return next((kind for kind in ("release", "pip", "npm") if kind in tool), "")


def _npm_error(said: str) -> str:
    lines = [line for line in said.splitlines() if "error" in line.lower() and "log" not in line]
    return lines[0] if lines else ""
