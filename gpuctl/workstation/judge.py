"""The exit code of a bootstrap."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from gpuctl.engine import MISSING


def missing_tools(answer: Mapping[str, Any], requested: Collection[str] = (), strict: bool = False) -> list[str]:
    """Return the missing tools that count: all with `strict`, else those that are requested or not optional."""
    missing = [tool for tool in answer.get("tools", []) if tool["state"] == MISSING]
    return [str(tool["tool"]) for tool in missing if strict or tool["tool"] in requested or not tool["optional"]]


def exit_code(answer: Mapping[str, Any], requested: Collection[str] = (), strict: bool = False) -> int:
    """Return 1 if a tool that counts is missing, or a file was not written or is in conflict, else 0."""
    return 1 if answer.get("conflicts") or _unwritten(answer) or missing_tools(answer, requested, strict) else 0


def _unwritten(answer: Mapping[str, Any]) -> list[str]:
    """Return the shell files into which the gpuctl block could not be written."""
    return [str(file["path"]) for file in answer.get("files", []) if file["why"]]


def summary(answer: Mapping[str, Any]) -> str:
    """Return the last line of a run: that nothing has to change, what is missing, what was not written; or ""."""
    missing = [tool for tool in answer.get("tools", []) if tool["state"] == MISSING]
    names = ", ".join(f"{tool['tool']} (optional)" if tool["optional"] else str(tool["tool"]) for tool in missing)
    unwritten = ", ".join(_unwritten(answer))
    parts = {"missing": names, "not written": unwritten}
    problems = [f"{what}: {which}" for what, which in parts.items() if which]
    return "; ".join([*([] if answer["changed"] or unwritten else ["nothing to change"]), *problems])
