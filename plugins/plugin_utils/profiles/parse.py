"""Read one profile file into a draft, before the profile that it extends is read."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from ansible_collections.gpuctl.fleet.plugins.module_utils.gpuhost.overlays import CONDITIONS, MEMORY

from ..strict_yaml import Mistake, Node, did_you_mean
from ..strict_yaml.schema import At, FieldType, ListOf, Mistakes, Schema, Section, Text

# Known values of conditions that have only a few.
KNOWN_VALUES: Mapping[str, tuple[str, ...]] = {
    "machine": ("metal", "virtual", "container"),
    "family": ("debian", "rhel"),
    "arch": ("x86_64", "aarch64"),
    "nics": ("efa", "infiniband", "roce", "ethernet", "none"),
}
WILDCARDS = "*?["
TEXT = Text(r"[\s\S]*", empty=())
TEXTS_SCHEMA: Schema = {"anyOf": [{"type": "string"}, {"type": "array", "items": {"type": "string"}}]}


@dataclass(frozen=True)
class DraftRow:
    """A row as written; missing fields may be inherited."""

    name: str
    where: str
    value: Node | None = None
    texts: Mapping[str, str] = field(default_factory=dict)

    def missing(self, names: tuple[str, ...]) -> list[str]:
        """The names among these that the row has no field for."""
        return [name for name in names if (self.value is None if name == "value" else name not in self.texts)]


@dataclass(frozen=True)
class DraftOverlay:
    """An overlay as written."""

    name: str
    where: str
    why: str
    when: Mapping[str, tuple[str, ...]]
    rows: Mapping[str, DraftRow]
    drop: Mapping[str, str]  # name -> where


@dataclass(frozen=True)
class Draft:
    """A profile as written."""

    name: str
    where: str
    about: str = ""
    extends: Node | None = None
    rows: Mapping[str, DraftRow] = field(default_factory=dict)
    drop: Mapping[str, str] = field(default_factory=dict)
    overlays: tuple[DraftOverlay, ...] = ()


@dataclass(frozen=True)
class Value:
    """The value of a knob, which its kind checks later."""

    def read(self, node: Node, at: At) -> Node:
        return node

    def schema(self) -> Schema:
        return {}


@dataclass(frozen=True)
class Texts:
    """A list of texts, or a single one; read as nodes."""

    def read(self, node: Node, at: At) -> list[Node]:
        items = node.value if isinstance(node.value, list) else [node]
        for number, item in enumerate(items):
            if not isinstance(item.value, str):
                (at if item is node else at.item(number)).refuse(item, "is not text")
        return [item for item in items if isinstance(item.value, str)]

    def schema(self) -> Schema:
        return TEXTS_SCHEMA


@dataclass(frozen=True)
class Patterns:
    """Shell patterns of one condition; a text without wildcards must be a known value, if those are known."""

    known: tuple[str, ...] = ()

    def read(self, node: Node, at: At) -> tuple[str, ...]:
        patterns = Texts().read(node, at)
        if not patterns:
            at.refuse(node, "lists nothing, so no host would match")
        for number, item in enumerate(patterns):
            text = str(item.value)
            if self.known and text not in self.known and not set(WILDCARDS) & set(text):
                (at if item is node else at.item(number)).refuse(
                    item, f"cannot be {text!r}", did_you_mean(text, self.known)
                )
        return tuple(str(item.value) for item in patterns)

    def schema(self) -> Schema:
        return TEXTS_SCHEMA


@dataclass(frozen=True)
class Limits:
    """Limits of memory, such as ">=64GiB" or "<64GiB"."""

    def read(self, node: Node, at: At) -> tuple[str, ...]:
        limits = Texts().read(node, at)
        if not limits:
            at.refuse(node, "lists nothing, so no host would match")
        for number, item in enumerate(limits):
            if not MEMORY.fullmatch(str(item.value)):
                wrong = f"cannot be {item.value!r}"
                (at if item is node else at.item(number)).refuse(item, wrong, 'write ">=64GiB" or "<64GiB"')
        return tuple(str(item.value) for item in limits)

    def schema(self) -> Schema:
        return TEXTS_SCHEMA


@dataclass(frozen=True)
class Knobs:
    """Rows by name of the knob; each is a mapping of its fields, or in the short form just its value."""

    def read(self, node: Node, at: At) -> dict[str, DraftRow]:
        if not isinstance(node.value, dict):
            at.refuse(node, "is not a mapping of knobs", "write them as in `sysctl.vm.swappiness: 1`")
            return {}
        return {name: self._row(name, item, at.inside(name)) for name, item in node.value.items()}

    def _row(self, name: str, node: Node, at: At) -> DraftRow:
        if not isinstance(node.value, dict):
            return DraftRow(name, node.where, None if node.value == "" else node)
        fields = ROW.read(node, at)
        return DraftRow(name, node.where, fields.pop("value", None), fields)

    def schema(self) -> Schema:
        short = {"type": ["string", "number", "boolean", "array"]}
        return {"type": "object", "additionalProperties": {"anyOf": [short, ROW.schema()]}}


def _conditions(values: dict[str, Any], node: Node, at: At) -> dict[str, tuple[str, ...]]:
    if not node.value:
        at.refuse(node, "has no condition", f"use {', '.join(CONDITIONS)}")
    return values


def _overlay(values: dict[str, Any], node: Node, at: At) -> DraftOverlay:
    rows, drop = values.get("knobs", {}), _places(values)
    for name in rows.keys() & drop.keys():
        at.mistakes.add(at.path, drop[name], f"both sets and drops {name}", "keep one")
    texts = (values.get("name", ""), node.where, values.get("why", ""))
    return DraftOverlay(*texts, values.get("when") or {}, rows, drop)


def _places(values: Mapping[str, Any]) -> dict[str, str]:
    return {str(item.value): item.where for item in values.get("drop", ())}


# Lenient: a mistake in one field must not hide those in others, and in the profiles that this one extends.
ROW_TEXTS = ("why", "source", "not_for", "read_back", "type")
ROW = Section({"value": Value(), **dict.fromkeys(ROW_TEXTS, TEXT)}, lenient=True)
CONDITION_FIELDS: Mapping[str, FieldType] = {
    name: Limits() if name == "memory" else Patterns(KNOWN_VALUES.get(name, ())) for name in CONDITIONS
}
WHEN = Section(CONDITION_FIELDS, make=_conditions, lenient=True)
OVERLAY = Section(
    {"name": TEXT, "why": TEXT, "when": WHEN, "knobs": Knobs(), "drop": Texts()},
    required=("name", "why", "when"),
    make=_overlay,
    lenient=True,
)
PROFILE = Section(
    {
        "name": TEXT,
        "about": TEXT,
        "extends": Text(r"[\s\S]*", "the name of one profile", empty=()),
        "knobs": Knobs(),
        "drop": Texts(),
        "overlays": ListOf(OVERLAY, "overlays", may_be_empty=True),
    },
    lenient=True,
)


def draft(node: Node, name: str, mistakes: list[Mistake]) -> Draft | None:
    """The valid content of a profile file; None if it is not a mapping."""
    at = At("", Mistakes())
    values = PROFILE.read(node, at)
    result = None if values is None else _profile(values, node, name, at)
    mistakes += at.mistakes.by_line()
    return result


def _profile(values: dict[str, Any], node: Node, name: str, at: At) -> Draft:
    fields: Any = node.value
    written_name = values.get("name", "")
    if written_name and name and written_name != name:
        at.inside("name").refuse(fields["name"], f"is {written_name!r}, but the file's name is {name}", "leave it out")
    if not values.keys() & {"knobs", "extends", "overlays"}:
        at.refuse(node, "holds no knobs", "add `knobs:` or `extends:`")
    overlays = tuple(filter(None, values.get("overlays", ())))
    first: dict[str, DraftOverlay] = {}
    for overlay in overlays:
        if first.setdefault(overlay.name, overlay) is not overlay:
            at.mistakes.add("", overlay.where, f"there is an overlay {overlay.name!r} already", "choose another name")
    return Draft(
        name or written_name,
        node.where,
        values.get("about", ""),
        fields["extends"] if "extends" in values else None,
        values.get("knobs", {}),
        _places(values),
        overlays,
    )
