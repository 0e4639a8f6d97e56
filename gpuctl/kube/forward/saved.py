"""Saved forwards: one YAML file per name, for people to read and share."""

from __future__ import annotations

import re
from dataclasses import asdict
from pathlib import Path
from typing import Any

from gpuctl.core.errors import InvalidInput
from gpuctl.core.paths import config_dir, private, write_atomically
from gpuctl.core.strict_yaml import ANY_TEXT, At, EmptyFile, ListOf, Node, Section, Whole, did_you_mean, load_file
from gpuctl.kube.forward.model import Request

LISTS = ("remote", "local")
EMPTY = EmptyFile(
    "file of a saved forward", "add `remote:` ports and a `selector:` or `pod:`, or save the forward again"
)


def folder() -> Path:
    return config_dir() / "forwards"


def path(name: str) -> Path:
    """Return the file of a saved forward; `InvalidInput` if the name cannot be a file name."""
    if not re.fullmatch(r"[A-Za-z0-9][\w.-]*", name):
        raise InvalidInput(f"use {name!r} as a name", "a name has letters, digits, dots, dashes and underscores")
    return folder() / f"{name}.yml"


def names() -> list[str]:
    return sorted(file.stem for file in folder().glob("*.yml"))


def save(name: str, request: Request) -> Path:
    """Save a request under a name; replaces an earlier one of that name."""
    import yaml

    values = {key: list(value) if key in LISTS else value for key, value in asdict(request).items() if value}
    file = path(name)
    private(folder())
    write_atomically(file, yaml.safe_dump(values, sort_keys=False))
    return file


def load(name: str) -> Request:
    """Return a saved request; `InvalidInput` lists every mistake in its file."""
    file = path(name)
    if not file.is_file():
        hint = did_you_mean(name, names()) or "`--save NAME` saves one"
        raise InvalidInput(f"use the forwards {name!r}", "none are saved under that name", hint)
    request: Request = load_file(file, SCHEMA, "use the saved forwards", EMPTY)
    return request


def _request(values: dict[str, Any], node: Node, at: At) -> Request | None:
    if bool(values.get("selector")) == bool(values.get("pod")):
        at.refuse(node, "needs either selector or pod")
    if not values.get("remote"):
        at.refuse(node, "has no remote ports")
    if values.get("selector") and not values.get("first"):
        at.refuse(node, "has a selector but no first local port for its pods")
    if "local" in values and len(values["local"]) != len(values.get("remote", ())):
        at.refuse(node, "needs as many local as remote ports")
    return None if at.mistakes.items else Request(**values)


_PORT = Whole(1, 65535)
SCHEMA = Section(
    {
        **dict.fromkeys(("selector", "pod", "context", "namespace"), ANY_TEXT),
        "first": _PORT,
        "remote": ListOf(_PORT, "ports", may_be_empty=True),
        "local": ListOf(Whole(0, 65535), "ports", may_be_empty=True),  # 0: any free port
    },
    make=_request,
)
