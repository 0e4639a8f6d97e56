"""Format objects for people and `kubectl apply -f`; the output is deterministic."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from typing import Any

import yaml

from gpuctl.cluster.environment import Object


class _Dumper(yaml.SafeDumper):
    """Multi-line text as blocks, indented lists, no anchors."""

    def ignore_aliases(self, data: Any) -> bool:
        return True

    def increase_indent(self, flow: bool = False, indentless: bool = False) -> None:
        super().increase_indent(flow, indentless=False)


# Plain text that other readers, such as kubectl's, take for a boolean or a number, and PyYAML does not.
_AMBIGUOUS = re.compile(
    r"[yYnN]"
    r"|[-+]?_*([0-9][0-9_]*\.?|[0-9][0-9_]*\.[0-9_]+|\.[0-9_]+)([eE][-+]?[0-9][0-9_]*)?_*"
    r"|[-+]?_*0_*([xX][0-9a-fA-F_]+|[oO][0-7_]+|[bB][01_]+)"
)
_BREAKS = re.compile("[\x85\u2028\u2029]")  # lost as line breaks by PyYAML, unless they are escaped


def _text(dumper: yaml.SafeDumper, text: str) -> yaml.ScalarNode:
    style = "'" if _AMBIGUOUS.fullmatch(text) else None
    style = '"' if _BREAKS.search(text) else "|" if "\n" in text else style
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style=style)


_Dumper.add_representer(str, _text)


def as_yaml(objects: Sequence[Object]) -> str:
    """Format objects as YAML, one document per object."""
    return "".join(
        "---\n" + yaml.dump(obj, Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=10_000) for obj in objects
    )


def as_json(objects: Sequence[Object]) -> str:
    """Format objects as one JSON List."""
    return json.dumps({"apiVersion": "v1", "kind": "List", "items": list(objects)}, indent=2, ensure_ascii=False) + "\n"
