"""Check `gpu_settings` of an inventory's hosts: every mistake with file and line, before any host is touched."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from gpuctl import engine
from gpuctl.core.errors import InvalidInput
from gpuctl.core.strict_yaml import EmptyFile, Mistake, Node, read
from gpuctl.hosts.model import Target

NAME = "gpu_settings"
EMPTY = EmptyFile("file of variables", "")
HINT = "docs/gpu-settings.md lists the settings and their values"


def compiled(hosts: Sequence[Target], source: Path) -> dict[str, list[dict[str, Any]]]:
    """Host -> knobs of its gpu_settings, for hosts that have the variable; `InvalidInput` with every mistake."""
    by_host: dict[str, list[dict[str, Any]]] = {}
    wrong: dict[str, list[Mistake]] = {}
    for host in hosts:
        if host.gpu_settings is None:
            continue
        if "{{" in str(host.gpu_settings):
            doing = f"use {NAME} of {host.name}"
            raise InvalidInput(
                doing, "it is a Jinja template; gpuctl cannot evaluate it", "write the values themselves"
            )
        mistakes: list[Mistake] = []
        by_host[host.name] = engine.gpu_settings.from_variables(host.gpu_settings, mistakes)
        if mistakes:
            wrong[host.name] = mistakes
    if wrong:
        raise InvalidInput(f"use {NAME} of {source}", "\n  ".join(_lines(source, wrong)), HINT)
    return by_host


def _lines(source: Path, wrong: Mapping[str, Sequence[Mistake]]) -> list[str]:
    """Mistakes of the inventory's files with their lines; by host where they are in no plain file."""
    located: list[Mistake] = []
    for path in _files(source):
        for node in _nodes(path):
            engine.gpu_settings.knobs(node, located)
    texts = [str(mistake) for mistake in dict.fromkeys(located)]
    known = "\n".join(texts)
    texts += [f"{host}: {m}" for host, mistakes in wrong.items() for m in mistakes if m.wrong not in known]
    return texts


def _files(source: Path) -> list[Path]:
    folder = source if source.is_dir() else source.parent
    below = [path for name in ("group_vars", "host_vars") for path in sorted((folder / name).rglob("*"))]
    top = sorted(folder.iterdir()) if source.is_dir() else [source]
    return [path for path in [*top, *below] if path.is_file() and path.suffix in ("", ".yml", ".yaml")]


def _nodes(path: Path) -> Iterator[Node]:
    """Values of gpu_settings anywhere in a YAML file; nothing for a file of another form."""
    root = read(path, [], EMPTY)
    due = [root] if root is not None else []
    while due:
        node = due.pop()
        if isinstance(node.value, dict):
            yield from (item for name, item in node.value.items() if name == NAME)
            due += [item for name, item in node.value.items() if name != NAME]
        elif isinstance(node.value, list):
            due += node.value
