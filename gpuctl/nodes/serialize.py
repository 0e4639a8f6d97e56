"""Use of nodes as plain values, for JSON and YAML."""

from __future__ import annotations

from typing import Any

from gpuctl.nodes.model import Gpu, Node, Process, SlurmState, State, User
from gpuctl.nodes.summary import Group


def as_dict(node: Node) -> dict[str, Any]:
    """Keys of a node in the document (docs/nodes.md)."""
    return {
        "node": node.name,
        "type": node.type or None,
        "driver": node.driver or None,
        "gpus_total": node.total,
        "counts": {state.name.lower(): node.count(state) for state in State} if not node.why else None,
        "unknown": node.why or None,
        "source": "node" if node.scheduler is None else node.scheduler.source,
        "slurm": _slurm(node.slurm) if node.slurm else None,
        "gpus": [_gpu(node, gpu) for gpu in node.gpus],
        "users": [_user(user) for user in node.users],
    }


def _slurm(slurm: SlurmState) -> dict[str, Any]:
    return {
        "state": slurm.state,
        "reason": slurm.reason or None,
        "reason_by": slurm.by or None,
        "reason_since": slurm.since,
        "partitions": list(slurm.partitions),
    }


def group_as_dict(group: Group) -> dict[str, Any]:
    """Keys of a line of the summary."""
    counts = {state.name.lower(): group.gpus.get(state, 0) for state in State}
    return {"type": group.type, "nodes": group.nodes, "gpus": group.total, **counts, "nodes_unknown": group.silent}


def _gpu(node: Node, gpu: Gpu) -> dict[str, Any]:
    quiet = node.quiet.get(gpu.index)
    return {
        "index": gpu.index,
        "uuid": gpu.uuid,
        "model": gpu.model,
        "state": gpu.state.name.lower(),
        "reason": gpu.why or None,
        "memory_mib": gpu.memory_mib,
        "used_mib": gpu.used_mib,
        "busy_percent": gpu.busy_percent,
        "mig": gpu.mig,
        "instances": [
            {
                "gi": one.gi,
                "ci": one.ci,
                "state": one.state.name.lower(),
                "reason": one.why or None,
                "memory_mib": one.memory_mib,
                "used_mib": one.used_mib,
            }
            for one in gpu.instances
        ],
        "allocated_to": list(gpu.holders),
        "time_sliced": gpu.shared,
        "mps": gpu.mps,
        "quiet_s": quiet.seconds if quiet else None,
        "quiet_readings": quiet.readings if quiet else 0,
    }


def _user(user: User) -> dict[str, Any]:
    return {
        "kind": user.kind,
        "who": user.who,
        "person": user.person or None,
        "what": user.what or None,
        "since": user.since,
        "gpus": list(user.gpus),
        "gpu_count": len(user.gpus) if user.gpu_count is None else user.gpu_count,
        "used_mib": user.used_mib if user.processes else None,
        "service": user.daemon,
        "mine": user.mine,
        "foreign": {str(gpu): holder for gpu, holder in user.foreign.items()},
        "unallocated": list(user.unallocated),
        "reason": user.why or None,
        "details": dict(user.details),
        "processes": [_process(process) for process in user.processes],
    }


def _process(process: Process) -> dict[str, Any]:
    return {
        "pid": process.pid,
        "name": process.name,
        "command": process.command,
        "state": process.state,
        "since": process.since,
        "start_ticks": process.start_ticks,
        "gpus": list(process.gpus),
        "instances": [instance for _, instance in process.places if instance is not None],
        "used_mib": process.used_mib,
        "type": process.type or None,
        "context": process.context,
    }
