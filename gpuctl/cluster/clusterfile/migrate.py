"""Migrate a cluster file of the older layout (EldritchJS/ml-dev-env): comments are kept, changes are reported."""

from __future__ import annotations

import itertools
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import yaml

from gpuctl.cluster.clusterfile import legacy
from gpuctl.cluster.clusterfile.fields import walk
from gpuctl.cluster.clusterfile.model import Cluster
from gpuctl.cluster.clusterfile.read import EMPTY, parse
from gpuctl.cluster.clusterfile.yaml_edit import Lines, children, last_line
from gpuctl.core.errors import GpuctlError, InvalidInput
from gpuctl.core.paths import write_atomically
from gpuctl.core.strict_yaml import Mistake, read

# Paths of today's layout: a file may be migrated in part already.
KNOWN = frozenset(
    ".".join(path.split(".")[:count]) for path, _, _ in walk(Cluster) for count in range(1, path.count(".") + 2)
)
SECTIONS = ("cluster", "nodes", "storage", "network", "network.rdma", "network.tcp", "security", "gpus", "nccl")
HAVE_MORE = ("cluster.api", "network.rdma.enabled")
ENVIRONMENT = "network.rdma.environment"


@dataclass(frozen=True)
class Added:
    """Values that the older layout lacks. `resources`: the adapters' resources, with the number per pod."""

    flavour: str = "openshift"
    image: str = ""
    resources: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True)
class Migrated:
    """The new file, the changes with their reasons, and the mistakes that remain."""

    text: str
    notes: tuple[str, ...]
    left: tuple[Mistake, ...]


def migrate(path: Path, added: Added = Added()) -> Migrated:
    """Return the migrated text of a file, which is not changed; raises `InvalidInput` if it is invalid or current."""
    doing = f"migrate {path}"
    mistakes: list[Mistake] = []
    read(path, mistakes, EMPTY)  # duplicate keys, aliases: the meaning is ambiguous
    if mistakes:
        raise InvalidInput(doing, "\n  ".join(map(str, mistakes)), "correct it first")
    if not parse(path).mistakes:
        raise InvalidInput(doing, "it is in today's layout already", f"`gpuctl cluster show {path}` shows it")
    lines = Lines(path.read_text())
    _Move(lines, added).all()
    text = lines.text()
    return Migrated(text, tuple(lines.notes), _left(path, text))


def replace(path: Path, text: str) -> Path:
    """Replace the file atomically; returns the path of the kept old file."""
    old = next(kept for kept in _names_for_old(path) if not kept.exists())
    doing = f"replace {path}"
    try:
        # A link, so that the old file exists under both names until the new one replaces it.
        old.hardlink_to(path)
        mode = path.stat().st_mode
        write_atomically(path, text)
        path.chmod(mode)
    except OSError as error:
        raise GpuctlError(doing, error.strerror or str(error), "without --write it is printed") from error
    return old


def _names_for_old(path: Path) -> Iterator[Path]:
    yield path.with_name(f"{path.name}.old")
    yield from (path.with_name(f"{path.name}.old.{number}") for number in itertools.count(1))


def _left(path: Path, text: str) -> tuple[Mistake, ...]:
    """Return the mistakes in the new text, with its lines."""
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder) / path.name
        copy.write_text(text)
        mistakes = parse(copy).mistakes
    return tuple(mistake._replace(where=mistake.where.replace(str(copy), str(path))) for mistake in mistakes)


class _Move:
    """Walks through an older file and decides the replacement of each line."""

    def __init__(self, lines: Lines, added: Added) -> None:
        self.lines, self.added = lines, added
        enabled = self._value("network", "rdma", "enabled")
        self.rdma = isinstance(enabled, yaml.ScalarNode) and enabled.value.lower() == "true"
        self.variables: list[str] = []

    def _value(self, *path: str) -> yaml.Node | None:
        node: yaml.Node | None = self.lines.top
        for name in path:
            node = next((value for key, value in children(node) if key.value == name), None) if node else None
        return node

    def all(self) -> None:
        self.mapping(self.lines.top, "")
        if self.added.image and self._value("image") is None:
            self.lines.at_end += ["", "image:", f"  name: {self.added.image}"]
        elif self._value("image") is None:
            self.lines.notes.append("image: the older layout did not have it: --image, or add `image: {name: …}`")

    def mapping(self, node: yaml.Node, path: str) -> None:
        for key, value in children(node):
            child = f"{path}.{key.value}" if path else key.value
            if child in SECTIONS and isinstance(value, yaml.MappingNode) and not value.flow_style:
                self.section(key, value, child)
            elif child == "nodes.gpu_nodes":
                self.nodes(key, value)
            elif child == "resources":
                self.resources(value)
            else:
                self.field(key, value, child)

    def section(self, key: yaml.ScalarNode, value: yaml.MappingNode, path: str) -> None:
        """Migrate a section's fields; a section without remaining fields is removed."""
        self.mapping(value, path)
        if all(self.lines.is_gone(name.start_mark.line) for name, _ in children(value)):
            self.lines.put(key.start_mark.line)

    def nodes(self, key: yaml.ScalarNode, value: yaml.Node) -> None:
        """Remove an empty list: omitting it has the same meaning today."""
        if not value.value:
            self.lines.put(key.start_mark.line)

    def field(self, key: yaml.ScalarNode, value: yaml.Node, path: str) -> None:
        """Migrate a single field."""
        line, name = key.start_mark.line, path.rpartition(".")[2]
        if path.startswith("network.rdma.") and name in legacy.TO_VARIABLES and isinstance(value, yaml.ScalarNode):
            self.variable(key, f"{legacy.TO_VARIABLES[name]}: {value.value}")
            return
        new = legacy.becomes(legacy.Old(path, value.value, self.rdma)) if isinstance(value, yaml.ScalarNode) else None
        if new is None and path in KNOWN:
            return
        if new is None:
            self.lines.note(line, path, "does not exist today; it is kept as a comment")
            self.lines.comment_out(key, value)
            return
        if new.note:
            self.lines.note(line, path, new.note)
        if new.value is None:
            self.lines.comment_out(key, value)
        elif new.value != value.value or _quoted_number(value) or path in HAVE_MORE:
            texts = self.written(key, value, [f"{name}: {new.value}", *self.additions(path)])
            for number in range(line, last_line(value) + 1):  # a quoted text may continue on the next lines
                self.lines.put(number)
            self.lines.put(line, *texts)

    def additions(self, path: str) -> list[str]:
        """Return fields to add next to this one: the older layout lacked them, and the file does not have them yet."""
        if path == "cluster.api" and self._value("cluster", "flavour") is None:
            self.lines.notes.append(f"cluster.flavour: {self.added.flavour}; the older layout did not have it")
            return [f"flavour: {self.added.flavour}"]
        return [*self.fabric(), *self.adapters()] if path == "network.rdma.enabled" and self.rdma else []

    def fabric(self) -> list[str]:
        if self._value("network", "rdma", "fabric") is not None:
            return []
        self.lines.notes.append("network.rdma.fabric: roce; the older layout did not have it, so this is a guess")
        return ["fabric: roce"]

    def adapters(self) -> list[str]:
        if self._value("network", "rdma", "resources") is not None:
            return []
        if not self.added.resources:
            self.lines.notes.append("network.rdma.resources: the older layout did not have them: --resource NAME=COUNT")
            return []
        return ["resources:", *(f"  {name}: {count}" for name, count in self.added.resources.items())]

    def variable(self, key: yaml.ScalarNode, text: str) -> None:
        """Collect variables below the first of them."""
        line = key.start_mark.line
        self.lines.put(line)
        self.lines.note(line, "network.rdma", f"{key.value} is now a variable of {ENVIRONMENT}")
        first = not self.variables
        self.variables.append(text)
        if first:
            self.first = line
        indent = " " * key.start_mark.column
        self.lines.put(self.first, f"{indent}environment:", *(f"{indent}  {variable}" for variable in self.variables))

    def written(self, key: yaml.ScalarNode, value: yaml.Node, texts: list[str]) -> list[str]:
        """Return lines with the key's indentation, and the rest of the value's line."""
        indent, behind = " " * key.start_mark.column, self.lines.lines[last_line(value)][value.end_mark.column :]
        first, *others = texts
        return [f"{indent}{first}{behind}", *(f"{indent}{line}" for line in others)]

    def resources(self, node: yaml.Node) -> None:
        """Use the older limits: a pod's requests equal its limits today."""
        requests, limits = self._value("resources", "requests"), self._value("resources", "limits")
        for key, value in children(node):
            if key.value == "limits" or (key.value == "requests" and limits is None):
                self.raised(key, value)
            elif key.value == "requests":
                self.lines.comment_out(key, value)
            else:
                self.field(key, value, f"resources.{key.value}")
        if requests is not None and limits is not None and _plain(requests) != _plain(limits):
            self.lines.note(requests.start_mark.line, "resources", "requests equal limits now")

    def raised(self, key: yaml.ScalarNode, value: yaml.Node) -> None:
        """Move the fields of `limits` up by one section."""
        indent = " " * key.start_mark.column
        self.lines.put(key.start_mark.line)
        for name, limit in children(value):
            text = f"{indent}{name.value}: {limit.value}"
            if limit.start_mark.line == key.start_mark.line:
                self.lines.changed[key.start_mark.line].append(text)
            else:
                self.lines.put(name.start_mark.line, text)


def _quoted_number(value: yaml.Node) -> bool:
    return isinstance(value, yaml.ScalarNode) and value.style is not None and value.value.isdecimal()


def _plain(node: yaml.Node) -> dict[str, str]:
    return {key.value: value.value for key, value in children(node)}
