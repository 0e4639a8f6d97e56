"""Render the collection's programs for nodes as text that any Python runs from standard input."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from gpuctl.engine import launch


def program(name: str, request: Mapping[str, object]) -> bytes:
    """Return the source of `start` or `sweep` with its request."""
    text = Path(launch.__path__[0], f"{name}.py").read_text()
    return f"{text}\n\nmain(json.loads({json.dumps(dict(request))!r}))\n".encode()


def answer(output: bytes, mark: str) -> dict[str, Any] | None:
    """Return the JSON after the mark in a node's output; None if there is none."""
    _, marker, rest = output.decode(errors="replace").rpartition("\n" + mark)
    try:
        value = json.loads(rest.partition("\n")[0]) if marker else None
    except ValueError:  # the connection was cut in the middle of it
        return None
    return value if isinstance(value, dict) else None
