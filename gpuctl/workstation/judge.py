"""The exit code of a bootstrap."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from gpuctl.engine import MISSING


def exit_code(answer: Mapping[str, Any], requested: Collection[str] = ()) -> int:
    """Return 1 if a required or requested tool is missing or a file is in conflict, else 0."""
    missing = [tool for tool in answer.get("tools", []) if tool["state"] == MISSING and tool["tool"] in requested]
    return 1 if answer.get("failed_tools") or answer.get("conflicts") or missing else 0
