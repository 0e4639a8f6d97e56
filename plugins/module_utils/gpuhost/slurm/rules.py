"""GPUs of a node by gres.conf against those that slurmctld expects."""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import partial

_SUFFIX = re.compile(r"\([^)]*\)$")  # sockets, as in "(S:0-1)"


def expected(gres: str) -> dict[str, int]:
    """Type ("" for any) -> GPUs of a node's Gres, as in "gpu:h100:8(S:0-1),shard:16"; ValueError if not understood.

    Types are in lower case: Slurm does not tell cases apart.
    """
    known: dict[str, int] = {}
    for entry in re.split(r",(?![^(]*\))", gres if gres != "(null)" else ""):
        name, *words = _SUFFIX.sub("", entry).split(":")
        if name != "gpu":
            continue
        words = [word for word in words if word != "no_consume"]
        count = int(words.pop()) if words and words[-1].isdecimal() else 1
        if len(words) > 1 or "" in words:
            raise ValueError(f"slurmctld's Gres={gres} is not understood")
        kind = words[0].lower() if words else ""
        known[kind] = known.get(kind, 0) + count
    return known


def shown(counts: Mapping[str, int]) -> str:
    """Counts as in slurm.conf: gpu:h100:8,gpu:a100:2."""
    return ",".join(f"gpu:{name}:{count}" if name else f"gpu:{count}" for name, count in counts.items())


def excess(due: Mapping[str, int], at_controller: Mapping[str, int], *, by_type: bool) -> str:
    """GPUs that slurmctld expects and the host does not have, for which it would drain the node; "" if none.

    `by_type`: False for the types of NVML, of whose names a type of slurm.conf may be a part (gres.conf(5), Type); they
    are compared where the totals are equal, as slurmctld decides which GPUs count if there are more.
    """
    total, most = sum(due.values()), sum(at_controller.values())
    has = due.get if by_type else partial(_with_part, due)
    is_compared = by_type or most == total
    lacking = [name for name, count in at_controller.items() if is_compared and name and count > (has(name) or 0)]
    if most <= total and not lacking:
        return ""
    return f"slurmctld expects {shown(at_controller)}, and the host has {shown(due)}"


def _with_part(due: Mapping[str, int], name: str) -> int:
    """GPUs of whose type the name is a part."""
    return sum(count for kind, count in due.items() if name in kind)


def remaining(node: str, due: Mapping[str, int], at_controller: Mapping[str, int]) -> str:
    """Change of slurm.conf after which slurmctld uses all GPUs; "" if it does."""
    if sum(at_controller.values()) >= sum(due.values()):
        return ""
    have = shown(at_controller) or "no GPU"
    return (
        f"slurmctld has {have} for {node}: put GresTypes=gpu, and Gres={shown(due)} in its NodeName line, into "
        "slurm.conf of slurmctld and of the nodes, then restart slurmctld"
    )
