"""YAML documents as nodes with lines. All scalars stay text: the schema decides on their types."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path
from typing import Any, NamedTuple

import yaml

LOADER = getattr(yaml, "CBaseLoader", yaml.BaseLoader)
PLAIN_TAGS = frozenset(f"tag:yaml.org,2002:{kind}" for kind in ("str", "seq", "map")) | {"!"}
# Far more than any real file; 50,000 brackets would crash the parser.
MAX_DEPTH = 50
DEPTH_OF_LIBYAML = "maximum nesting depth"  # of its message, since 0.2.6: it may read ahead of the events


class Mistake(NamedTuple):
    """A mistake in a file: its place, the problem, and a hint on what to try."""

    where: str
    wrong: str
    hint: str = ""

    def __str__(self) -> str:
        return f"{self.where}: {self.wrong}" + (f"; {self.hint}" if self.hint else "")


class EmptyFile(NamedTuple):
    """Terms to refuse an empty file of one type: its noun ("profile"), and a hint on what to write."""

    noun: str
    hint: str = ""


@dataclass(frozen=True)
class Node:
    """A text, a list or a mapping, and its place (`FILE:LINE`)."""

    value: str | list[Node] | dict[str, Node]
    where: str

    def plain(self) -> Any:
        """The value without lines."""
        if isinstance(self.value, list):
            return [item.plain() for item in self.value]
        if isinstance(self.value, dict):
            return {key: item.plain() for key, item in self.value.items()}
        return self.value


def read(path: Path, mistakes: list[Mistake], empty: EmptyFile) -> Node | None:
    """Read a file; None, with the reasons in `mistakes`, if it is not one plain YAML document.

    A file with only comments is empty: a mistake in the terms of `empty`.
    """
    try:
        root = _Builder(path, mistakes).document(path.read_text(encoding="utf-8"))
    except OSError as error:
        mistakes.append(Mistake(str(path), f"cannot be read: {error.strerror}"))
    except UnicodeDecodeError:
        mistakes.append(Mistake(str(path), "is not UTF-8 text"))
    except yaml.MarkedYAMLError as error:
        mistakes.append(_not_yaml(path, error))
    except yaml.YAMLError as error:  # its text has the useless place "in <unicode string>"
        problem = " ".join(str(error).partition('in "<')[0].split())
        mistakes.append(Mistake(str(path), f"is not YAML: {problem}"))
    except _TooDeepError as error:
        mistakes.append(_too_deep(str(error)))
    else:
        if root is None:
            mistakes.append(Mistake(str(path), f"is an empty {empty.noun}", empty.hint))
        return root
    return None


def from_plain(value: object, where: str = "") -> Node:
    """Nodes for parsed values, such as a playbook's; `where` is the path of the value."""
    if isinstance(value, Mapping):
        inside = f"{where}." if where else ""
        return Node({str(key): from_plain(item, f"{inside}{key}") for key, item in value.items()}, where or "profile")
    if isinstance(value, Sequence) and not isinstance(value, str):
        return Node([from_plain(item, f"{where}[{number}]") for number, item in enumerate(value)], where)
    if isinstance(value, bool):  # Ansible's YAML reads on and off as true and false
        return Node("on" if value else "off", where)
    return Node("" if value is None else str(value), where)


def _not_yaml(path: Path, error: yaml.MarkedYAMLError) -> Mistake:
    where = f"{path}:{error.problem_mark.line + 1 if error.problem_mark else 1}"
    if DEPTH_OF_LIBYAML in str(error.problem):
        return _too_deep(where)
    return Mistake(where, f"is not YAML: {error.problem}", "look at indentation and quotes")


def _too_deep(where: str) -> Mistake:
    return Mistake(where, f"is nested more than {MAX_DEPTH} levels deep", "look for stray brackets")


class _TooDeepError(Exception):
    """The document nests deeper than MAX_DEPTH; the message is the place."""


class _Builder:
    """Builds nodes from YAML events; refuses constructs by which a file is not what it seems."""

    def __init__(self, path: Path, mistakes: list[Mistake]) -> None:
        self.path = path
        self.mistakes = mistakes
        self.anchors: set[str] = set()

    def document(self, text: str) -> Node | None:
        events: Iterator[yaml.Event] = yaml.parse(text, Loader=LOADER)
        root = None
        documents = 0
        for event in events:
            if isinstance(event, yaml.DocumentStartEvent):
                documents += 1
                if documents > 1:
                    self._refuse(event, "starts a second document", "keep one document in the file")
                    return None
                content = next(events)
                if not _is_blank(content):
                    root = self._node(content, events, 0)
        return root

    def _node(self, event: Any, events: Iterator[yaml.Event], depth: int) -> Node:
        where = self._where(event)
        if depth > MAX_DEPTH:
            raise _TooDeepError(where)
        if isinstance(event, yaml.AliasEvent):
            self._refuse(event, f"is an alias (*{event.anchor})", "write the value out")
            return Node("", where)
        self._check(event)
        if isinstance(event, yaml.SequenceStartEvent):
            return Node([self._node(item, events, depth + 1) for item in _until(yaml.SequenceEndEvent, events)], where)
        if isinstance(event, yaml.MappingStartEvent):
            return Node(self._mapping(events, depth), where)
        return Node(str(event.value), where)

    def _check(self, event: Any) -> None:
        if event.tag is not None and event.tag not in PLAIN_TAGS:
            self._refuse(event, f"has the tag {event.tag}", "leave it out; write the value alone")
        if event.anchor is not None:
            if event.anchor in self.anchors:
                self._refuse(event, f"has the anchor &{event.anchor} of another value", "leave the anchors out")
            self.anchors.add(event.anchor)

    def _mapping(self, events: Iterator[yaml.Event], depth: int) -> dict[str, Node]:
        items: dict[str, Node] = {}
        for key in _until(yaml.MappingEndEvent, events):
            name = self._node(key, events, depth + 1).value
            node = self._node(next(events), events, depth + 1)
            if not isinstance(name, str):
                self._refuse(key, "a list or mapping cannot be a name")
            elif isinstance(key, yaml.AliasEvent):
                continue  # refused above
            elif not name.strip():
                self._refuse(key, "a name is empty")
            elif name in items:
                first = items[name].where.rpartition(":")[2]
                self._refuse(key, f"{name} is given twice, first on line {first}", "keep one")
            else:
                # The place of a value is the line of its name.
                items[name] = Node(node.value, self._where(key))
        return items

    def _where(self, event: Any) -> str:
        return f"{self.path}:{event.start_mark.line + 1}"

    def _refuse(self, event: yaml.Event, wrong: str, hint: str = "") -> None:
        self.mistakes.append(Mistake(self._where(event), wrong, hint))


def _until(end: type[yaml.Event], events: Iterator[yaml.Event]) -> Iterator[yaml.Event]:
    for event in events:
        if isinstance(event, end):
            return
        yield event


def _is_blank(event: yaml.Event) -> bool:
    """True if a document has no content, as after a lone `---`."""
    return isinstance(event, yaml.ScalarEvent) and event.value == "" and not event.style and event.tag is None


def did_you_mean(name: str, known: Sequence[str]) -> str:
    """A hint: the closest known name, or all of them."""
    close = get_close_matches(name, known, 1)
    return f"did you mean {close[0]}?" if close else f"it can be {', '.join(known)}" if known else ""
