"""Forwards kept by name, one YAML file each, for people to read and share."""

from __future__ import annotations

import re
from dataclasses import asdict
from pathlib import Path
from typing import Any

from ansible_collections.gpuctl.fleet.plugins.plugin_utils.strict_yaml import Mistake, Node, did_you_mean, read

from gpuctl.core.errors import InvalidInput
from gpuctl.core.paths import config_dir, private, write_atomically
from gpuctl.kube.forward.model import Request

TEXTS = ("selector", "pod", "context", "namespace")
NUMBERS = ("first",)
LISTS = ("remote", "local")


def folder() -> Path:
    return config_dir() / "forwards"


def path(name: str) -> Path:
    """The file of a name; `InvalidInput` where it cannot be one."""
    if not re.fullmatch(r"[A-Za-z0-9][\w.-]*", name):
        raise InvalidInput(f"use {name!r} as a name", "a name has letters, digits, dots, dashes and underscores")
    return folder() / f"{name}.yml"


def names() -> list[str]:
    return sorted(found.stem for found in folder().glob("*.yml"))


def save(name: str, request: Request) -> Path:
    """Keep a request under a name; one of that name is replaced."""
    import yaml

    kept = {key: list(value) if key in LISTS else value for key, value in asdict(request).items() if value}
    file = path(name)
    private(folder())
    write_atomically(file, yaml.safe_dump(kept, sort_keys=False))
    return file


def load(name: str) -> Request:
    """A kept request; `InvalidInput` with every mistake in its file."""
    file = path(name)
    if not file.is_file():
        hint = did_you_mean(name, names()) or "`--save NAME` keeps one"
        raise InvalidInput(f"use the forwards {name!r}", "none are kept under that name", hint)
    mistakes: list[Mistake] = []
    node = read(file, mistakes)
    given = _request(node, mistakes) if node else {}
    if node and not mistakes and (bool(given.get("selector")) == bool(given.get("pod")) or not given.get("remote")):
        mistakes.append(Mistake(node.where, "names not exactly one of selector and pod, or no remote ports"))
    if node and not mistakes and given.get("selector") and not given.get("first"):
        mistakes.append(Mistake(node.where, "says no first local port for the pods of its selector"))
    if node and not mistakes and len(given.get("local", given["remote"])) != len(given["remote"]):
        mistakes.append(Mistake(node.where, "has not as many local as remote ports"))
    if mistakes:
        raise InvalidInput(f"use {file}", "\n  ".join(map(str, mistakes)))
    return Request(**given)


def _request(node: Node, mistakes: list[Mistake]) -> dict[str, Any]:
    if not isinstance(node.value, dict):
        mistakes.append(Mistake(node.where, "is not a mapping"))
        return {}
    found: dict[str, Any] = {}
    for name, item in node.value.items():
        if name in TEXTS and isinstance(item.value, str):
            found[name] = item.value
        elif name in NUMBERS:
            found[name] = _port(item, mistakes)
        elif name in LISTS and isinstance(item.value, list):
            found[name] = tuple(_port(one, mistakes, least=0 if name == "local" else 1) for one in item.value)
        else:
            mistakes.append(
                Mistake(item.where, f"{name} cannot be read", did_you_mean(name, (*TEXTS, *NUMBERS, *LISTS)))
            )
    return found


def _port(node: Node, mistakes: list[Mistake], least: int = 1) -> int:
    text = node.value
    if isinstance(text, str) and text.isdigit() and least <= int(text) <= 65535:
        return int(text)
    mistakes.append(Mistake(node.where, f"{text!r} is no port"))
    return 0
