"""YAML whose every part knows its line. All scalars stay text: what a value means is for its knob to say."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path
from typing import Any, NamedTuple

import yaml

LOADER = getattr(yaml, "CBaseLoader", yaml.BaseLoader)
PLAIN_TAGS = frozenset(f"tag:yaml.org,2002:{kind}" for kind in ("str", "seq", "map"))


class Mistake(NamedTuple):
    """A mistake in a file: where it is, what is wrong, what to try."""

    where: str
    wrong: str
    hint: str = ""

    def __str__(self) -> str:
        return f"{self.where}: {self.wrong}" + (f"; {self.hint}" if self.hint else "")


@dataclass(frozen=True)
class Node:
    """A text, a list or a mapping, and where it stands."""

    value: str | list[Node] | dict[str, Node]
    where: str

    def plain(self) -> Any:
        """The value without lines."""
        if isinstance(self.value, list):
            return [item.plain() for item in self.value]
        if isinstance(self.value, dict):
            return {key: item.plain() for key, item in self.value.items()}
        return self.value


def read(path: Path, mistakes: list[Mistake]) -> Node | None:
    """A file's content; None, with the reason among the mistakes, where it is no YAML."""
    try:
        found = yaml.compose(path.read_text(encoding="utf-8"), Loader=LOADER)
    except OSError as error:
        mistakes.append(Mistake(str(path), f"cannot be read: {error.strerror}"))
    except UnicodeDecodeError:
        mistakes.append(Mistake(str(path), "is not UTF-8 text"))
    except yaml.MarkedYAMLError as error:
        line = error.problem_mark.line + 1 if error.problem_mark else 1
        mistakes.append(Mistake(f"{path}:{line}", f"is not YAML: {error.problem}", "look at indentation and quotes"))
    except yaml.YAMLError as error:
        mistakes.append(Mistake(str(path), f"is not YAML: {' '.join(str(error).split())}"))
    else:
        if found is not None:
            return _Walk(path, mistakes).node(found)
        mistakes.append(Mistake(str(path), "is empty", "give it `knobs:` or `extends:`"))
    return None


def from_plain(value: object, where: str = "") -> Node:
    """The same for values that are here already, such as a playbook's; "where" is then the way to the value."""
    if isinstance(value, Mapping):
        inside = f"{where}." if where else ""
        return Node({str(key): from_plain(item, f"{inside}{key}") for key, item in value.items()}, where or "profile")
    if isinstance(value, Sequence) and not isinstance(value, str):
        return Node([from_plain(item, f"{where}[{number}]") for number, item in enumerate(value)], where)
    if isinstance(value, bool):  # a playbook's YAML has read on and off as true and false
        return Node("on" if value else "off", where)
    return Node("" if value is None else str(value), where)


class _Walk:
    """Turns composed YAML into nodes, refusing what makes a file say something else than it seems to."""

    def __init__(self, path: Path, mistakes: list[Mistake]) -> None:
        self.path = path
        self.mistakes = mistakes
        self.seen: set[int] = set()

    def node(self, found: yaml.Node) -> Node:
        where = f"{self.path}:{found.start_mark.line + 1}"
        if id(found) in self.seen:
            self.mistakes.append(Mistake(where, "is used again by an alias (*name)", "write it out"))
            return Node("", where)
        self.seen.add(id(found))
        if found.tag not in PLAIN_TAGS:
            self.mistakes.append(Mistake(where, f"has the tag {found.tag}", "leave it out; write the value alone"))
        if isinstance(found, yaml.SequenceNode):
            return Node([self.node(item) for item in found.value], where)
        if isinstance(found, yaml.MappingNode):
            return Node(self.mapping(found), where)
        return Node(str(found.value), where)

    def mapping(self, found: yaml.MappingNode) -> dict[str, Node]:
        items: dict[str, Node] = {}
        for key, value in found.value:
            where = f"{self.path}:{key.start_mark.line + 1}"
            if not isinstance(key, yaml.ScalarNode):
                self.mistakes.append(Mistake(where, "a list or mapping cannot be a name"))
            elif not key.value.strip():
                self.mistakes.append(Mistake(where, "a name is empty"))
            elif key.value in items:
                first = items[key.value].where.rpartition(":")[2]
                self.mistakes.append(Mistake(where, f"{key.value} is given twice, first on line {first}", "keep one"))
            else:
                node = self.node(value)
                # What stands below a name is found by the name's line, also where it starts a line later.
                items[key.value] = Node(node.value, where)
        return items


def did_you_mean(name: str, known: Sequence[str]) -> str:
    """A hint: the closest known name, or all of them."""
    close = get_close_matches(name, known, 1)
    return f"did you mean {close[0]}?" if close else f"it can be {', '.join(known)}" if known else ""
