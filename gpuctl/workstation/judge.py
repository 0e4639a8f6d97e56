"""Which exit code an answer makes."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from ansible_collections.gpuctl.fleet.plugins.module_utils.workstation.model import MISSING


def exit_code(answer: Mapping[str, Any], requested: Collection[str] = ()) -> int:
    """1 where a tool that counts, or one asked for by name, is missing, or a file was left alone by undo, else 0."""
    missing = [tool for tool in answer.get("tools", []) if tool["state"] == MISSING and tool["tool"] in requested]
    return 1 if answer.get("failed_tools") or answer.get("conflicts") or missing else 0
