"""Field types of cluster files only: sizes and cores as in Kubernetes, and values of variables."""

from __future__ import annotations

import re
from dataclasses import dataclass

from gpuctl.core.strict_yaml import NULLS, At, Node, Schema


@dataclass(frozen=True)
class Value:
    """Value of an environment variable: one line that is not empty."""

    def read(self, node: Node, at: At) -> str:
        if not isinstance(node.value, str) or not node.value.strip() or "\n" in node.value or node.value in NULLS:
            at.refuse(node, "is not a value of one line")
            return ""
        return node.value

    def schema(self) -> Schema:
        return {"type": ["string", "number"], "pattern": r"^[^\n]*\S[^\n]*$", "not": {"enum": list(NULLS)}}


@dataclass(frozen=True)
class Size:
    """Size with a binary unit as in Kubernetes, such as 100Gi; kept as text."""

    def read(self, node: Node, at: At) -> str:
        text = node.value if isinstance(node.value, str) else ""
        if not re.fullmatch(SIZE, text):
            at.refuse(node, *_not_a_size(text))
            return "1Mi"
        return text

    def schema(self) -> Schema:
        return {"type": "string", "pattern": f"^({SIZE})$"}


SIZE = "[1-9][0-9]{0,8}(Mi|Gi|Ti|Pi)"
UNITS = {"Mi": 2**20, "Gi": 2**30, "Ti": 2**40, "Pi": 2**50}


def bytes_of(size: str) -> int:
    """Return the bytes of a size such as 100Gi."""
    return int(size[:-2]) * UNITS[size[-2:]]


def _not_a_size(text: str) -> tuple[str, str]:
    shown = repr(text) if text else "empty"
    if re.fullmatch(r"[0-9]+", text):
        return f"is {shown}, which has no unit: Kubernetes would read it as bytes", f"write {text}Gi"
    if match := re.fullmatch(r"([0-9]+)([kMGTP])B?", text):
        return f"is {shown}: {match[2]} is a power of 1000", f"write {match[1]}{match[2]}i, a power of 1024"
    return f"is {shown}, not a size such as 100Gi", "write a whole number with Mi, Gi, Ti or Pi"


@dataclass(frozen=True)
class Cores:
    """CPU cores: a whole number, or millicores such as 500m; kept as text."""

    def read(self, node: Node, at: At) -> str:
        text = node.value if isinstance(node.value, str) else ""
        if not re.fullmatch("[1-9][0-9]{0,4}m?", text):
            at.refuse(node, f"is {text!r}, not a number of cores such as 32 or 500m")
            return "1"
        return text

    def schema(self) -> Schema:
        whole = {"type": "integer", "minimum": 1, "maximum": 99999}
        return {"anyOf": [whole, {"type": "string", "pattern": "^[1-9][0-9]{0,4}m$"}]}
