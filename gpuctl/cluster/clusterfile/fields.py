"""Sections of the cluster file: dataclasses whose fields carry type, description and source."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import MISSING, Field, dataclass, field, fields
from typing import Any

from gpuctl.core.strict_yaml import At, FieldType, Node, Schema, refuse_unknown


@dataclass(frozen=True)
class Spec:
    """Metadata of a field. `unit` is "" if the type needs none."""

    kind: FieldType
    about: str
    source: str = ""
    unit: str = ""


def holds(kind: FieldType, about: str, *, default: Any = MISSING, source: str = "", unit: str = "") -> Any:
    """Declare a field with one value; without a default it is required."""
    spec = {"spec": Spec(kind, about, source, unit)}
    if isinstance(default, dict):
        return field(default_factory=default.copy, metadata=spec)
    return field(metadata=spec) if default is MISSING else field(default=default, metadata=spec)


def part(section: type[Any], about: str, *, optional: bool = False, empty: Any = MISSING) -> Any:
    """Declare a field that is a section. `empty`: the value of an omitted optional section."""
    spec = {"spec": Spec(Part(section), about)}
    if empty is not MISSING:
        return field(default=empty, metadata=spec)
    return field(default_factory=section, metadata=spec) if optional else field(metadata=spec)


def specs(section: type[Any]) -> dict[str, Spec]:
    """Return the fields of a section, in file order."""
    return {entry.name: entry.metadata["spec"] for entry in fields(section)}


def required(section: type[Any]) -> list[str]:
    """Return the names of required fields."""
    return [f.name for f in fields(section) if f.default is MISSING and f.default_factory is MISSING]


def walk(section: type[Any], path: str = "") -> Iterator[tuple[str, Field[Any], Spec]]:
    """Yield (dotted path, field, spec) of every value, including those of nested sections."""
    for entry in fields(section):
        spec: Spec = entry.metadata["spec"]
        entry_path = f"{path}.{entry.name}" if path else entry.name
        if isinstance(spec.kind, Part):
            yield from walk(spec.kind.section, entry_path)
        else:
            yield entry_path, entry, spec


def _absent(spec: Spec) -> tuple[str, str]:
    """(problem, hint) for a required field that the file lacks."""
    needed = required(spec.kind.section) if isinstance(spec.kind, Part) else []
    about = spec.about.rstrip(".")
    about = about if about[1:2].isupper() else about[:1].lower() + about[1:]  # "GPUs of a node" stays as it is
    return f"is missing ({about})", f"give it {', '.join(needed)}" if needed else ""


def default(entry: Field[Any]) -> Any:
    """Return the value of an omitted field; `MISSING` if it is required."""
    return entry.default if entry.default_factory is MISSING else entry.default_factory()


@dataclass(frozen=True)
class Part:
    """Field type of a section."""

    section: type[Any]

    def read(self, node: Node, at: At) -> Any:
        if not isinstance(node.value, dict):
            at.refuse(node, f"is not a mapping of {', '.join(specs(self.section))}")
            return neutral(self.section)
        known = specs(self.section)
        refuse_unknown(node.value, tuple(known), at)
        for name in required(self.section):
            if name not in node.value:
                at.inside(name).refuse(node, *_absent(known[name]))
        return self.section(**{**_missing(self.section, node.value), **self._values(node.value, at)})

    def _values(self, values: Mapping[str, Node], at: At) -> dict[str, Any]:
        parsed = {}
        for name, spec in specs(self.section).items():
            if name in values:
                inside = at.inside(name)
                at.mistakes.lines[inside.path] = values[name].where
                parsed[name] = spec.kind.read(values[name], inside)
        return parsed

    def schema(self) -> Schema:
        return schema(self.section)


def schema(section: type[Any]) -> Schema:
    """Return a section's JSON Schema, which rejects unknown and missing fields."""
    properties = {}
    for entry in fields(section):
        spec: Spec = entry.metadata["spec"]
        usual = list(entry.default) if isinstance(entry.default, tuple) else entry.default
        annotations = {"description": spec.about} | ({"default": usual} if _has_default(entry.default) else {})
        properties[entry.name] = {**spec.kind.schema(), **annotations}
    result: Schema = {"type": "object", "additionalProperties": False, "properties": properties}
    return {**result, "required": required(section)} if required(section) else result


def _has_default(default: Any) -> bool:
    return default not in (MISSING, None, "", ())


def _missing(section: type[Any], values: Mapping[str, Node]) -> dict[str, Any]:
    """Return placeholders for missing required fields, so that the rest of the file can still be checked."""
    return {name: _harmless(specs(section)[name].kind) for name in required(section) if name not in values}


def _harmless(kind: FieldType) -> Any:
    if isinstance(kind, Part):
        return neutral(kind.section)
    shape = kind.schema().get("type")
    return 0 if shape == "integer" else False if shape == "boolean" else () if shape == "array" else ""


def neutral(section: type[Any]) -> Any:
    """Return a section of placeholders, for a file without a usable one."""
    return section(**_missing(section, {}))
