"""Use of nodes as Slurm shows it: which jobs were given which GPUs; it completes what nodes tell themselves."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from gpuctl.domain.gpu_owners import Kind
from gpuctl.domain.slurm_records import JobRecord, NodeRecord
from gpuctl.engine import fact_types, typed_json
from gpuctl.nodes.model import Facts, Node, SchedulerUse, SlurmState, User

HIDDEN = "Slurm does not show this job to everybody (PrivateData)"
OUTSIDE = "it is hidden from the job in which the node was asked"


def state_of(record: NodeRecord) -> SlurmState:
    """State of a node in Slurm."""
    return SlurmState(record.state, record.reason, record.by, record.since, record.partitions)


def node(record: NodeRecord, jobs: Sequence[JobRecord], now: int, me: frozenset[str], no_answer: str = "") -> Node:
    """Use of a node by Slurm alone; `me`: login names of the one who asks. `no_answer`: why the node gave none."""
    users = [_user(record.name, job, me) for job in jobs if record.name in job.gpus]
    users = [user for user in users if user.allocated or user.gpu_count]
    shown = sum(len(user.allocated) or user.gpu_count or 0 for user in users)
    hidden = sum(gres.count for gres in record.used or ()) - shown
    if hidden > 0:
        users.append(User(str(Kind.SLURM), "UNKNOWN", what="hidden job", why=HIDDEN, gpu_count=hidden))
    allocated = shown + max(0, hidden)
    return Node(
        record.name,
        " + ".join(dict.fromkeys(gres.type for gres in record.gpus if gres.type)),
        users=tuple(sorted(users, key=lambda user: (user.gpus or (record.total,), user.who))),
        total=max(record.total, allocated),
        now=now,
        reached=not no_answer,
        scheduler=SchedulerUse(allocated, source="slurm", no_answer=no_answer),
        slurm=state_of(record),
    )


def _user(node_name: str, job: JobRecord, me: frozenset[str]) -> User:
    numbers = _numbers(job, node_name)
    return User(
        str(Kind.SLURM),
        job.user,
        job.user,
        f"job {job.number}",
        job.details(),
        mine=job.user in me,
        gpu_count=sum(gres.count for gres in job.gpus[node_name]) if numbers is None else None,
        started=job.start,
        allocated=numbers or (),
    )


def _numbers(job: JobRecord, node_name: str) -> tuple[int, ...] | None:
    """Numbers of a job's GPUs on a node; None if Slurm prints none for a part of them."""
    numbers: set[int] = set()
    for gres in job.gpus[node_name]:
        if gres.count and gres.indices is None:
            return None
        numbers.update(gres.indices or ())
    return tuple(sorted(numbers))


def with_jobs(facts: Facts, record: NodeRecord, jobs: Sequence[JobRecord]) -> dict[str, Any]:
    """Facts of a node with the GPUs and users of jobs that the node itself cannot tell.

    What the node reads from the tasks of a job stays. If Slurm hides jobs, the node's own reading is all there is.
    """
    rows = {str(row["job"] or row["number"] or row["sluid"]): dict(row) for row in facts["slurm_jobs"] or ()}
    for job in jobs:
        if record.name not in job.gpus:
            continue
        numbers = _numbers(job, record.name)
        row = rows.setdefault(job.number, {"job": job.number, "sluid": None, "number": job.number, "gpus": None})
        row["user"] = job.user
        if row["gpus"] is None and numbers is not None:
            row["gpus"] = list(numbers)
    known = sum(len(row["gpus"] or ()) for row in rows.values())
    if facts["slurm_jobs"] is None and (record.used is None or known < sum(gres.count for gres in record.used)):
        return dict(facts)
    return {**facts, "slurm_jobs": list(rows.values())}


def as_outside(facts: Facts, record: NodeRecord) -> dict[str, Any]:
    """Facts that a step of a job read, which sees only the job's GPUs: each at its number, the others hidden."""
    gpus: list[Mapping[str, Any]] = list(facts["gpus"] or ())
    by_minor = {gpu["minor"]: gpu for gpu in gpus}
    if None in by_minor or len(by_minor) < len(gpus) or any(minor >= record.total for minor in by_minor):
        return dict(facts)
    return {**facts, "gpus": [by_minor.get(minor) or _hidden(minor) for minor in range(record.total)]}


def _hidden(minor: int) -> dict[str, Any]:
    """Facts of a GPU that is out of a step's sight."""
    nothing: dict[str, Any] = dict.fromkeys(typed_json.fields_of(fact_types.Gpu))
    return {**nothing, "minor": minor, "instances": [], "errors": {}, "unread": {"processes": OUTSIDE}}


def with_names(one: Node, record: NodeRecord, jobs: Sequence[JobRecord]) -> Node:
    """Node that was asked, with its state in Slurm, and with names, accounts and users of its jobs."""
    by_number = {job.number: job for job in jobs}
    users = tuple(_named(user, by_number) for user in one.users)
    return replace(one, users=users, slurm=state_of(record))


def _named(user: User, jobs: Mapping[str, JobRecord]) -> User:
    number = user.what.removeprefix("job ").partition(" ")[0]
    job = jobs.get(number) if user.kind == Kind.SLURM else None
    if job is None:
        return user
    unnamed = not user.person or user.person.startswith("uid ")
    who, person = (job.user, job.user) if unnamed else (user.who, user.person)
    return replace(user, who=who, person=person, details={**job.details(), **user.details})
