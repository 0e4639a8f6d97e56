"""session.yml: read with every mistake and its line, and written for a save."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import MISSING, fields
from pathlib import Path
from typing import Any, TypeVar

import yaml
from ansible_collections.gpuctl.fleet.plugins.plugin_utils.strict_yaml import Mistake, Node, did_you_mean
from ansible_collections.gpuctl.fleet.plugins.plugin_utils.strict_yaml import read as read_yaml

from gpuctl.core.errors import InvalidInput
from gpuctl.tmux.session import Pane, Session, Window

T = TypeVar("T")


def read(path: Path) -> Session:
    """The session that a file describes; `InvalidInput` with every mistake in it."""
    mistakes: list[Mistake] = []
    empty = path.is_file() and not path.read_bytes().strip()
    node = None if empty else read_yaml(path, mistakes)
    found = _Reader(mistakes).session(node) if node else None
    if mistakes or found is None:
        wrong = "\n  ".join(map(str, mistakes)) or "it is empty"
        raise InvalidInput(f"use the session file {path}", wrong, "docs/tmux.md shows what it can hold")
    return found


def text(session: Session) -> str:
    """The file that describes a session."""
    return yaml.safe_dump(_plain(session), sort_keys=False, allow_unicode=True, width=110)


def _plain(value: Any) -> Any:
    """Only what is not as a reader would take it anyway."""
    if isinstance(value, (Session, Window, Pane)):
        own = {each.name: getattr(value, each.name) for each in fields(value)}
        usual = {each.name: each.default for each in fields(value) if each.default is not MISSING}
        kept = {name: item for name, item in own.items() if name not in usual or item != usual[name]}
        return {name: f"{item}%" if name == "size" else _plain(item) for name, item in kept.items()}
    if isinstance(value, Mapping):
        return dict(value)
    return [_plain(item) for item in value] if isinstance(value, tuple) else value


Fields = Mapping[str, Callable[[Node], object]]


class _Reader:
    """Turns nodes into values and notes what is wrong with them."""

    def __init__(self, mistakes: list[Mistake]) -> None:
        self.mistakes = mistakes

    def session(self, node: Node) -> Session | None:
        fields: Fields = {
            "directory": self.text,
            "restore": self.words,
            "git": self.settings,
            "template": self.text,
            "windows": lambda item: self.many(item, self.window, "windows"),
        }
        found = self.mapping(node, fields, needs=("directory", "windows"))
        return Session(**found) if found else None  # type: ignore[arg-type]

    def window(self, node: Node) -> Window | None:
        fields: Fields = {
            "name": self.text,
            "layout": self.text,
            "index": lambda item: self.number(item, 0, 999),
            "active": self.switch,
            "panes": self.panes,
        }
        found = self.mapping(node, fields, needs=("name", "panes"))
        return Window(**found) if found else None  # type: ignore[arg-type]

    def panes(self, node: Node) -> tuple[Pane, ...]:
        found = self.many(node, self.pane, "panes")
        for number, (pane, item) in enumerate(zip(found, node.value, strict=False)):
            before = [other.title for other in found[:number]]
            if pane.of and pane.of not in before:
                where = item.where if isinstance(item, Node) else node.where
                self.wrong(where, f"no pane before it has the title {pane.of!r}", did_you_mean(pane.of, before))
        return found

    def pane(self, node: Node) -> Pane | None:
        text = dict.fromkeys(("title", "directory", "repository", "install", "of", "context", "namespace"), self.text)
        fields: Fields = {
            **text,
            "run": self.words,
            "side": lambda item: self.choice(item, ("right", "below")),
            "size": self.percentage,
            "active": self.switch,
        }
        found = self.mapping(node, fields, needs=())
        if found and found.get("run") and found.get("repository"):
            self.wrong(node.where, "a pane has either `run` or `repository`")
        return Pane(**found) if found is not None else None  # type: ignore[arg-type]

    def mapping(self, node: Node, fields: Fields, needs: Sequence[str]) -> dict[str, object] | None:
        if not isinstance(node.value, dict):
            self.wrong(node.where, f"is not a mapping of {', '.join(fields)}")
            return None
        for name, item in node.value.items():
            if name not in fields:
                self.wrong(item.where, f"{name} is not known here", did_you_mean(name, list(fields)))
        missing = [name for name in needs if name not in node.value]
        for name in missing:
            self.wrong(node.where, f"{name} is missing")
        found = {name: fields[name](item) for name, item in node.value.items() if name in fields}
        return None if missing else found

    def many(self, node: Node, one: Callable[[Node], T | None], what: str) -> tuple[T, ...]:
        items = node.value if isinstance(node.value, list) else []
        if not items:
            self.wrong(node.where, f"is not a list of {what}")
        return tuple(found for item in items if (found := one(item)) is not None)

    def text(self, node: Node) -> str:
        if not isinstance(node.value, str) or not node.value.strip() or not node.value.isprintable():
            self.wrong(node.where, "is not a text of one line")
        return str(node.value)

    def words(self, node: Node) -> tuple[str, ...]:
        items = node.value if isinstance(node.value, list) else []
        if not items or not all(isinstance(item.value, str) and item.value for item in items):
            self.wrong(node.where, "is not a list of words, such as [k9s, --readonly]")
        return tuple(str(item.value) for item in items)

    def settings(self, node: Node) -> dict[str, str]:
        if not isinstance(node.value, dict):
            self.wrong(node.where, "is not a mapping of git's settings")
            return {}
        return {name: self.text(item) for name, item in node.value.items()}

    def number(self, node: Node, least: int, most: int) -> int:
        text = str(node.value)
        if not text.isdecimal() or not least <= int(text) <= most:
            self.wrong(node.where, f"{text!r} is not a number from {least} to {most}")
            return least
        return int(text)

    def percentage(self, node: Node) -> int:
        text = str(node.value)
        if not text.endswith("%"):
            self.wrong(node.where, f"{text!r} is not a percentage, such as 40%")
            return 50
        return self.number(Node(text[:-1], node.where), 5, 95)

    def choice(self, node: Node, known: Sequence[str]) -> str:
        if node.value not in known:
            self.wrong(node.where, f"{node.value!r} cannot be", did_you_mean(str(node.value), known))
        return str(node.value)

    def switch(self, node: Node) -> bool:
        return self.choice(node, ("true", "false")) == "true"

    def wrong(self, where: str, what: str, hint: str = "") -> None:
        self.mistakes.append(Mistake(where, what, hint))
