"""A cluster file of the older layout (EldritchJS/ml-dev-env) in today's: its comments kept, every change told."""

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
from gpuctl.cluster.clusterfile.read import EMPTY, look
from gpuctl.cluster.clusterfile.yaml_edit import Lines, children, last_line
from gpuctl.core.errors import GpuctlError, InvalidInput
from gpuctl.core.paths import write_atomically
from gpuctl.core.strict_yaml import Mistake, read

# What today's layout knows: a file may be half way there already.
KNOWN = frozenset(
    ".".join(way.split(".")[:count]) for way, _, _ in walk(Cluster) for count in range(1, way.count(".") + 2)
)
SECTIONS = ("cluster", "nodes", "storage", "network", "network.rdma", "network.tcp", "security", "gpus", "nccl")
HAVE_MORE = ("cluster.api", "network.rdma.enabled")
ENVIRONMENT = "network.rdma.environment"


@dataclass(frozen=True)
class Added:
    """What the older layout did not say, and somebody does now. `resources`: of the adapters, and how many a pod."""

    flavour: str = "openshift"
    image: str = ""
    resources: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True)
class Migrated:
    """The new file; what was changed and why; and what still has to be mended in it."""

    text: str
    said: tuple[str, ...]
    left: tuple[Mistake, ...]


def migrate(path: Path, added: Added = Added()) -> Migrated:
    """Today's text for an older file, which is not touched; `InvalidInput` where it is no YAML, or new already."""
    doing = f"migrate {path}"
    mistakes: list[Mistake] = []
    read(path, mistakes, EMPTY)  # the same key twice, an alias: nobody can tell what the file meant
    if mistakes:
        raise InvalidInput(doing, "\n  ".join(map(str, mistakes)), "mend it first")
    if not look(path).mistakes:
        raise InvalidInput(doing, "it is in today's layout already", f"`gpuctl cluster show {path}` shows it")
    lines = Lines(path.read_text())
    _Move(lines, added).all()
    text = lines.text()
    return Migrated(text, tuple(lines.said), _left(path, text))


def replace(path: Path, text: str) -> Path:
    """Put the new text in the file's place, whole or not at all; where the old one is kept."""
    old = next(kept for kept in _names_for_old(path) if not kept.exists())
    doing = f"replace {path}"
    try:
        # A link, so that the old file is there under both names until the new one takes its place.
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
    """What is wrong with the new text, with its lines."""
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder) / path.name
        copy.write_text(text)
        found = look(copy).mistakes
    return tuple(mistake._replace(where=mistake.where.replace(str(copy), str(path))) for mistake in found)


class _Move:
    """Goes through an older file and says what becomes of each line."""

    def __init__(self, lines: Lines, added: Added) -> None:
        self.lines, self.added = lines, added
        found = self._value("network", "rdma", "enabled")
        self.rdma = isinstance(found, yaml.ScalarNode) and found.value.lower() == "true"
        self.variables: list[str] = []

    def _value(self, *way: str) -> yaml.Node | None:
        node: yaml.Node | None = self.lines.top
        for name in way:
            node = next((value for key, value in children(node) if key.value == name), None) if node else None
        return node

    def all(self) -> None:
        self.mapping(self.lines.top, "")
        if self.added.image and self._value("image") is None:
            self.lines.at_end += ["", "image:", f"  name: {self.added.image}"]
        elif self._value("image") is None:
            self.lines.said.append("image: the older layout did not name it: --image, or add `image: {name: …}`")

    def mapping(self, node: yaml.Node, path: str) -> None:
        for key, value in children(node):
            here = f"{path}.{key.value}" if path else key.value
            if here in SECTIONS and isinstance(value, yaml.MappingNode) and not value.flow_style:
                self.section(key, value, here)
            elif here == "nodes.gpu_nodes":
                self.nodes(key, value)
            elif here == "resources":
                self.resources(value)
            else:
                self.one(key, value, here)

    def section(self, key: yaml.ScalarNode, value: yaml.MappingNode, here: str) -> None:
        """Its fields; where none of them is left, it goes, too."""
        self.mapping(value, here)
        if all(self.lines.is_gone(name.start_mark.line) for name, _ in children(value)):
            self.lines.put(key.start_mark.line)

    def nodes(self, key: yaml.ScalarNode, value: yaml.Node) -> None:
        """Today a list that is left out says what an empty one said."""
        if not value.value:
            self.lines.put(key.start_mark.line)

    def one(self, key: yaml.ScalarNode, value: yaml.Node, here: str) -> None:
        """A single field."""
        line, name = key.start_mark.line, here.rpartition(".")[2]
        if here.startswith("network.rdma.") and name in legacy.TO_VARIABLES and isinstance(value, yaml.ScalarNode):
            self.variable(key, f"{legacy.TO_VARIABLES[name]}: {value.value}")
            return
        new = legacy.becomes(legacy.Old(here, value.value, self.rdma)) if isinstance(value, yaml.ScalarNode) else None
        if new is None and here in KNOWN:
            return
        if new is None:
            self.lines.say(line, here, "is not known today; it is left as a comment")
            self.lines.comment_out(key, value)
            return
        if new.said:
            self.lines.say(line, here, new.said)
        if new.value is None:
            self.lines.comment_out(key, value)
        elif new.value != value.value or _quoted_number(value) or here in HAVE_MORE:
            texts = self.written(key, value, [f"{name}: {new.value}", *self.more(here)])
            for number in range(line, last_line(value) + 1):  # a quoted text may go on below
                self.lines.put(number)
            self.lines.put(line, *texts)

    def more(self, here: str) -> list[str]:
        """What goes with a field that the older layout did not have, and the file does not have yet."""
        if here == "cluster.api" and self._value("cluster", "flavour") is None:
            self.lines.said.append(f"cluster.flavour: {self.added.flavour}; the older layout did not say it")
            return [f"flavour: {self.added.flavour}"]
        return [*self.fabric(), *self.adapters()] if here == "network.rdma.enabled" and self.rdma else []

    def fabric(self) -> list[str]:
        if self._value("network", "rdma", "fabric") is not None:
            return []
        self.lines.said.append("network.rdma.fabric: roce; the older layout did not say it, and this is a guess")
        return ["fabric: roce"]

    def adapters(self) -> list[str]:
        if self._value("network", "rdma", "resources") is not None:
            return []
        if not self.added.resources:
            self.lines.said.append("network.rdma.resources: the older layout did not name them: --resource NAME=COUNT")
            return []
        return ["resources:", *(f"  {name}: {count}" for name, count in self.added.resources.items())]

    def variable(self, key: yaml.ScalarNode, text: str) -> None:
        """Variables stand together below the first of them."""
        line = key.start_mark.line
        self.lines.put(line)
        self.lines.say(line, "network.rdma", f"{key.value} is now a variable of {ENVIRONMENT}")
        first = not self.variables
        self.variables.append(text)
        if first:
            self.first = line
        indent = " " * key.start_mark.column
        self.lines.put(self.first, f"{indent}environment:", *(f"{indent}  {each}" for each in self.variables))

    def written(self, key: yaml.ScalarNode, value: yaml.Node, texts: list[str]) -> list[str]:
        """Lines as indented as the key, and what stood behind the value on its line."""
        indent, behind = " " * key.start_mark.column, self.lines.lines[last_line(value)][value.end_mark.column :]
        first, *others = texts
        return [f"{indent}{first}{behind}", *(f"{indent}{each}" for each in others)]

    def resources(self, node: yaml.Node) -> None:
        """What a pod asks for is also its limit today: the older limits are taken."""
        asked, limits = self._value("resources", "requests"), self._value("resources", "limits")
        for key, value in children(node):
            if key.value == "limits" or (key.value == "requests" and limits is None):
                self.raised(key, value)
            elif key.value == "requests":
                self.lines.comment_out(key, value)
            else:
                self.one(key, value, f"resources.{key.value}")
        if asked is not None and limits is not None and _plain(asked) != _plain(limits):
            self.lines.say(asked.start_mark.line, "resources", "pods ask for their limits now, and keep them")

    def raised(self, key: yaml.ScalarNode, value: yaml.Node) -> None:
        """The fields of `limits` move up by one section."""
        indent = " " * key.start_mark.column
        self.lines.put(key.start_mark.line)
        for name, each in children(value):
            text = f"{indent}{name.value}: {each.value}"
            if each.start_mark.line == key.start_mark.line:
                self.lines.changed[key.start_mark.line].append(text)
            else:
                self.lines.put(name.start_mark.line, text)


def _quoted_number(value: yaml.Node) -> bool:
    return isinstance(value, yaml.ScalarNode) and value.style is not None and value.value.isdecimal()


def _plain(node: yaml.Node) -> dict[str, str]:
    return {key.value: value.value for key, value in children(node)}
