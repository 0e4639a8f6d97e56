"""Read a kubeconfig without contacting a cluster: contexts, the current one and its namespace."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from gpuctl.core.errors import InvalidInput

LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


@dataclass(frozen=True)
class Context:
    """A context: its cluster, user and namespace ("default" if it names none)."""

    name: str
    cluster: str
    user: str
    namespace: str


def files() -> list[Path]:
    """Return the existing files that kubectl would read: those of $KUBECONFIG, else ~/.kube/config."""
    named = os.environ.get("KUBECONFIG", "")
    paths = [Path(p) for p in named.split(os.pathsep) if p] or [Path.home() / ".kube/config"]
    return [path for path in paths if path.is_file()]


def current(*paths: Path) -> Context | None:
    """Return the current context; None if none is set. As in kubectl, the first file that sets it wins."""
    documents = [_read(path) for path in paths]
    name = next((str(document["current-context"]) for document in documents if document.get("current-context")), "")
    known = {context.name: context for document in reversed(documents) for context in _contexts(document)}
    return known.get(name)


def contexts(*paths: Path) -> list[Context]:
    """Return all contexts of these files, sorted by name; the first of several with one name wins."""
    known = {context.name: context for path in reversed(paths) for context in _contexts(_read(path))}
    return [known[name] for name in sorted(known)]


def _read(path: Path) -> Mapping[str, Any]:
    doing = f"read the kubeconfig {path}"
    try:
        document = yaml.load(path.read_text(), Loader=LOADER) or {}  # noqa: S506 - it is the safe loader, in C
    except OSError as error:
        raise InvalidInput(doing, error.strerror or str(error)) from error
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise InvalidInput(doing, f"it is not YAML: {' '.join(str(error).split())}") from error
    if not isinstance(document, dict):
        raise InvalidInput(doing, "it is not a mapping")
    listed = document.get("contexts") or []
    if not isinstance(listed, list) or not all(isinstance(item, dict) for item in listed):
        raise InvalidInput(doing, "its contexts are not a list of mappings")
    for item in listed:
        if not isinstance(item.get("context") or {}, dict):
            raise InvalidInput(doing, f"its context {item.get('name')} is not a mapping")
    return document


def _contexts(text: Mapping[str, Any]) -> list[Context]:
    listed = text.get("contexts") or []
    return [
        Context(
            str(item["name"]),
            str((item.get("context") or {}).get("cluster") or ""),
            str((item.get("context") or {}).get("user") or ""),
            str((item.get("context") or {}).get("namespace") or "default"),
        )
        for item in listed
        if item.get("name")
    ]
