"""Text of a kubelet's configuration, YAML or JSON: read some of its fields, and replace those, keeping the rest."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any, NamedTuple

from ..model import Unreadable

_KEY = re.compile(r"([A-Za-z]\w*)[ \t]*:(?=[ \t]|$)(.*)")
_INSIDE = re.compile(r"([ \t]+|- |-$|$)")  # a list may begin in the column of its key
_PAIR = re.compile(r"(?P<indent> +)(?P<key>[\w.\-/\"']+)[ \t]*:[ \t]+(?P<value>[^\s{\[|>&*!].*)")
_COMMENT = re.compile(r"(^|[ \t]+)#.*")


class NotPlain(str):
    """Text of a field that is more than a word or a flat mapping."""


class Block(NamedTuple):
    """Lines of one field of the file, or lines between fields (`key` "")."""

    key: str
    lines: tuple[str, ...]


def is_json(text: str) -> bool:
    return text.lstrip().startswith("{")


def fields(text: str, where: str) -> dict[str, Any]:
    """The file's fields; those of another form than a word or a flat mapping are `NotPlain`.

    `Unreadable` if the file is not a list of fields.
    """
    if is_json(text):
        return _json(text, where)
    return {block.key: _value(block) for block in _blocks(text, where) if block.key}


def texts(text: str, where: str) -> dict[str, str]:
    """Each field's text: its lines, or its value as JSON in a file of JSON."""
    if is_json(text):
        return {key: json.dumps(value) for key, value in _json(text, where).items()}
    return {block.key: _ended("".join(block.lines)) for block in _blocks(text, where) if block.key}


def written(text: str, key: str, value: Any) -> str:
    """A field's text, as `texts` has it, for a value in this file."""
    return json.dumps(value) if is_json(text) else f"{key}: {json.dumps(value)}\n"


def replaced(text: str, changes: Mapping[str, str | None], where: str) -> str:
    """The file with other texts for some fields; None removes a field.

    `Unreadable` if the file would not read as meant: a text may be of the file's earlier form.
    """
    after = _replaced_json(text, changes, where) if is_json(text) else _replaced_yaml(text, changes, where)
    due = {**texts(text, where), **changes}
    if texts(after, where) != {key: value for key, value in due.items() if value is not None}:
        raise Unreadable(f"{where} would not read as meant after the change of {', '.join(changes)}")
    return after


def _replaced_yaml(text: str, changes: Mapping[str, str | None], where: str) -> str:
    due = dict(changes)
    parts: list[str] = []
    for block in _blocks(text, where):
        part = due.pop(block.key) if block.key in due else "".join(block.lines)
        parts += [_ended(part)] if part else []
    return "".join([*parts, *(_ended(part) for part in due.values() if part)])


def _ended(text: str) -> str:
    return text if text.endswith("\n") else f"{text}\n"


def _json(text: str, where: str) -> dict[str, Any]:
    try:
        return dict(json.loads(text))
    except (ValueError, TypeError) as error:
        raise Unreadable(f"{where} is neither JSON nor plain YAML: {error}") from error


def _replaced_json(text: str, changes: Mapping[str, str | None], where: str) -> str:
    whole = _json(text, where)
    for key, value in changes.items():
        if value is None:
            whole.pop(key, None)
            continue
        try:
            whole[key] = json.loads(value)
        except ValueError as error:
            raise Unreadable(f"{where} is JSON, and its former {key} was not: {value.strip()}") from error
    indent = re.search(r"^([ \t]+)\"", text, re.MULTILINE)
    return json.dumps(whole, indent=indent[1] if indent else None) + ("\n" if text.endswith("\n") else "")


def _blocks(text: str, where: str) -> list[Block]:
    """The file in order; the lines of all blocks together are the file."""
    blocks: list[Block] = []
    for number, line in enumerate(text.splitlines(keepends=True), 1):
        plain = line.rstrip("\r\n")
        match = _KEY.match(plain)
        if match:
            if any(block.key == match[1] for block in blocks):
                raise Unreadable(f"{where}:{number}: {match[1]} is there twice")
            blocks.append(Block(match[1], (line,)))
        elif blocks and blocks[-1].key and _INSIDE.match(plain) and not plain.startswith("#"):
            blocks[-1] = Block(blocks[-1].key, (*blocks[-1].lines, line))
        elif plain.startswith("#") or not plain.strip() or (plain == "---" and not any(b.key for b in blocks)):
            blocks.append(Block("", (line,)))
        else:
            raise Unreadable(f"{where}:{number} is not understood: write its fields one below the other")
    return [part for block in blocks for part in _without_blank_end(block)]


def _without_blank_end(block: Block) -> tuple[Block, ...]:
    """Empty lines below a field are not part of it: they stay if it changes."""
    count = len(block.lines)
    while count > 1 and not block.lines[count - 1].strip():
        count -= 1
    if not block.key or count == len(block.lines):
        return (block,)
    return Block(block.key, block.lines[:count]), Block("", block.lines[count:])


def _value(block: Block) -> Any:
    match = _KEY.match(block.lines[0].rstrip("\r\n"))
    head = _COMMENT.sub("", match[2] if match else "").strip()
    inside = [line.rstrip() for line in block.lines[1:] if _COMMENT.sub("", line).strip()]
    if head and inside:
        return NotPlain("".join(block.lines))
    if head:
        return _one_line(head)
    if not inside:
        return None
    pairs = [_PAIR.fullmatch(_COMMENT.sub("", line)) for line in inside]
    if not all(pairs) or len({pair["indent"] for pair in pairs if pair}) != 1:
        return NotPlain("".join(block.lines))
    return {pair["key"].strip("\"'"): _word(pair["value"]) for pair in pairs if pair}


def _one_line(text: str) -> Any:
    if text[0] not in "{[":
        return NotPlain(text) if text[0] in "|>&*!" else _word(text)
    try:
        return json.loads(text)
    except ValueError:
        pass
    inner = re.fullmatch(r"\{([^{}\[\]]*)\}", text)
    pairs = [part.partition(":") for part in inner[1].split(",") if part.strip()] if inner else []
    if not pairs or not all(separator for _, separator, _ in pairs):
        return NotPlain(text)
    return {key.strip().strip("\"'"): _word(value.strip()) for key, _, value in pairs}


def _word(text: str) -> str:
    """A scalar as text, without its quotes."""
    text = text.strip()
    quoted = len(text) > 1 and text[0] == text[-1] and text[0] in "\"'"
    return text[1:-1] if quoted else text
