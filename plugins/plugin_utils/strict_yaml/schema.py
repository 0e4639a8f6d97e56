"""Field types: each reads a node as a value, and describes the values that it accepts as JSON Schema.

A field type records a mistake and returns a harmless value, so that one pass finds all mistakes of a file.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

from .document import Mistake, Node, did_you_mean

Schema = dict[str, Any]
# Forms of "no value" in YAML, which would otherwise be read as text.
NULLS = ("", "~", "null", "Null", "NULL")
YAML_BOOLEANS: Mapping[str, bool] = {
    **dict.fromkeys(("true", "True", "TRUE"), True),
    **dict.fromkeys(("false", "False", "FALSE"), False),
}
SWITCHES: Mapping[str, bool] = {
    **dict.fromkeys(("true", "yes", "on"), True),
    **dict.fromkeys(("false", "no", "off"), False),
}


@dataclass
class Mistakes:
    """The mistakes of a file, the paths of fields with a mistake, and the line of each field."""

    items: list[Mistake] = field(default_factory=list)
    paths: set[str] = field(default_factory=set)
    lines: dict[str, str] = field(default_factory=dict)

    def add(self, path: str, where: str, wrong: str, hint: str = "", label: str = "") -> None:
        self.paths.add(path)
        shown = "" if path == where else path  # the place of a value that is in no file is its path
        self.items.append(Mistake(where, " ".join(filter(None, (label, shown, wrong))), hint))

    def by_line(self) -> tuple[Mistake, ...]:
        """All mistakes, each once, in the order of their lines."""
        return tuple(sorted(dict.fromkeys(self.items), key=_line))


@dataclass(frozen=True)
class At:
    """The field being read: its path (network.rdma.devices[0]), from the top or from `label` ("row jq:")."""

    path: str
    mistakes: Mistakes
    label: str = ""

    def inside(self, name: str) -> At:
        return replace(self, path=f"{self.path}.{name}" if self.path else name)

    def item(self, number: int) -> At:
        return replace(self, path=f"{self.path}[{number}]")

    def refuse(self, node: Node, wrong: str, hint: str = "") -> None:
        self.mistakes.add(self.path, node.where, wrong, hint, self.label)


class FieldType(Protocol):
    """Reads a field and describes it as JSON Schema."""

    def read(self, node: Node, at: At) -> Any: ...
    def schema(self) -> Schema: ...


# The user part of a URL, with or without a scheme. An image's digest follows an @, too, and git@ is no secret.
USER_PART = re.compile(r"(?<=://)(?!git@).*@|^(?!git@)[^/]*@(?!sha256:)", re.DOTALL)


def _quoted(text: str) -> str:
    """Quote a value for a message, without the passwords and tokens of a URL."""
    return repr(USER_PART.sub("<removed>@", text))


@dataclass(frozen=True)
class Text:
    """Text that matches a pattern; `shape` completes "is not …". The pattern is valid in Python and JSON Schema."""

    pattern: str = r"[\s\S]*\S[\s\S]*"
    shape: str = "text"
    most: int | None = None
    empty: tuple[str, ...] = NULLS

    def read(self, node: Node, at: At) -> str:
        if not isinstance(node.value, str):
            at.refuse(node, f"is not {self.shape}")
            return ""
        if node.value in self.empty:
            at.refuse(node, "is empty", f"leave it out, or give it {self.shape}")
        elif not re.fullmatch(self.pattern, node.value):
            at.refuse(node, f"is {_quoted(node.value)}: not {self.shape}")
        elif self.most and len(node.value) > self.most:
            at.refuse(node, f"is {len(node.value)} characters long", f"it can have {self.most}")
        return node.value

    def schema(self) -> Schema:
        text = {"type": "string", "pattern": f"^({self.pattern})$", "not": {"enum": list(self.empty)}}
        return {**text, **({"maxLength": self.most} if self.most else {})}


@dataclass(frozen=True)
class Choice:
    """One of a few words."""

    choices: tuple[str, ...]

    def read(self, node: Node, at: At) -> str:
        if node.value not in self.choices:
            shown = repr(node.value) if isinstance(node.value, str) else "more than one word"
            at.refuse(node, f"cannot be {shown}", did_you_mean(str(node.value), self.choices))
            return self.choices[0]
        return str(node.value)

    def schema(self) -> Schema:
        return {"enum": list(self.choices)}


@dataclass(frozen=True)
class Flag:
    """True or false. In YAML 1.2 yes and on are text: only `SWITCHES` accept them."""

    accepts: Mapping[str, bool] = field(default_factory=lambda: YAML_BOOLEANS)
    any_case: bool = False

    def read(self, node: Node, at: At) -> bool:
        text = node.value if isinstance(node.value, str) else ""
        value = self.accepts.get(text.lower() if self.any_case else text)
        if value is None:
            at.refuse(node, "is neither true nor false", "write one of them")
        return bool(value)

    def schema(self) -> Schema:
        return {"type": "boolean"}


@dataclass(frozen=True)
class Whole:
    """A whole number within bounds, with its unit if the file writes one (40%)."""

    least: int
    most: int
    unit: str = ""

    def read(self, node: Node, at: At) -> int:
        text = node.value if isinstance(node.value, str) else ""
        digits = text.removesuffix(self.unit)
        has_unit = text.endswith(self.unit)
        if not has_unit or not re.fullmatch(r"0|[1-9][0-9]{0,9}", digits) or not self.least <= int(digits) <= self.most:
            shown = repr(text) if text else "no number"
            at.refuse(node, f"is {shown}, not a whole number from {self.least}{self.unit} to {self.most}{self.unit}")
            return self.least
        return int(digits)

    def schema(self) -> Schema:
        if self.unit:
            return {"type": "string", "pattern": f"^[0-9]+{re.escape(self.unit)}$"}
        return {"type": "integer", "minimum": self.least, "maximum": self.most}


@dataclass(frozen=True)
class Parsed:
    """Text that a function parses; for other text it returns None, or raises a ValueError with the problem.

    `shape` completes "is not …".
    """

    parse: Callable[[str], Any]
    shape: str = "text"

    def read(self, node: Node, at: At) -> Any:
        if not isinstance(node.value, str):
            at.refuse(node, f"is not {self.shape}")
            return None
        try:
            value = self.parse(node.value)
        except ValueError as error:
            at.refuse(node, str(error))
            return None
        if value is None:
            at.refuse(node, f"is {_quoted(node.value)}: not {self.shape}")
        return value

    def schema(self) -> Schema:
        return {"type": ["string", "number"]}


@dataclass(frozen=True)
class ListOf:
    """A list of values of one type; `plural` names them in messages."""

    item: FieldType
    plural: str
    unique: bool = False
    may_be_empty: bool = False

    def read(self, node: Node, at: At) -> tuple[Any, ...]:
        if not isinstance(node.value, list) or not (node.value or self.may_be_empty):
            at.refuse(node, f"is not a list of {self.plural}", self._hint(node))
            return ()
        values = [self.item.read(item, at.item(number)) for number, item in enumerate(node.value)]
        for number, value in enumerate(values if self.unique else ()):
            if value in values[:number]:
                at.refuse(node.value[number], f"names {value} twice", "keep one")
        return tuple(values)

    def _hint(self, node: Node) -> str:
        if isinstance(node.value, str) and "," in node.value:
            return f"write [{', '.join(word.strip() for word in node.value.split(','))}]"
        return "" if self.may_be_empty else "leave it out where there are none"

    def schema(self) -> Schema:
        bounds = ({} if self.may_be_empty else {"minItems": 1}) | ({"uniqueItems": True} if self.unique else {})
        return {"type": "array", "items": self.item.schema(), **bounds}


@dataclass(frozen=True)
class MappingOf:
    """A mapping from names that match a pattern to values of one type."""

    name: Text
    value: FieldType
    may_be_empty: bool = False

    def read(self, node: Node, at: At) -> dict[str, Any]:
        if not isinstance(node.value, dict) or not (node.value or self.may_be_empty):
            hint = "" if self.may_be_empty else "leave it out where there are none"
            at.refuse(node, f"is not a mapping from {self.name.shape} to a value", hint)
            return {}
        for name, item in node.value.items():
            self.name.read(Node(name, item.where), at)
        return {name: self.value.read(item, at.inside(name)) for name, item in node.value.items()}

    def schema(self) -> Schema:
        return {
            "type": "object",
            "propertyNames": self.name.schema(),
            "additionalProperties": self.value.schema(),
            **({} if self.may_be_empty else {"minProperties": 1}),
        }


@dataclass(frozen=True)
class Section:
    """A mapping of known fields.

    `make` builds the value of a section without mistakes, and may refuse combinations of fields; a section with a
    mistake is None. A lenient section is made from its valid fields in spite of mistakes, and its empty fields count
    as missing.
    """

    fields: Mapping[str, FieldType]
    required: tuple[str, ...] = ()
    make: Callable[[dict[str, Any], Node, At], Any] = lambda values, node, at: values
    lenient: bool = False

    def read(self, node: Node, at: At) -> Any:
        before = len(at.mistakes.items)
        if not isinstance(node.value, dict):
            at.refuse(node, f"is not a mapping of {', '.join(self.fields)}")
            return None
        refuse_unknown(node.value, tuple(self.fields), at)
        items = {name: item for name, item in node.value.items() if item.value != "" or not self.lenient}
        for name in self.required:
            if name not in items:
                at.inside(name).refuse(node, "is missing")
        values = {}
        for name, item in items.items():
            if name in self.fields:
                at.mistakes.lines[at.inside(name).path] = item.where
                values[name] = self.fields[name].read(item, at.inside(name))
        return self.make(values, node, at) if self.lenient or len(at.mistakes.items) == before else None

    def schema(self) -> Schema:
        properties = {name: kind.schema() for name, kind in self.fields.items()}
        required = {"required": list(self.required)} if self.required else {}
        return {"type": "object", "additionalProperties": False, "properties": properties, **required}


def refuse_unknown(fields: Mapping[str, Node], known: tuple[str, ...], at: At) -> None:
    """Refuse every unknown name, with the closest known one as a hint."""
    for name, item in fields.items():
        if name not in known:
            at.inside(name).refuse(item, "is not known", did_you_mean(name, known))


def _line(mistake: Mistake) -> int:
    line = mistake.where.rpartition(":")[2]
    return int(line) if line.isdigit() else 0
