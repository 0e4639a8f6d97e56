"""Work on a node by a word of the user: a GPU, process, pod or job. A number must mean one thing only."""

from __future__ import annotations

import re

from gpuctl.core.errors import InvalidInput
from gpuctl.core.text import named
from gpuctl.domain.gpu_owners import Kind
from gpuctl.nodes.model import Facts, Node, Process, User

_UUID = r"(GPU|MIG)-\S+"
_DNS = r"[a-z0-9]([-a-z0-9.]*[a-z0-9])?"
SHAPES = {
    "gpu": rf"[0-9]+|{_UUID}",
    "pid": "[0-9]+",
    "job": r"[0-9A-Za-z][0-9A-Za-z_.+-]*",  # a number, one of an array (9_3), or a SLUID
    "pod": rf"({_DNS}/)?{_DNS}",
}
EXAMPLES = "3, gpu:3, pid:4711 or job:9"
Work = list[tuple[User, tuple[Process, ...]]]


def choose(node: Node, facts: Facts, text: str) -> Work:
    """Users with those of their processes that are meant; `InvalidInput` if it is nothing, or several things.

    A pod or job is meant as a whole, of others the processes on the GPU, or the one process.
    """
    kinds, value = meanings(text)
    matches = {one: work for one in kinds if (work := _of_kind(node, facts, one, value)) is not None}
    doing = f"end the work {text!r} on {node.name}"
    if len(matches) > 1:
        raise InvalidInput(doing, f"it is a {' and a '.join(matches)}", f"write {next(iter(matches))}:{value}")
    if not matches:
        raise InvalidInput(doing, f"no {' or '.join(kinds)} of this name uses a GPU", "`gpuctl nodes` lists what does")
    [(one, work)] = matches.items()
    if not work:
        raise InvalidInput(doing, f"no process is on {one} {value}", _idle_hint(node, value))
    return work


def check(text: str, node: str, *, on_node: bool, in_cluster: bool) -> None:
    """`InvalidInput` for a word that names nothing that can be ended, before anything is read.

    `on_node`: the node is queried. `in_cluster`: its pods can be deleted through their API.
    """
    doing = f"end the work {text!r} on {node}"
    kinds, value = meanings(text)
    if not any(re.fullmatch(SHAPES[kind], value) for kind in kinds):
        raise InvalidInput(doing, f"this is no name of a {' or '.join(kinds)}", f"write {EXAMPLES}, or NAMESPACE/POD")
    if kinds == ["pod"] and not in_cluster:
        wrong = "it can only be a pod, and a pod is deleted through its API"
        raise InvalidInput(doing, wrong, f"add --context NAME, or write {EXAMPLES}")
    if "pod" not in kinds and not on_node:
        wrong = "without --inventory the node itself is not queried, so that only a pod can be named"
        raise InvalidInput(doing, wrong, "add --inventory NAME, or write pod:NAMESPACE/POD")


def meanings(text: str) -> tuple[list[str], str]:
    """Kinds that a word may mean, and the name without its prefix."""
    kind, _, value = text.partition(":")
    return ([kind], value) if kind in SHAPES and value else (_kinds(text), text)


def _kinds(value: str) -> list[str]:
    if value.isdigit():
        return ["gpu", "pid", "job"]
    return ["gpu"] if re.fullmatch(_UUID, value) else ["pod"]


def _of_kind(node: Node, facts: Facts, kind: str, value: str) -> Work | None:
    """Work of a kind; None if nothing has this name, empty for a GPU without processes."""
    if kind == "gpu":
        gpus = {gpu.index for gpu in node.gpus if value in (str(gpu.index), gpu.uuid)}
        return _on_gpus(node, gpus) if gpus else None
    if kind == "pid":
        return [(u, (p,)) for u in node.users for p in u.processes if str(p.pid) == value] or None
    if kind == "job":
        work: Work = [(user, user.processes) for user in node.users if job_of(user) == value]
        return work or _without_process(facts, value) or None
    names = [user for user in node.users if user.kind == Kind.POD and value in _names(user)]
    if len(names) > 1:
        several = f"several have this name: {named([user.who for user in names], 8)}"
        raise InvalidInput(f"end the pod {value} on {node.name}", several, "add its namespace")
    return [(user, user.processes) for user in names] or None


def _on_gpus(node: Node, gpus: set[int]) -> Work:
    work: Work = []
    for user in node.users:
        chosen = tuple(process for process in user.processes if gpus & set(process.gpus) and not process.daemon)
        if chosen:
            is_whole = user.kind in (Kind.POD, Kind.SLURM)
            work.append((user, user.processes if is_whole else chosen))
    return work


def _without_process(facts: Facts, job: str) -> Work:
    """A job of this node that has reserved GPUs, and has no process on them."""
    numbers = [row["number"] or row["job"] for row in facts["slurm_jobs"] or ()]
    return [(User(str(Kind.SLURM), "UNKNOWN", what=f"job {job}"), ())] if job in numbers else []


def _names(user: User) -> set[str]:
    return {user.who, user.who.rpartition("/")[2], user.details.get("pod_uid", "")} - {""}


def _idle_hint(node: Node, value: str) -> str:
    holders = [holder for gpu in node.gpus if value in (str(gpu.index), gpu.uuid) for holder in gpu.holders]
    return f"{holders[0]} has it: name that" if holders else "`gpuctl nodes` shows its state"


def job_of(user: User) -> str:
    """Number of a user's job; "" if it has none, or if the number is unknown."""
    words = user.what.split()
    return words[1] if user.kind == Kind.SLURM and len(words) > 1 and words[1].isdigit() else ""
