"""The cluster file as JSON Schema, for editors; made from the model, which the reader goes by, too."""

from __future__ import annotations

from dataclasses import MISSING
from typing import Any

from gpuctl.cluster.clusterfile import fields
from gpuctl.cluster.clusterfile.model import Cluster
from gpuctl.core.strict_yaml import Schema

DRAFT = "https://json-schema.org/draft/2020-12/schema"


def document() -> Schema:
    """The whole schema. Combinations that cannot be are told by the reader alone."""
    return {
        "$schema": DRAFT,
        "title": "gpuctl cluster file",
        "description": "A cluster for multi-node ML environments. `gpuctl cluster validate` also checks combinations.",
        **fields.schema(Cluster),
    }


def rows() -> list[dict[str, str]]:
    """Every field: its way from the top, what it takes, unit, default, what it is for, and where that comes from."""
    return [
        {
            "field": path,
            "takes": _takes(spec.kind.schema()),
            "unit": spec.unit,
            "default": _default(fields.default(each)),
            "about": spec.about,
            "source": spec.source,
        }
        for path, each, spec in fields.walk(Cluster)
    ]


def _default(default: Any) -> str:
    if default is MISSING:
        return "required"
    if default in (None, "", (), {}):
        return ""
    if isinstance(default, tuple):
        return ", ".join(default)
    return str(default).lower() if isinstance(default, bool) else str(default)


def _takes(shape: Schema) -> str:
    """A few words for a kind."""
    if "enum" in shape:
        return " | ".join(shape["enum"])
    if "anyOf" in shape:
        return "cores"
    if shape["type"] == "integer":
        return f"{shape['minimum']}-{shape['maximum']}"
    if "Mi|Gi" in shape.get("pattern", ""):
        return "size"
    return {"array": "list", "object": "mapping", "boolean": "true | false"}.get(shape["type"], "text")
