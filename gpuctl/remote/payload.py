"""The collection's programs for nodes as texts that any Python runs from standard input."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from gpuctl.engine import launch


def program(name: str, asked: Mapping[str, object]) -> bytes:
    """The text of `start` or `sweep` with what is asked of it."""
    text = Path(launch.__path__[0], f"{name}.py").read_text()
    return f"{text}\n\nmain(json.loads({json.dumps(dict(asked))!r}))\n".encode()


def answer(said: bytes, mark: str) -> dict[str, Any] | None:
    """The answer in what a node printed: the line with the mark; None where there is none."""
    _, found, rest = said.decode(errors="replace").rpartition("\n" + mark)
    try:
        told = json.loads(rest.partition("\n")[0]) if found else None
    except ValueError:  # the connection was cut in the middle of it
        return None
    return told if isinstance(told, dict) else None
