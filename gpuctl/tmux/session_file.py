"""Read session.yml, reporting every mistake with its line, and write one for a save."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import MISSING, fields
from pathlib import Path
from typing import Any

import yaml

from gpuctl.core.strict_yaml import (
    ANY_TEXT,
    At,
    Choice,
    EmptyFile,
    Flag,
    ListOf,
    MappingOf,
    Node,
    Parsed,
    Schema,
    Section,
    Text,
    Whole,
    did_you_mean,
    load_file,
)
from gpuctl.tmux.session import Pane, Session, Window

EMPTY = EmptyFile("session file", "add `directory:` and `windows:`")


def read(path: Path) -> Session:
    """Return the session that a file describes; `InvalidInput` lists every mistake."""
    hint = "docs/tmux.md describes its keys"
    session: Session = load_file(path, SCHEMA, "use the session file", EMPTY, hint)
    return session


def text(session: Session) -> str:
    """Return a session as the text of a session file."""
    return yaml.safe_dump(_plain(session), sort_keys=False, allow_unicode=True, width=110)


def _plain(value: Any) -> Any:
    """Return plain values without fields that have their default."""
    if isinstance(value, (Session, Window, Pane)):
        values = {field.name: getattr(value, field.name) for field in fields(value)}
        defaults = {field.name: field.default for field in fields(value) if field.default is not MISSING}
        explicit = {name: item for name, item in values.items() if name not in defaults or item != defaults[name]}
        return {name: f"{item}%" if name == "size" else _plain(item) for name, item in explicit.items()}
    if isinstance(value, Mapping):
        return dict(value)
    return [_plain(item) for item in value] if isinstance(value, tuple) else value


class _Panes:
    """The panes of a window; `of` must name an earlier pane."""

    def read(self, node: Node, at: At) -> tuple[Pane, ...]:
        panes: tuple[Pane, ...] = _PANES.read(node, at)
        titles: list[str] = []
        for number, item in enumerate(node.value if isinstance(node.value, list) else []):
            split = _text_of(item, "of")
            if split and split not in titles:
                at.item(number).refuse(
                    item, f"splits {split!r}, but no earlier pane has that title", did_you_mean(split, titles)
                )
            titles.append(_text_of(item, "title"))
        return panes

    def schema(self) -> Schema:
        return _PANES.schema()


def _text_of(node: Node, name: str) -> str:
    item = node.value.get(name) if isinstance(node.value, dict) else None
    return item.value if item is not None and isinstance(item.value, str) else ""


def _pane(values: dict[str, Any], node: Node, at: At) -> Pane:
    if values.get("run") and values.get("repository"):
        at.refuse(node, "has both `run` and `repository`", "keep one")
    return Pane(**values)


_LINE = Parsed(lambda text: text if text.strip() and text.isprintable() else None, "text of one line")
_WORDS = ListOf(Text(r"[\s\S]+", "a word", empty=("",)), "words, such as [k9s, --readonly]")
_SWITCH = Flag({"true": True, "false": False})
_PANES = ListOf(
    Section(
        {
            **dict.fromkeys(("title", "directory", "repository", "install", "of", "context", "namespace"), _LINE),
            "run": _WORDS,
            "side": Choice(("right", "below")),
            "size": Whole(5, 95, "%"),
            "active": _SWITCH,
        },
        make=_pane,
    ),
    "panes",
)
_WINDOW = Section(
    {"name": _LINE, "layout": _LINE, "index": Whole(0, 999), "active": _SWITCH, "panes": _Panes()},
    ("name", "panes"),
    lambda values, _node, _at: Window(**values),
)
SCHEMA = Section(
    {
        "directory": _LINE,
        "restore": _WORDS,
        "git": MappingOf(ANY_TEXT, _LINE, may_be_empty=True),
        "template": _LINE,
        "windows": ListOf(_WINDOW, "windows"),
    },
    ("directory", "windows"),
    lambda values, _node, _at: Session(**values),
)
