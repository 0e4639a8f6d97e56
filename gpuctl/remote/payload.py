"""Render the collection's programs for nodes as text that any Python runs from standard input."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from gpuctl.edges.ssh import Failure
from gpuctl.engine import answers, launch, typed_json


def program(name: str, request: Mapping[str, object]) -> bytes:
    """Return the source of `start` or `sweep` with its request."""
    text = Path(launch.__path__[0], f"{name}.py").read_text()
    return f"{text}\n\nmain(json.loads({json.dumps(dict(request))!r}))\n".encode()


def answer(output: bytes, mark: str, shape: object) -> Mapping[str, Any] | Failure:
    """Return the JSON after the mark in a node's output, as a type of `launch_answers`; or why there is none."""
    _, marker, rest = output.rpartition(b"\n" + mark.encode())
    return (
        read_answer(rest.partition(b"\n")[0].decode(errors="replace"), shape) if marker else Failure(answers.NO_ANSWER)
    )


def read_answer(text: str, shape: object) -> Mapping[str, Any] | Failure:
    """Return the JSON after a mark as a type; or why it is none."""
    try:
        value: Mapping[str, Any] = typed_json.read(typed_json.parse(text), shape)
        return value
    except typed_json.Misfit as error:
        return Failure(f"its answer makes no sense: {error}")
    except ValueError:  # the connection was cut in the middle of it
        return Failure("its answer is not valid JSON")
