"""Check variables of an inventory that become knobs: every mistake with file and line, before a host is touched."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from gpuctl import engine
from gpuctl.core.errors import InvalidInput
from gpuctl.core.strict_yaml import EmptyFile, Mistake, Node, read
from gpuctl.hosts.model import Target

# Variables, each with a module of the engine of that name and a page of documentation.
NAMES = {
    "gpu_settings": "docs/gpu-settings.md",
    "kubelet_resources": "docs/kubelet-resources.md",
    "slurm_gres": "docs/slurm-gres.md",
}
EMPTY = EmptyFile("file of variables", "")


def compiled(name: str, hosts: Sequence[Target], source: Path) -> dict[str, list[dict[str, Any]]]:
    """Host -> knobs of one of `NAMES`, for hosts that have the variable; `InvalidInput` with every mistake."""
    by_host: dict[str, list[dict[str, Any]]] = {}
    wrong: dict[str, list[Mistake]] = {}
    for host in hosts:
        value = getattr(host, name)
        if value is None:
            continue
        if "{{" in str(value):
            doing = f"use {name} of {host.name}"
            raise InvalidInput(
                doing, "it is a Jinja template; gpuctl cannot evaluate it", "write the values themselves"
            )
        mistakes: list[Mistake] = []
        by_host[host.name] = getattr(engine, name).from_variables(value, mistakes)
        if mistakes:
            wrong[host.name] = mistakes
    if wrong:
        hint = f"{NAMES[name]} lists the settings and their values"
        raise InvalidInput(f"use {name} of {source}", "\n  ".join(_lines(name, source, wrong)), hint)
    return by_host


def _lines(variable: str, source: Path, wrong: Mapping[str, Sequence[Mistake]]) -> list[str]:
    """Mistakes of the inventory's files with their lines; by host where they are in no plain file."""
    located: list[Mistake] = []
    for path in _files(source):
        folders = path.relative_to(source if source.is_dir() else source.parent).parts[:-1]
        for node in _nodes(path, variable, has_groups={"group_vars", "host_vars"}.isdisjoint(folders)):
            getattr(engine, variable).knobs(node, located)
    texts = [str(mistake) for mistake in dict.fromkeys(located)]
    known = "\n".join(texts)
    texts += [f"{host}: {m}" for host, mistakes in wrong.items() for m in mistakes if m.wrong not in known]
    return texts


def _files(source: Path) -> list[Path]:
    folder = source if source.is_dir() else source.parent
    below = [path for name in ("group_vars", "host_vars") for path in sorted((folder / name).rglob("*"))]
    top = sorted(folder.iterdir()) if source.is_dir() else [source]
    return [path for path in [*top, *below] if path.is_file() and path.suffix in ("", ".yml", ".yaml")]


def _nodes(path: Path, variable: str, *, has_groups: bool) -> Iterator[Node]:
    """Values of a variable anywhere in a YAML file; nothing for a file of another form.

    Names of groups and hosts, which are those at the top of a file that `has_groups`, and below children and hosts,
    are no variables.
    """
    root = read(path, [], EMPTY)
    due = [(root, has_groups)] if root is not None else []
    while due:
        node, are_names = due.pop()
        if isinstance(node.value, dict):
            for name, item in node.value.items():
                if name == variable and not are_names:
                    yield item
                else:
                    due.append((item, name in ("children", "hosts")))
        elif isinstance(node.value, list):
            due += [(item, False) for item in node.value]
