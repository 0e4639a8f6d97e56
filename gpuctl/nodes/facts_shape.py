"""Shape of the facts of a node: hosts are not trusted, and files are edited."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from gpuctl.engine import fact_types, typed_json


def nothing_read(facts: Mapping[str, Any]) -> bool:
    """True if the whole reading failed; then `unread` has the reason alone."""
    return "*" in facts["unread"]


def misfit(facts: Any) -> str:
    """Path of the first value of another shape, with the reason; "" if there is none."""
    if not isinstance(facts, Mapping) or not isinstance(facts.get("unread"), dict):
        return "it has no facts of GPUs"
    known = typed_json.fields_of(fact_types.GpuUse)
    unread = nothing_read(facts)
    plain = {"unread": facts["unread"]} if unread else {name: facts[name] for name in known if name in facts}
    try:
        typed_json.read(plain, fact_types.UnreadSubject if unread else fact_types.GpuUse)
    except typed_json.Misfit as error:
        return str(error)
    return ""
