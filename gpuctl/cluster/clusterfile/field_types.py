"""What a field of the cluster file can hold: each kind reads a value and says the same as JSON Schema.

The reader and the published schema both come from here, so they cannot disagree on what a field takes.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Any, Protocol

from ansible_collections.gpuctl.fleet.plugins.plugin_utils.strict_yaml import Mistake, Node, did_you_mean

Schema = dict[str, Any]
# How YAML writes that there is no value; as text it would be taken for a name.
NOTHING = ("", "~", "null", "Null", "NULL")


@dataclass
class Notes:
    """What is wrong with a file: the mistakes, the fields that have one, and the line of each field."""

    mistakes: list[Mistake] = field(default_factory=list)
    wrong: set[str] = field(default_factory=set)
    lines: dict[str, str] = field(default_factory=dict)

    def tell(self, path: str, where: str, wrong: str, hint: str = "") -> None:
        self.wrong.add(path)
        self.mistakes.append(Mistake(where, f"{path} {wrong}" if path else wrong, hint))


@dataclass(frozen=True)
class At:
    """The field that is being read, by its way from the top: network.rdma.devices."""

    path: str
    notes: Notes

    def inside(self, name: str) -> At:
        return At(f"{self.path}.{name}" if self.path else name, self.notes)

    def tell(self, node: Node, wrong: str, hint: str = "") -> None:
        self.notes.tell(self.path, node.where, wrong, hint)


class Kind(Protocol):
    """How a field is read (a mistake is told, and something harmless given back), and its JSON Schema."""

    def read(self, node: Node, at: At) -> Any: ...
    def schema(self) -> Schema: ...


@dataclass(frozen=True)
class Text:
    """Text that fits a pattern; `shape` completes "is not …". A pattern is one that Python and editors both know."""

    pattern: str = r"[\s\S]*\S[\s\S]*"
    shape: str = "text"
    most: int | None = None

    def read(self, node: Node, at: At) -> str:
        if not isinstance(node.value, str):
            at.tell(node, f"is not {self.shape}")
            return ""
        if node.value in NOTHING:
            at.tell(node, "is empty", f"leave it out, or give it {self.shape}")
        elif not re.fullmatch(self.pattern, node.value):
            at.tell(node, f"is {node.value!r}: not {self.shape}")
        elif self.most and len(node.value) > self.most:
            at.tell(node, f"is {len(node.value)} characters long", f"it can have {self.most}")
        return node.value

    def schema(self) -> Schema:
        text = {"type": "string", "pattern": f"^({self.pattern})$", "not": {"enum": list(NOTHING)}}
        return {**text, **({"maxLength": self.most} if self.most else {})}


@dataclass(frozen=True)
class Value:
    """What an environment variable is set to: anything that is not empty, of one line."""

    def read(self, node: Node, at: At) -> str:
        if not isinstance(node.value, str) or not node.value.strip() or "\n" in node.value or node.value in NOTHING:
            at.tell(node, "is not a value of one line")
            return ""
        return node.value

    def schema(self) -> Schema:
        return {"type": ["string", "number"], "pattern": r"^[^\n]*\S[^\n]*$", "not": {"enum": list(NOTHING)}}


@dataclass(frozen=True)
class Choice:
    """One of a few words."""

    words: tuple[str, ...]

    def read(self, node: Node, at: At) -> str:
        if node.value not in self.words:
            shown = repr(node.value) if isinstance(node.value, str) else "more than one word"
            at.tell(node, f"cannot be {shown}", did_you_mean(str(node.value), self.words))
            return self.words[0]
        return str(node.value)

    def schema(self) -> Schema:
        return {"enum": list(self.words)}


@dataclass(frozen=True)
class Flag:
    """true or false; yes and on are text in today's YAML, and refused."""

    def read(self, node: Node, at: At) -> bool:
        text = node.value if isinstance(node.value, str) else ""
        if text not in ("true", "True", "TRUE", "false", "False", "FALSE"):
            at.tell(node, "is neither true nor false", "write one of them")
        return text.lower() == "true"

    def schema(self) -> Schema:
        return {"type": "boolean"}


@dataclass(frozen=True)
class Whole:
    """A whole number within bounds."""

    least: int
    most: int

    def read(self, node: Node, at: At) -> int:
        text = node.value if isinstance(node.value, str) else ""
        if not re.fullmatch(r"0|[1-9][0-9]{0,9}", text) or not self.least <= int(text) <= self.most:
            shown = repr(text) if text else "no number"
            at.tell(node, f"is {shown}, not a whole number from {self.least} to {self.most}")
            return self.least
        return int(text)

    def schema(self) -> Schema:
        return {"type": "integer", "minimum": self.least, "maximum": self.most}


@dataclass(frozen=True)
class Size:
    """Bytes, as Kubernetes writes them, with a binary unit: 100Gi. Kept as text."""

    def read(self, node: Node, at: At) -> str:
        text = node.value if isinstance(node.value, str) else ""
        if not re.fullmatch(SIZE, text):
            at.tell(node, *_not_a_size(text))
            return "1Mi"
        return text

    def schema(self) -> Schema:
        return {"type": "string", "pattern": f"^({SIZE})$"}


SIZE = "[1-9][0-9]{0,8}(Mi|Gi|Ti|Pi)"
UNITS = {"Mi": 2**20, "Gi": 2**30, "Ti": 2**40, "Pi": 2**50}


def bytes_of(size: str) -> int:
    """The bytes of a size such as 100Gi."""
    return int(size[:-2]) * UNITS[size[-2:]]


def _not_a_size(text: str) -> tuple[str, str]:
    shown = repr(text) if text else "empty"
    if re.fullmatch(r"[0-9]+", text):
        return f"is {shown}, which has no unit: Kubernetes would take it for bytes", f"write {text}Gi"
    if found := re.fullmatch(r"([0-9]+)([kMGTP])B?", text):
        return f"is {shown}: {found[2]} counts in thousands", f"write {found[1]}{found[2]}i, which counts in 1024s"
    return f"is {shown}, not a size such as 100Gi", "a whole number and Mi, Gi, Ti or Pi"


@dataclass(frozen=True)
class Cores:
    """CPU cores: a whole number, or thousandths of one (500m). Kept as text."""

    def read(self, node: Node, at: At) -> str:
        text = node.value if isinstance(node.value, str) else ""
        if not re.fullmatch("[1-9][0-9]{0,4}m?", text):
            at.tell(node, f"is {text!r}, not a number of cores such as 32 or 500m")
            return "1"
        return text

    def schema(self) -> Schema:
        whole = {"type": "integer", "minimum": 1, "maximum": 99999}
        return {"anyOf": [whole, {"type": "string", "pattern": "^[1-9][0-9]{0,4}m$"}]}


@dataclass(frozen=True)
class Many:
    """A list of at least one, none of them twice."""

    one: Kind
    words: str  # what they are, for a mistake

    def read(self, node: Node, at: At) -> tuple[Any, ...]:
        if not isinstance(node.value, list) or not node.value:
            at.tell(node, f"is not a list of {self.words}", self._hint(node))
            return ()
        found = [self.one.read(item, At(f"{at.path}[{number}]", at.notes)) for number, item in enumerate(node.value)]
        for number, item in enumerate(found):
            if item in found[:number]:
                at.tell(node.value[number], f"names {item} twice", "keep one")
        return tuple(found)

    def _hint(self, node: Node) -> str:
        if isinstance(node.value, str) and "," in node.value:
            return f"write [{', '.join(word.strip() for word in node.value.split(','))}]"
        return "leave it out where there are none"

    def schema(self) -> Schema:
        return {"type": "array", "items": self.one.schema(), "minItems": 1, "uniqueItems": True}


@dataclass(frozen=True)
class Named:
    """A mapping whose names are free, as far as they fit a pattern."""

    name: Text
    value: Kind

    def read(self, node: Node, at: At) -> dict[str, Any]:
        if not isinstance(node.value, dict) or not node.value:
            at.tell(node, f"is not a mapping from {self.name.shape} to a value", "leave it out where there are none")
            return {}
        for name, item in node.value.items():
            self.name.read(Node(name, item.where), at)
        return {name: self.value.read(item, at.inside(name)) for name, item in node.value.items()}

    def schema(self) -> Schema:
        return {
            "type": "object",
            "propertyNames": self.name.schema(),
            "additionalProperties": self.value.schema(),
            "minProperties": 1,
        }
