"""Shape of the facts of a node: hosts are not trusted, and files are edited."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from gpuctl.engine import answers

NUMBER, TEXT, FLAG = (int, type(None)), (str, type(None)), (bool, type(None))
CLIENT = {"pid": NUMBER, "name": TEXT, "used_mib": NUMBER, "type": str, "gi": NUMBER, "ci": NUMBER}
INSTANCE = {"gi": NUMBER, "ci": NUMBER, "uuid": TEXT, "memory_mib": NUMBER, "used_mib": NUMBER}
GPU = {
    "uuid": TEXT,
    "minor": NUMBER,
    "model": TEXT,
    "mig": TEXT,
    "memory_mib": NUMBER,
    "used_mib": NUMBER,
    "busy_percent": NUMBER,
    "instances": [INSTANCE],
    "errors": dict,
    "unread": dict,
}
PROCESS = {
    "pid": int,
    "name": str,
    "command": TEXT,
    "state": TEXT,
    "blocked_in": TEXT,
    "since": NUMBER,
    "start_ticks": NUMBER,
    "uid": NUMBER,
    "login_uid": NUMBER,
    "cgroup": TEXT,
    "mounts": str,
    "slurm": dict,
}
VALUES = {
    "driver": TEXT,
    "attached": NUMBER,
    "on_bus": NUMBER,
    "product": TEXT,
    "login": TEXT,
    "now": NUMBER,
    "sees_all": FLAG,
    "slurmd": FLAG,
    "kubelet": FLAG,
    "pid_namespace": TEXT,
}
# None if they could not be read.
ROWS = {
    "gpus": GPU,
    "pod_devices": {"pod": str, "container": TEXT, "resource": str, "devices": [str]},
    "slurm_jobs": {"job": TEXT, "sluid": TEXT, "number": TEXT, "gpus": (list, type(None))},
}
MAPPINGS: Mapping[str, Any] = {
    "processes": PROCESS,
    "pods": {"namespace": str, "name": str},
    "containers": {"name": TEXT, "image": TEXT},
    "sessions": {"user": TEXT, "service": TEXT, "remote": TEXT, "tty": TEXT},
    "users": str,
    "slurm_pids": [str],
    "unread": str,
}


def nothing_read(facts: Mapping[str, Any]) -> bool:
    """True if the whole reading failed; then `unread` has the reason alone."""
    return "*" in facts["unread"]


def misfit(facts: Any) -> str:
    """Path of the first value of another shape, with the reason; "" if there is none."""
    if not isinstance(facts, Mapping) or not isinstance(facts.get("unread"), dict):
        return "it has no facts of GPUs"
    if nothing_read(facts):
        return answers.misfit(facts["unread"]["*"], str, "unread.*")
    rows = {name: [shape] for name, shape in ROWS.items() if facts.get(name, 0) is not None}
    mappings = {**dict.fromkeys(MAPPINGS, dict), **dict.fromkeys(("processes", "open_by"), (dict, type(None)))}
    wrong = answers.misfit(facts, {**VALUES, **rows, **mappings})
    return wrong or next(filter(None, _inner(facts)), "")


def _inner(facts: Mapping[str, Any]) -> list[str]:
    mappings = [(name, shape, facts[name] or {}) for name, shape in MAPPINGS.items()]
    pairs = [(f"{name}.{key}", value, shape) for name, shape, rows in mappings for key, value in rows.items()]
    pairs += [(f"open_by.{pid}", minors, [int]) for pid, minors in (facts["open_by"] or {}).items()]
    pairs += [("open_by", pid, _DIGITS) for pid in facts["open_by"] or {} if not pid.isdigit()]
    for number, gpu in enumerate(facts["gpus"] or ()):
        for name in ("processes", "displays"):
            if gpu.get(name, 0) is not None:
                pairs.append((f"gpus[{number}].{name}", gpu.get(name, 0), [CLIENT]))
    pairs += [("slurm_jobs.gpus", row["gpus"], [int]) for row in facts["slurm_jobs"] or () if row["gpus"] is not None]
    pairs += [("slurm_pids", ids, frozenset()) for ids in facts["slurm_pids"].values() if not ids]
    texts = [text for gpu in facts["gpus"] or () for text in [*gpu["errors"].values(), *gpu["unread"].values()]]
    variables = [text for one in (facts["processes"] or {}).values() if isinstance(one, dict) for text in _texts(one)]
    return [answers.misfit(value, shape, place) for place, value, shape in pairs] + [
        answers.misfit(text, str, "a reason or variable") for text in [*texts, *variables]
    ]


def _texts(process: Mapping[str, Any]) -> list[Any]:
    slurm = process.get("slurm")
    return list(slurm.values()) if isinstance(slurm, dict) else []


_DIGITS = frozenset({"a number"})
