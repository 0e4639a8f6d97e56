"""Sections of the cluster file: dataclasses whose fields say what they hold, why, and where that comes from."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import MISSING, Field, dataclass, field, fields
from typing import Any

from gpuctl.core.strict_yaml import At, FieldType, Node, Schema, refuse_unknown


@dataclass(frozen=True)
class Spec:
    """What is known of a field besides its name and default; `unit` is empty where the kind says enough."""

    kind: FieldType
    about: str
    source: str = ""
    unit: str = ""


def holds(kind: FieldType, about: str, *, default: Any = MISSING, source: str = "", unit: str = "") -> Any:
    """A field of one value; without a default the file has to give it."""
    spec = {"spec": Spec(kind, about, source, unit)}
    if isinstance(default, dict):
        return field(default_factory=default.copy, metadata=spec)
    return field(metadata=spec) if default is MISSING else field(default=default, metadata=spec)


def part(section: type[Any], about: str, *, optional: bool = False, empty: Any = MISSING) -> Any:
    """A field that is a section of its own; `empty` is what it is where an optional one is left out."""
    spec = {"spec": Spec(Part(section), about)}
    if empty is not MISSING:
        return field(default=empty, metadata=spec)
    return field(default_factory=section, metadata=spec) if optional else field(metadata=spec)


def specs(section: type[Any]) -> dict[str, Spec]:
    """The fields of a section, in the order of the file."""
    return {each.name: each.metadata["spec"] for each in fields(section)}


def required(section: type[Any]) -> list[str]:
    """The fields that the file has to give."""
    return [f.name for f in fields(section) if f.default is MISSING and f.default_factory is MISSING]


def walk(section: type[Any], path: str = "") -> Iterator[tuple[str, Field[Any], Spec]]:
    """Every single value of the file by its way from the top, sections opened."""
    for each in fields(section):
        spec: Spec = each.metadata["spec"]
        here = f"{path}.{each.name}" if path else each.name
        if isinstance(spec.kind, Part):
            yield from walk(spec.kind.section, here)
        else:
            yield here, each, spec


def default(each: Field[Any]) -> Any:
    """What a field is where the file leaves it out; `MISSING` where it may not."""
    return each.default if each.default_factory is MISSING else each.default_factory()


@dataclass(frozen=True)
class Part:
    """The kind of a field that is a section."""

    section: type[Any]

    def read(self, node: Node, at: At) -> Any:
        if not isinstance(node.value, dict):
            at.refuse(node, f"is not a mapping of {', '.join(specs(self.section))}")
            return neutral(self.section)
        known = specs(self.section)
        refuse_unknown(node.value, tuple(known), at)
        for name in required(self.section):
            if name not in node.value:
                at.inside(name).refuse(node, "is missing", known[name].about)
        return self.section(**{**_missing(self.section, node.value), **self._values(node.value, at)})

    def _values(self, given: Mapping[str, Node], at: At) -> dict[str, Any]:
        found = {}
        for name, spec in specs(self.section).items():
            if name in given:
                inside = at.inside(name)
                at.mistakes.lines[inside.path] = given[name].where
                found[name] = spec.kind.read(given[name], inside)
        return found

    def schema(self) -> Schema:
        return schema(self.section)


def schema(section: type[Any]) -> Schema:
    """A section as JSON Schema: nothing unknown, nothing missing."""
    properties = {}
    for each in fields(section):
        spec: Spec = each.metadata["spec"]
        usual = list(each.default) if isinstance(each.default, tuple) else each.default
        told = {"description": spec.about} | ({"default": usual} if _plain(each.default) else {})
        properties[each.name] = {**spec.kind.schema(), **told}
    found: Schema = {"type": "object", "additionalProperties": False, "properties": properties}
    return {**found, "required": required(section)} if required(section) else found


def _plain(default: Any) -> bool:
    return default not in (MISSING, None, "", ())


def _missing(section: type[Any], given: Mapping[str, Node]) -> dict[str, Any]:
    """Something harmless for what the file should have given, so that the rest can still be looked at."""
    return {name: _harmless(specs(section)[name].kind) for name in required(section) if name not in given}


def _harmless(kind: FieldType) -> Any:
    if isinstance(kind, Part):
        return neutral(kind.section)
    shape = kind.schema().get("type")
    return 0 if shape == "integer" else False if shape == "boolean" else () if shape == "array" else ""


def neutral(section: type[Any]) -> Any:
    """A section of which the file says nothing that can be used."""
    return section(**_missing(section, {}))
