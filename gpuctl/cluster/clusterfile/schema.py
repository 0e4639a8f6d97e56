"""JSON Schema of the cluster file, for editors; generated from the model that the reader uses."""

from __future__ import annotations

from dataclasses import MISSING
from typing import Any

from gpuctl.cluster.clusterfile import fields
from gpuctl.cluster.clusterfile.model import Cluster
from gpuctl.core.strict_yaml import Schema

DRAFT = "https://json-schema.org/draft/2020-12/schema"


def document() -> Schema:
    """Return the whole schema. Invalid combinations are checked by the reader only."""
    return {
        "$schema": DRAFT,
        "title": "gpuctl cluster file",
        "description": "A cluster for multi-node ML environments. `gpuctl cluster validate` also checks combinations.",
        **fields.schema(Cluster),
    }


def rows() -> list[dict[str, str]]:
    """Return every field: its path, accepted values, unit, default, purpose and source."""
    return [
        {
            "field": path,
            "takes": _takes(spec.kind.schema()),
            "unit": spec.unit,
            "default": _default(fields.default(field)),
            "about": spec.about,
            "source": spec.source,
        }
        for path, field, spec in fields.walk(Cluster)
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
    """Summarize the accepted values."""
    if "enum" in shape:
        return " | ".join(shape["enum"])
    if "anyOf" in shape:
        return "cores"
    if shape["type"] == "integer":
        return f"{shape['minimum']}-{shape['maximum']}"
    if "Mi|Gi" in shape.get("pattern", ""):
        return "size"
    return {"array": "list", "object": "mapping", "boolean": "true | false"}.get(shape["type"], "text")
