"""Use of one node, from its facts."""

from __future__ import annotations

import re

from gpuctl.nodes import gpu_state
from gpuctl.nodes.allocations import allocations
from gpuctl.nodes.model import Facts, Node, nothing_read
from gpuctl.nodes.users import users

# Product names of EC2 in DMI: p5.48xlarge, g4dn.metal, u-6tb1.112xlarge. Other clouds name no machine type there.
_EC2 = re.compile(r"[a-z][a-z0-9-]*\.(?:\d*x?large|metal(?:-\w+)?|medium|small|micro|nano)")
MISSING = "nvidia-smi: not on this host"


def node(name: str, facts: Facts, me: frozenset[str] = frozenset()) -> Node:
    """Use of a node; `me`: login names of the one who asks."""
    if nothing_read(facts):
        return Node(name, why=facts["unread"]["*"])
    facts = {**facts, "processes": facts["processes"] or {}}  # unread: then each is unknown
    allocated = allocations(facts)
    gpus = gpu_state.gpus(facts, allocated)
    counts = [len(gpus), facts["attached"] or 0, facts["on_bus"] or 0]
    return Node(
        name,
        _type(facts),
        gpus,
        users(facts, allocated, me),
        None if facts["gpus"] is None and not facts["on_bus"] and not _has_none(facts) else max(counts),
        facts["driver"] or "",
        facts["now"],
        "" if facts["gpus"] is not None or _has_none(facts) else facts["unread"].get("gpus", "nvidia-smi failed"),
        uncounted="" if facts["gpus"] is None or facts["attached"] is not None else facts["unread"].get("attached", ""),
    )


def unasked(name: str, reason: str) -> Node:
    """Node that gave no answer."""
    return Node(name, why=reason, reached=False)


def _has_none(facts: Facts) -> bool:
    """True for a host without GPUs: none on its bus, and no nvidia-smi."""
    return facts["on_bus"] == 0 and facts["gpus"] is None and facts["unread"].get("gpus") == MISSING


def _type(facts: Facts) -> str:
    product = facts["product"] or ""
    if _EC2.fullmatch(product):
        return str(product)
    models = list(dict.fromkeys(gpu["model"] for gpu in facts["gpus"] or () if gpu["model"]))
    return " + ".join(model.removeprefix("NVIDIA ") for model in models)
