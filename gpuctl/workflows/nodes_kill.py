"""End somebody's work on a node: read it, decide, and act through its owner. Only what was shown is ever hit."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from gpuctl.core.errors import GpuctlError, InvalidInput
from gpuctl.core.run_history import current_user
from gpuctl.domain.kube_errors import Conflict, NotFound
from gpuctl.edges.kube import cluster as kube
from gpuctl.edges.kube.cluster import Cluster, Object
from gpuctl.hosts.fan_out import run_on_all
from gpuctl.hosts.model import HostResult, Target
from gpuctl.nodes import node_use
from gpuctl.nodes.acts import decide
from gpuctl.nodes.acts.model import Consent, End, Means, Outcome, Plan
from gpuctl.nodes.acts.target import choose
from gpuctl.nodes.model import Facts, nothing_read
from gpuctl.workflows import nodes as flow
from gpuctl.workflows.recorded_act import Entry, recorded

POLL_S = 0.5
KILL_S = 10.0  # beyond the grace time of processes, for the node to end its act
POD_GRACE_S = 30  # of a pod that names none
MORE_S = 15.0  # beyond its grace time, for the kubelet to report the end
ENDED = ("ended", "killed")
ORDER = ("unknown", "denied", "refused", "changed", "left")  # the worst decides about an act


@dataclass(frozen=True)
class Kill:
    """Work on a node that has been read. `host`: None if only the API is asked. `jobs`: number -> fields of Slurm.

    `pods`: label -> object of the API.
    """

    plan: Plan
    host: Target | None
    cluster: Cluster | None
    jobs: Mapping[str, Mapping[str, str]]
    pods: Mapping[str, Object]
    timeout_s: float


def read(host: Target, what: str, context: str, consent: Consent, timeout_s: float) -> Kill:
    """Work of a node that a word names, with what would end it, and everything that is against it."""
    facts = flow.ask_one(host, timeout_s)
    if nothing_read(facts):
        raise GpuctlError(f"read the GPUs of {host.name}", facts["unread"]["*"])
    facts = {**facts, "processes": facts["processes"] or {}}
    node = node_use.node(host.name, facts, flow.me())
    if node.why:
        raise GpuctlError(f"read the GPUs of {host.name}", node.why, "nothing can be ended that cannot be read")
    plan = decide.decide(node, facts, choose(node, facts, what), consent)
    kill = Kill(plan, host, kube.connect(context) if context else None, {}, {}, timeout_s)
    return _with_pods(_with_jobs(kill, facts, consent), consent)


def read_api(context: str, node: str, what: str, consent: Consent, timeout_s: float) -> Kill:
    """Pod of a node by the API of its cluster alone; the node itself is not asked."""
    cluster = kube.connect(context)
    name = what.removeprefix("pod:")
    namespace, _, short = name.rpartition("/")
    pods = [
        pod
        for pod in cluster.find_everywhere(cluster.kind("v1", "Pod"), f"spec.nodeName={node}")
        if pod["metadata"]["name"] == short and namespace in ("", pod["metadata"]["namespace"])
    ]
    if len(pods) != 1:
        hint = "without --inventory the node itself is not asked, so only a pod can be named; add its namespace"
        number = "several pods have" if pods else "no pod has"
        raise InvalidInput(f"end the work {what!r} on {node}", f"{number} this name", hint)
    meta = pods[0]["metadata"]
    label = f"pod {meta['namespace']}/{meta['name']}"
    end = End(Means.POD, label, label, pod=meta["uid"], namespace=meta["namespace"], name=meta["name"])
    plan = Plan(node, (end,), tuple(decide.consent_lacks(label, consent, mine=False)))
    return _with_pods(Kill(plan, None, cluster, {}, {}, timeout_s), consent)


def _refuse(kill: Kill, reasons: Sequence[str]) -> Kill:
    refusals = tuple(dict.fromkeys([*kill.plan.refusals, *reasons]))
    return replace(kill, plan=replace(kill.plan, refusals=refusals))


def _with_jobs(kill: Kill, facts: Facts, consent: Consent) -> Kill:
    """Read the jobs of the plan from Slurm, on the node itself: how they are named there identifies their run."""
    me = flow.me() | ({facts["login"]} if facts["login"] else set())
    for end in kill.plan.ends:
        if end.means is not Means.JOB or not end.job:
            continue
        answer = _act(kill, {"act": "cancel job", "job": end.job, "check": True}, 30)
        if answer.answer is None or answer.answer["act"]["job"] is None:
            why = answer.wrong or answer.answer["act"]["reason"] if answer.answer else answer.wrong
            kill = _refuse(kill, [f"Slurm on {kill.plan.node} does not describe job {end.job}: {why or 'it ended'}"])
            continue
        job = answer.answer["act"]["job"]
        kill = replace(_refuse(kill, decide.job_lacks(job, end, me, consent)), jobs={**kill.jobs, end.job: job})
    return kill


def _with_pods(kill: Kill, consent: Consent) -> Kill:
    """Read the pods of the plan from the API."""
    cluster = kill.cluster
    for end in kill.plan.ends:
        if end.means is not Means.POD:
            continue
        if cluster is None:
            hint = "--context NAME deletes the pod; the kubelet starts again what is killed inside"
            kill = _refuse(kill, [f"{end.label} belongs to Kubernetes: {hint}"])
        elif not end.namespace:
            kill = _refuse(kill, [f"the name of {end.label} is unknown on the node"])
        else:
            pod = _pod(cluster, end)
            kill = replace(kill, pods={**kill.pods, end.label: pod or {}})
            kill = _refuse(kill, decide.against_pod(pod, end, consent))
    return kill


def _pod(cluster: Cluster, end: End) -> Object | None:
    at = Cluster(cluster.client, end.namespace, cluster.patience_s)
    return at.get(at.kind("v1", "Pod"), end.name)


def carry_out(kill: Kill, command: Sequence[str], consent: Consent, grace_s: float) -> tuple[list[Outcome], str]:
    """Act, with a record around it; outcomes in the order of the plan, and the name of the run."""
    if kill.plan.refusals:
        raise InvalidInput(f"end this work on {kill.plan.node}", "\n  ".join(kill.plan.refusals))
    shown = {"act": "kill", "reason": consent.reason, "shown": [_plain(kill, end) for end in kill.plan.ends]}
    outcomes: list[Outcome] = []
    with recorded(command, {kill.plan.node: shown}) as entry:
        for end in kill.plan.ends:
            outcomes.append(_carry_out(kill, end, entry.name, consent, grace_s))
            _note(entry, kill, outcomes)
        entry.exit_code = exit_code(outcomes)
    return outcomes, entry.name


def exit_code(outcomes: Sequence[Outcome]) -> int:
    """0 if all is ended, 1 if something is left, 3 if it was not done or its end is unknown."""
    if all(one.is_done for one in outcomes):
        return 0
    return 1 if all(one.is_done or one.state == "left" for one in outcomes) else 3


def _note(entry: Entry, kill: Kill, outcomes: Sequence[Outcome]) -> None:
    states = [one.state for one in outcomes if not one.is_done]
    is_whole = len(outcomes) == len(kill.plan.ends)
    status = "unfinished" if not is_whole else "ended" if not states else min(states, key=ORDER.index)
    entry.update(kill.plan.node, status=status, outcomes=[vars(one) for one in outcomes])


def _plain(kill: Kill, end: End) -> dict[str, Any]:
    """What was shown, for the record."""
    rows = [
        {"pid": p.pid, "start_ticks": p.start_ticks, "name": p.name, "command": p.command, "gpus": list(p.gpus)}
        for p in end.processes
    ]
    more: dict[str, Any] = {"pod_uid": end.pod} if end.pod else {}
    more |= {"job": dict(kill.jobs[end.job])} if end.job in kill.jobs else {}
    return {"means": str(end.means), "what": end.label, "who": end.who, "processes": rows, **more}


def _carry_out(kill: Kill, end: End, run: str, consent: Consent, grace_s: float) -> Outcome:
    if end.means is Means.POD:
        return _delete(kill, end, grace_s)
    about = {"about": end.label, "actor": current_user(), "reason": f"{consent.reason} ({run})".strip()}
    if end.means is Means.JOB:
        return _cancel(kill, end, about, grace_s)
    return _signal(kill, end, about, grace_s)


def _act(kill: Kill, request: Mapping[str, Any], limit_s: float) -> HostResult:
    if kill.host is None:
        raise RuntimeError("an act on a node needs its login")
    whole = {"action": "act", **request}
    [result] = run_on_all([kill.host], lambda _: whole, forks=1, timeout_s=limit_s, on_result=lambda _: None)
    return result


def _signal(kill: Kill, end: End, about: Mapping[str, str], grace_s: float) -> Outcome:
    request = {"act": "end processes", "processes": [dict(row) for row in end.shown], "grace_s": grace_s, **about}
    result = _act(kill, request, kill.timeout_s + grace_s)
    if result.answer is not None:
        rows = result.answer["act"]["processes"]
        return _of_rows(end, rows, result.answer["act"]["by_descriptor"])
    return _after_loss(kill, end, request, result)


def _of_rows(end: End, rows: Sequence[Mapping[str, Any]], by_descriptor: bool) -> Outcome:
    """One outcome of several processes: the worst of them."""
    states = [row["state"] for row in rows]
    bad = [state for state in states if state in ORDER]
    state = min(bad, key=ORDER.index) if bad else "ended" if any(one in ENDED for one in states) else "gone"
    reasons = "; ".join(dict.fromkeys(row["reason"] for row in rows if row["reason"]))
    return Outcome(end.label, state, reasons, {"processes": list(rows), "pidfd": by_descriptor})


def _after_loss(kill: Kill, end: End, request: Mapping[str, Any], lost: HostResult) -> Outcome:
    """Outcome of an act whose connection was lost: the node is queried until the act must be over, and does nothing.

    What runs there goes on without us: it ends what was shown, and nothing else.
    """
    limit = time.monotonic() + float(request["grace_s"]) + KILL_S
    while True:
        again = _act(kill, {**request, "check": True}, kill.timeout_s)
        rows = again.answer["act"]["processes"] if again.answer is not None else None
        left = [row for row in rows or () if row["state"] in ("runs", "refused")]
        if (rows is not None and not left) or time.monotonic() > limit:
            break
        time.sleep(POLL_S)
    if rows is None:
        hint = "it may have got signals: `gpuctl nodes` shows what is left"
        return Outcome(end.label, "unknown", f"{lost.wrong}; {hint}", {"lost": lost.wrong})
    details = {"lost": lost.wrong, "processes": rows}
    if not left:
        return Outcome(end.label, "ended", f"the connection was lost ({lost.wrong}), and it has ended", details)
    pids = ", ".join(str(row["pid"]) for row in left)
    return Outcome(end.label, "left", f"the connection was lost ({lost.wrong}); these processes run: {pids}", details)


def _cancel(kill: Kill, end: End, about: Mapping[str, str], grace_s: float) -> Outcome:
    request = {"act": "cancel job", "job": end.job, "shown": dict(kill.jobs[end.job]), "grace_s": grace_s, **about}
    result = _act(kill, request, kill.timeout_s + grace_s)
    if result.answer is None:
        wrong = f"{result.wrong}; `squeue -j {end.job}` shows whether it runs"
        return Outcome(end.label, "unknown", wrong)
    answer = result.answer["act"]
    return Outcome(end.label, answer["state"], answer["reason"], {"job": answer["job"]})


def _delete(kill: Kill, end: End, grace_s: float) -> Outcome:
    """Delete a pod with its uid as the precondition, and wait for its end."""
    cluster, pod = kill.cluster, kill.pods[end.label]
    if cluster is None:
        raise RuntimeError("a pod is deleted through the API")
    try:
        cluster.delete_exactly(pod)
    except NotFound:
        return Outcome(end.label, "gone")
    except Conflict as error:
        return Outcome(end.label, "changed", f"it was replaced: {error.wrong}")
    own_grace_s = (pod.get("spec") or {}).get("terminationGracePeriodSeconds") or POD_GRACE_S
    limit = time.monotonic() + max(grace_s, own_grace_s + MORE_S)
    while True:
        now = _pod(cluster, end)
        if now is None or now["metadata"]["uid"] != pod["metadata"]["uid"]:
            return Outcome(end.label, "ended", "" if now is None else "its successor has started")
        if time.monotonic() > limit:
            since = now["metadata"].get("deletionTimestamp")
            return Outcome(end.label, "left", f"it is terminating since {since}; is the kubelet of its node up?")
        time.sleep(POLL_S)
