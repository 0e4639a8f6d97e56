"""Which exit code an answer makes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def exit_code(answer: Mapping[str, Any]) -> int:
    """1 where a tool that counts is missing or a file was left alone by undo, else 0."""
    return 1 if answer.get("failed_tools") or answer.get("conflicts") else 0
