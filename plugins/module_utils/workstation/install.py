"""Install tools that no package provides: versions side by side, and a link to the one in use."""

from __future__ import annotations

import contextlib
import os
import tempfile
from collections.abc import Mapping
from typing import Any

from .fetch import address
from .interruption import unfinished
from .machine import Machine
from .model import Folders, WorkstationError, program_of
from .record import Record, remove_tree
from .sources import by_npm, by_pip, by_release, npm_program

_WHOLE = ".whole"  # marks the folder of a completely installed version


class Installer:
    """Installs from a release archive, into a virtual environment or an npm prefix, or links gpuctl itself."""

    def __init__(self, machine: Machine, folders: Folders, record: Record, mirror: str) -> None:
        self.machine, self.folders, self.record, self.mirror = machine, folders, record, mirror

    def target(self, tool: Mapping[str, Any]) -> str:
        """Return the path of the program in its version's folder; empty if gpuctl does not install it."""
        kind = _kind(tool)
        if kind == "this":
            return self.folders.gpuctl
        inside = {"release": program_of(tool), "pip": f"bin/{program_of(tool)}"}.get(kind, "")
        inside = npm_program(tool) if kind == "npm" else inside
        return os.path.join(self._folder(tool), inside) if inside else ""

    def version(self, tool: Mapping[str, Any]) -> str:
        return "" if _kind(tool) == "this" else str(tool[_kind(tool)]["version"])

    def origin(self, tool: Mapping[str, Any]) -> str:
        """Describe the source in words: an address, or the package index and package."""
        kind = _kind(tool)
        if kind == "this":
            return self.folders.gpuctl
        if kind == "release":
            return address(tool["release"], self.machine.os, self.machine.arch, self.mirror)
        return {"pip": "PyPI", "npm": "npm"}[kind] + f" {tool[kind]['package']}"

    def why_not(self, tool: Mapping[str, Any], check: bool) -> str:
        """Return the reason why the tool cannot be installed; empty if it can."""
        kind = _kind(tool)
        if not kind or (kind == "this" and not self.folders.gpuctl):
            return str(tool.get("by_hand") or "no release is pinned")
        if kind == "npm" and not self.machine.which("npm"):
            return "npm is not installed (the package npm or nodejs)"
        if kind in _HASHES and not tool[kind].get(_HASHES[kind]):
            return f"its row has no {_HASHES[kind]}, and nothing is installed without verification"
        if kind == "release" and not self._pin(tool):
            return f"no sha256 of {self.version(tool)} for {self.machine.os}/{self.machine.arch} is pinned"
        return self._trial_error(tool) if kind != "this" and check else ""

    def install(self, tool: Mapping[str, Any], was: str) -> None:
        """Install the desired version beside the others and point the link at it; `was` is the replaced version."""
        if _kind(tool) != "this" and not os.path.exists(os.path.join(self._folder(tool), _WHOLE)):
            self._install_version(tool)
        link = os.path.join(self.folders.bin, program_of(tool))
        if os.path.isdir(link) and not os.path.islink(link):
            raise WorkstationError(f"{link} is a folder")
        self.record.make_folders(self.folders.bin)
        self.record.link(link, self.target(tool), was)

    def _install_version(self, tool: Mapping[str, Any]) -> None:
        folder = self._folder(tool)
        versions = os.path.dirname(folder)
        self.record.make_folders(self.folders.tools)
        self.record.add_tool(versions)
        remove_tree(folder)  # left by a killed run
        os.makedirs(folder, 0o755)
        try:
            self._fill(tool, folder)
            with open(os.path.join(folder, _WHOLE), "w", encoding="utf-8"):
                pass
        except BaseException:
            remove_tree(folder)
            with contextlib.suppress(OSError):
                os.rmdir(versions)  # unless it contains other versions
                self.record.drop_tool(versions)
            raise

    def _fill(self, tool: Mapping[str, Any], folder: str, aside: bool = False) -> None:
        kind = _kind(tool)
        around = () if aside else (os.path.dirname(folder), self.folders.tools)
        with unfinished(folder, *around):
            if kind == "release":
                by_release(self.machine, tool, self.origin(tool), self._pin(tool), folder)
            elif kind == "pip":
                by_pip(self.machine, tool, folder)
            else:
                by_npm(self.machine, tool, folder, may_run=not aside)

    def _trial_error(self, tool: Mapping[str, Any]) -> str:
        """Install into a temporary folder and discard it, to prove in a check that the real run would succeed."""
        if os.path.exists(os.path.join(self._folder(tool), _WHOLE)):
            return ""
        try:
            with tempfile.TemporaryDirectory() as aside:
                self._fill(tool, aside, aside=True)
        except WorkstationError as error:
            return str(error)
        return ""

    def _pin(self, tool: Mapping[str, Any]) -> str:
        return str(tool["release"].get("pins", {}).get(f"{self.machine.os}/{self.machine.arch}", ""))

    def _folder(self, tool: Mapping[str, Any]) -> str:
        return os.path.join(self.folders.tools, str(tool["name"]), self.version(tool))


_HASHES = {"pip": "hashes", "npm": "integrity"}


def _kind(tool: Mapping[str, Any]) -> str:
    return next((kind for kind in ("release", "pip", "npm", "this") if kind in tool), "")
