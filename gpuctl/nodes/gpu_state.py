"""State of each GPU of a node: idle only if nothing contradicts it, and nothing that decides it is unknown."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from gpuctl.core.text import named
from gpuctl.engine import gpu_use
from gpuctl.nodes.allocations import Allocations
from gpuctl.nodes.model import PRECEDENCE, Facts, Gpu, Instance, State

Row = Mapping[str, Any]
# Services of the GPUs themselves: no work, and never ended on behalf of a user.
DAEMONS = frozenset(
    [
        "nvidia-persistenced",
        "nv-hostengine",
        "nvidia-cuda-mps-server",
        "nvidia-cuda-mps-control",
        "nv-fabricmanager",
        "nvidia-imex",
        "nvlsm",
        "nvsm",
        "dcgm-exporter",
        "Xorg",
    ]
)
MPS = "nvidia-cuda-mps"
NO_PROCESS = "no process on it"


def is_daemon(row: Row) -> bool:
    """True for a row of nvidia-smi that is no work; its name may be a path with arguments."""
    return row["type"] == "G" or program(row["name"]) in DAEMONS


def program(name: str | None) -> str:
    """Name of the program in nvidia-smi's name of a process."""
    return (name or "").strip().partition(" ")[0].rpartition("/")[2]


def gpus(facts: Facts, allocated: Allocations) -> tuple[Gpu, ...]:
    """All GPUs that nvidia-smi lists, in its order."""
    blind = _blind(facts)
    return tuple(_gpu(facts, index, row, allocated, blind) for index, row in enumerate(facts["gpus"] or ()))


def _blind(facts: Facts) -> str:
    """Reason why a GPU without a listed process may have one; "" if there is none."""
    if facts["pid_namespace"] == "nested":
        return "processes outside of this container are hidden by its pid namespace"
    if facts["pid_namespace"] is None:
        reason = facts["unread"].get("pid_namespace", "/proc/self/ns/pid could not be read")
        return f"whether all processes can be seen from there is not known: {reason}"
    return "" if facts["sees_all"] else "other users' processes are hidden there (hidepid); ask as root"


def _gpu(facts: Facts, index: int, row: Row, allocated: Allocations, blind: str) -> Gpu:
    rows: Sequence[Row] = row["processes"] or ()
    instances = tuple(_instance(facts, index, row, one, allocated, blind) for one in row["instances"])
    if instances:
        state = next(state for state in PRECEDENCE if any(one.state is state for one in instances))
        why = next((one.why for one in instances if one.state is state), "")
    else:
        state, why = _state(facts, row, rows, row["used_mib"], allocated.of(index), allocated, blind)
    return Gpu(
        index,
        row["uuid"],
        row["model"],
        state,
        why,
        row["memory_mib"],
        row["used_mib"],
        row["busy_percent"],
        mig=row["mig"] == "Enabled",
        instances=instances,
        holders=tuple(sorted(allocated.labels[key] for key in allocated.of(index))),
        shared=index in allocated.shared,
        mps=any(one["type"].startswith("M") or program(one["name"]).startswith(MPS) for one in rows),
    )


def _instance(facts: Facts, index: int, row: Row, one: Row, allocated: Allocations, blind: str) -> Instance:  # noqa: PLR0913, PLR0917 - parts of one reading
    rows = [client for client in row["processes"] or () if client["gi"] in (one["gi"], None)]
    if one["ci"] is not None:
        rows = [client for client in rows if client["ci"] in (one["ci"], None)]
    state, why = _state(facts, row, rows, one["used_mib"], allocated.of(index, one["gi"]), allocated, blind)
    return Instance(one["gi"], one["ci"], state, why, one["memory_mib"], one["used_mib"])


def _state(  # noqa: PLR0913, PLR0917 - parts of one reading
    facts: Facts,
    row: Row,
    rows: Sequence[Row],
    used_mib: int | None,
    holders: set[tuple[str, str]],
    allocated: Allocations,
    blind: str,
) -> tuple[State, str]:
    if any(not is_daemon(one) for one in rows):
        return State.USED, ""
    unknown = _unread(row) or blind
    if not unknown and used_mib is None:
        unknown = f"its memory in use is not known: {row['unread'].get('used_mib', 'nvidia-smi does not report it')}"
    limit = gpu_use.unused_limit(facts["driver"])
    if unknown:
        more = f"; {used_mib} MiB are in use" if (used_mib or 0) > limit else ""
        return State.UNKNOWN, unknown + more
    if (used_mib or 0) > limit and not rows and not row["displays"]:
        return State.MEMORY_IN_USE, f"{used_mib} MiB are in use, and {NO_PROCESS}"
    if holders:
        return State.RESERVED, f"{named(sorted(allocated.labels[key] for key in holders), 2)} has it, and {NO_PROCESS}"
    return (State.UNKNOWN, allocated.unknown) if allocated.unknown else (State.IDLE, "")


def _unread(row: Row) -> str:
    """Reason why a GPU's list of processes means nothing; "" if it is good."""
    errors = list(dict.fromkeys(text.strip("[] ") for text in row["errors"].values()))
    if errors:
        return f'nvidia-smi reports "{named(errors, 2)}"'
    if row["processes"] is None:
        return f"nvidia-smi lists no processes: {row['unread'].get('processes', 'the GPU does not report them')}"
    return ""
