"""Decide what ends work, and refuse what must not be ended. What is not known to be the user's needs consent."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from gpuctl.domain.gpu_owners import Kind
from gpuctl.nodes.acts.model import Consent, End, Means, Plan
from gpuctl.nodes.acts.target import Work, job_of
from gpuctl.nodes.judge import label
from gpuctl.nodes.model import Facts, Node, Process, User

IDENTITY = ("pid", "start_ticks", "since", "uid", "cgroup")
ONLY_RESET = "only a reset of the GPU (`gpuctl nodes reset`) or a reboot of the node helps"
FORCE = "--force --reason TEXT ends it nevertheless"
STATIC_UID = re.compile(r"[0-9a-f]{32}")
SYSTEM_NAMESPACES = re.compile(r"kube-.*|openshift-.*|gpu-operator.*|nvidia-.*")
MIRROR = "kubernetes.io/config.mirror"
JOB_USER = re.compile(r"(.+)\((\d+)\)")


def decide(node: Node, facts: Facts, work: Work, consent: Consent) -> Plan:
    """Acts that end this work, and the reasons against each."""
    ends = tuple(_end(facts, user, processes) for user, processes in work)
    refusals = [
        reason
        for end, (user, processes) in zip(ends, work, strict=True)
        for reason in [*_against(facts, end, processes), *_lacks(end, consent)]
    ]
    return Plan(node.name, ends, tuple(dict.fromkeys(refusals)))


def _lacks(end: End, consent: Consent) -> list[str]:
    """Missing consent; whose a job is, Slurm itself is asked (`job_lacks`)."""
    return [] if end.means is Means.JOB else consent_lacks(end.label, consent, mine=end.mine)


def consent_lacks(label: str, consent: Consent, *, mine: bool) -> list[str]:
    """Reasons against ending work that is not known to be the user's."""
    if consent.force and not consent.reason.strip():
        return ["--force needs --reason: its owner finds it in the record and in the log of the node"]
    return [] if mine or consent.force else [f"{label} is not yours, as far as the node knows; {FORCE}"]


def _end(facts: Facts, user: User, processes: tuple[Process, ...]) -> End:
    details = facts["processes"] or {}
    if user.kind == Kind.SLURM:
        return End(Means.JOB, label(user), user.who, processes, job=job_of(user), mine=user.mine)
    if user.kind == Kind.POD:
        namespace, _, name = user.who.rpartition("/")
        uid = user.details.get("pod_uid", "")
        return End(Means.POD, f"pod {user.who}", user.who, processes, pod=uid, namespace=namespace, name=name)
    rows = [details[str(process.pid)] for process in processes if str(process.pid) in details]
    shown = tuple({name: row[name] for name in IDENTITY} for row in rows)
    names = ", ".join(f"{process.name} ({process.pid})" for process in processes)
    return End(Means.SIGNALS, f"{names} of {user.who}", user.who, processes, shown, mine=user.mine, notes=_notes(user))


def _notes(user: User) -> tuple[str, ...]:
    if user.kind == Kind.SERVICE:
        return (f"systemd may start {user.who} again; `systemctl stop {user.who}` on the node ends it for good",)
    if user.kind == Kind.CONTAINER:
        return ("its runtime may start the container again; stopping the container ends it for good",)
    return ()


def _against(facts: Facts, end: End, processes: tuple[Process, ...]) -> Iterator[str]:
    yield from (f"{p.name} ({p.pid}) serves everybody on the node, and is never ended" for p in processes if p.daemon)
    if end.means is Means.JOB:
        if not end.job:
            yield f"the number of {end.label} is unknown: `scontrol listpids` on the node may tell it"
        return
    if end.means is Means.POD:
        if STATIC_UID.fullmatch(end.pod):
            yield f"{end.label} is a static pod: the kubelet starts it again until its file on the node is removed"
        return
    yield from _against_signals(facts, end, processes)


def _against_signals(facts: Facts, end: End, processes: tuple[Process, ...]) -> Iterator[str]:
    if facts["pid_namespace"] != "initial":
        yield "the answer comes from inside a container, where pids may mean other processes: log in to the host itself"
    known = {row["pid"] for row in end.shown if None not in (row["start_ticks"], row["since"])}
    for process in processes:
        name = f"{process.name} ({process.pid})"
        if process.pid not in known:
            yield f"{name} cannot be compared later: its start is unknown"
        elif process.state == "D":
            yield f"{name} waits in the kernel (state D) and ignores signals: {ONLY_RESET}"
        elif process.state == "Z":
            yield f"{name} has ended already, and is a zombie: {ONLY_RESET}"


def against_pod(pod: Mapping[str, Any] | None, end: End, consent: Consent) -> list[str]:
    """Reasons not to delete a pod, given the object of its name; None if there is none."""
    if pod is None:
        return [f"{end.label} is not in this cluster (any more)"]
    meta = pod["metadata"]
    if end.pod and meta["uid"] != end.pod:
        return [f"{end.label} was replaced: the pod of this name is another one now"]
    namespace, spec = meta["namespace"], pod.get("spec") or {}
    reasons = []
    if MIRROR in (meta.get("annotations") or {}):
        reasons.append(f"{end.label} is a static pod: the kubelet starts it again until its file is removed")
    if SYSTEM_NAMESPACES.fullmatch(namespace) or str(spec.get("priorityClassName", "")).startswith("system-"):
        reasons.append(f"{end.label} serves the cluster, and is never ended here")
    if not any(owner.get("controller") for owner in meta.get("ownerReferences") or ()) and not consent.bare_pods:
        reasons.append(f"{end.label} has no controller: nothing starts it again; --without-controller deletes it")
    return reasons


def job_lacks(job: Mapping[str, str], end: End, me: frozenset[str], consent: Consent) -> list[str]:
    """Reasons against cancelling a job, by the user that Slurm names."""
    match = JOB_USER.fullmatch(job.get("UserId", ""))
    person = match[1] if match else ""
    mine = bool(person) and person in me and person != "root"
    return consent_lacks(f"job {end.job} of {person or 'an unknown user'}", consent, mine=mine)
