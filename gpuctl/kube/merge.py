"""Merge kubeconfig files by kubectl's rules: the first entry of a name wins, paths are relative to their file."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path

import yaml

from gpuctl.core.errors import InvalidInput

LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
LISTS = ("clusters", "contexts", "users")
# The fields that hold paths: list, mapping inside its entries, names.
PATHS: Mapping[str, tuple[str, tuple[str, ...]]] = {
    "clusters": ("cluster", ("certificate-authority",)),
    "users": ("user", ("client-certificate", "client-key", "tokenFile")),
}
MAX_DEPTH = 100  # far more than any real file
_STRING = "tag:yaml.org,2002:str"
EMPTY = "apiVersion: v1\nkind: Config\n"


def merged(files: Mapping[Path, str]) -> str:
    """Merge kubeconfig texts in order; YAML nodes are moved as they are, so quoting is preserved."""
    top = yaml.MappingNode("tag:yaml.org,2002:map", [])
    for path, text in files.items():
        _add(top, _read(path, text))
    return str(yaml.serialize(top)) if top.value else EMPTY


def placed(text: str, context: str, namespace: str) -> str:
    """Return the kubeconfig with this current context ("" keeps it) and namespace.

    If it has no such context, none is current: another one could be production.
    """
    top = _read(Path(), text)
    current = _value(top, "current-context")
    name = context or (str(current.value) if current is not None else "")
    entry = next((item for item in _entries(top, "contexts") if _name(item) == name), None)
    inner = _value(entry, "context")
    if not isinstance(inner, yaml.MappingNode):
        name = ""
    elif namespace:
        _put(inner, "namespace", namespace)
    _put(top, "current-context", name)
    return str(yaml.serialize(top))


def added(text: str, theirs: str) -> tuple[list[str], str]:
    """Return the names of entries missing in another kubeconfig ("context new-eu"), and a kubeconfig of only these."""
    top, known = _read(Path(), text), _read(Path(), theirs)
    names, lists = [], []
    for kind in LISTS:
        old = {_name(entry) for entry in _entries(known, kind)}
        new = [entry for entry in _entries(top, kind) if _name(entry) not in old]
        names += [f"{kind.removesuffix('s')} {_name(entry)}" for entry in new]
        lists.append((yaml.ScalarNode(_STRING, kind), yaml.SequenceNode("tag:yaml.org,2002:seq", new)))
    return names, EMPTY + str(yaml.serialize(yaml.MappingNode("tag:yaml.org,2002:map", lists)))


def _put(node: yaml.MappingNode, name: str, value: str) -> None:
    others = [pair for pair in node.value if pair[0].value != name]
    # kubectl takes 08 for a number, and y for a boolean.
    style = None if value[:1].isalpha() and len(value) > 1 else "'"
    key, text = (yaml.ScalarNode(_STRING, name), yaml.ScalarNode(_STRING, value, style=style))
    node.value = [*others, (key, text)]


def _read(path: Path, text: str) -> yaml.MappingNode:
    doing = f"read the kubeconfig {path}"
    try:
        node = yaml.compose(text, Loader=LOADER)
    except yaml.YAMLError as error:
        raise InvalidInput(doing, f"it is not YAML: {' '.join(str(error).split())}") from error
    if node is None:
        return yaml.MappingNode("tag:yaml.org,2002:map", [])
    if not isinstance(node, yaml.MappingNode):
        raise InvalidInput(doing, "it is not a mapping")
    if _is_too_deep(node):
        raise InvalidInput(doing, "it is nested too deeply", "look for stray brackets")
    for kind, (inner, names) in PATHS.items():
        for entry in _entries(node, kind):
            _make_absolute(_value(entry, inner), names, path.parent)
            if kind == "users":
                _make_command_absolute(_value(_value(entry, inner), "exec"), path.parent)
    return node


def _is_too_deep(top: yaml.Node) -> bool:
    """True for a document that the library, which recurses, may not be able to write."""
    level, known = {id(top): top}, set[int]()
    for _ in range(MAX_DEPTH):
        known |= level.keys()
        level = {id(child): child for node in level.values() for child in _children(node) if id(child) not in known}
        if not level:
            return False
    return True


def _children(node: yaml.Node) -> Iterable[yaml.Node]:
    if isinstance(node, yaml.MappingNode):
        return [child for pair in node.value for child in pair]
    return node.value if isinstance(node, yaml.SequenceNode) else ()


def _add(top: yaml.MappingNode, more: yaml.MappingNode) -> None:
    for key, value in more.value:
        known = _value(top, key.value)
        if known is None or _is_empty(known):
            top.value = [pair for pair in top.value if pair[0].value != key.value]
            top.value.append((key, value))
        elif key.value in LISTS and isinstance(known, yaml.SequenceNode) and isinstance(value, yaml.SequenceNode):
            names = {_name(item) for item in known.value}
            known.value.extend(item for item in value.value if _name(item) not in names)


def _is_empty(node: yaml.Node) -> bool:
    return not node.value or (isinstance(node, yaml.ScalarNode) and node.value in ("null", "~"))


def _value(node: yaml.Node | None, name: str) -> yaml.Node | None:
    pairs = node.value if isinstance(node, yaml.MappingNode) else []
    return next((value for key, value in pairs if key.value == name), None)


def _name(entry: yaml.Node) -> str:
    name_node = _value(entry, "name")
    return str(name_node.value) if name_node is not None else ""


def _entries(node: yaml.MappingNode, kind: str) -> Iterable[yaml.Node]:
    entries = _value(node, kind)
    return entries.value if isinstance(entries, yaml.SequenceNode) else ()


def _make_absolute(node: yaml.Node | None, names: Iterable[str], folder: Path) -> None:
    for name in names:
        path_node = _value(node, name)
        if isinstance(path_node, yaml.ScalarNode) and path_node.value and path_node.value != "null":
            path_node.value = str(folder / path_node.value)


def _make_command_absolute(node: yaml.Node | None, folder: Path) -> None:
    """Resolve a login program relative to its file if its name contains a slash."""
    command = _value(node, "command")
    if isinstance(command, yaml.ScalarNode) and "/" in command.value:
        command.value = str(folder / command.value)
