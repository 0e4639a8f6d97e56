"""Deploys an environment: preflight, diff, apply, wait; and what the other commands begin with."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass, replace
from typing import Literal
from urllib.parse import urlsplit

from gpuctl.cluster import manifests
from gpuctl.cluster.clusterfile.model import Cluster as File
from gpuctl.cluster.deploy import apply, checks, cluster_snapshot, deployed_state, diff, memlock, prune, wait
from gpuctl.cluster.deploy.apply import Applied
from gpuctl.cluster.deploy.model import Change, Finding, Plan, Tell
from gpuctl.cluster.environment import BY, Asked, Environment, Object, environment
from gpuctl.core.errors import GpuctlError, InvalidInput
from gpuctl.domain.findings import Verdict
from gpuctl.edges.kube import cluster as kube
from gpuctl.edges.kube.cluster import Cluster
from gpuctl.edges.kube.errors import Forbidden, NotThere

AskedMode = Literal["rdma", "tcp", "auto"]
DEPLOYED_BY = f"metadata.annotations[{BY}]"


@dataclass(frozen=True)
class Wish:
    """What somebody wants deployed. Where `nodes` is None as many as are there, else what the file says.

    `auto`: RDMA, and TCP where the cluster cannot give what only RDMA needs.
    """

    mode: AskedMode | None = None
    nodes: int | None = None
    name: str = ""
    by: str = ""
    single: bool = False


def connect(file: File, context: str = "", patience_s: float = 60) -> Cluster:
    """The cluster that the file is for; `InvalidInput` where the kubeconfig leads elsewhere."""
    cluster = kube.connect(context, file.cluster.namespace, patience_s=patience_s)
    if not same_server(cluster.server, file.cluster.api):
        wrong = f"the kubeconfig's context leads to {cluster.server}, and the cluster file is for {file.cluster.api}"
        raise InvalidInput(f"use the cluster {file.cluster.name}", wrong, "give the right --context")
    return cluster


def same_server(first: str, second: str) -> bool:
    """Whether two URLs lead to the same port of the same host."""
    return _address(first) == _address(second)


def _address(url: str) -> tuple[str | None, int]:
    at = urlsplit(url)
    return at.hostname, at.port or (443 if at.scheme == "https" else 80)


# ---- what would be done ---------------------------------------------------------------------------------------------


def plan(cluster: Cluster, file: File, request: Wish) -> Plan:
    """What a deployment would do; nothing is changed. Its changes are looked at only where the preflight passes."""
    if request.mode != "auto":
        return _with_changes(cluster, _checked(cluster, _environment(cluster, file, request)))
    if not file.network.rdma.enabled:
        checked = _checked(cluster, _environment(cluster, file, replace(request, mode="tcp")))
        return _with_changes(cluster, replace(checked, fell_back="the cluster file does not enable RDMA"))
    checked = _checked(cluster, _environment(cluster, file, replace(request, mode="rdma")))
    if checked.failed:
        without = _checked(cluster, _environment(cluster, file, replace(request, mode="tcp")))
        if not without.failed:
            why = "; ".join(f"{finding.subject}: {finding.words}" for finding in checked.failed)
            checked = replace(without, fell_back=why)
    return _with_changes(cluster, checked)


def _environment(cluster: Cluster, file: File, request: Wish) -> Environment:
    mode = None if request.mode == "auto" else request.mode
    wanted_env = Asked(mode, request.nodes, request.name, request.by, request.single)
    env = environment(file, wanted_env)
    if request.nodes is None and not request.single:
        with contextlib.suppress(Forbidden):  # which the preflight tells, with all else that we may not do
            env = environment(file, replace(wanted_env, nodes=deployed_state.nodes(cluster, env)))
    return replace(env, built=deployed_state.built(cluster, env))


def _checked(cluster: Cluster, env: Environment) -> Plan:
    """The preflight alone."""
    try:
        states = cluster_snapshot.standing(cluster, manifests.everything(env))
        findings = checks.all_of(env, cluster_snapshot.look(cluster, env, states), states)
        findings += memlock.look(cluster, env, pods_of(cluster, env))
    except GpuctlError as error:
        error.hint = error.hint or f"is {env.cluster.cluster.api} up, and are you logged in?"
        raise
    return Plan(env, findings, (), [state for state in states if not state.spared])


def _with_changes(cluster: Cluster, checked: Plan) -> Plan:
    if checked.failed:
        return checked
    live = [state.live for state in checked.standing]
    desired = apply.filled(checked.env, [state.wanted for state in checked.standing], live)
    states = [replace(state, wanted=whole) for state, whole in zip(checked.standing, desired, strict=True)]
    leftovers, unread = prune.unwanted(cluster, checked.env, desired)
    changes = [*diff.changes(cluster, checked.env, states), *prune.removals(leftovers)]
    unknown = [Finding("leftovers", checked.env.name, Verdict.UNKNOWN, why) for why in unread]
    return replace(
        checked, changes=changes, standing=states, leftovers=leftovers, findings=[*checked.findings, *unknown]
    )


# ---- doing it -------------------------------------------------------------------------------------------------------


def refuse(plan: Plan) -> None:
    """`GpuctlError` with all that stands against the plan; nothing was touched."""
    doing = f"deploy {plan.env.name}"
    if plan.failed:
        first = plan.failed[0]
        more = f"; and {len(plan.failed) - 1} more of the preflight" if len(plan.failed) > 1 else ""
        raise GpuctlError(doing, f"{first.check}: {first.subject}: {first.words}{more}", first.hint)
    for change in plan.changes:
        if change.action == "refused":
            raise GpuctlError(doing, f"{change.subject}: {change.note}", "nothing was changed")


def deploy(cluster: Cluster, plan: Plan, tell: Tell, limit_s: float, applied: Applied) -> list[Finding]:
    """Make the changes of a plan and wait for the pods; `limit_s` 0 does not wait. What only shows in pods."""
    refuse(plan)
    apply.apply(cluster, plan, tell, applied)
    if not limit_s:
        return []
    wait.wait(cluster, plan.env, tell, limit_s)
    return memlock.look(cluster, plan.env, pods_of(cluster, plan.env))


def pods_of(cluster: Cluster, env: Environment) -> list[Object]:
    """The environment's pods, as far as the cluster tells."""
    with contextlib.suppress(Forbidden, NotThere):
        return cluster.find(cluster.kind("v1", "Pod"), env.selector)
    return []


def scaling(plan: Plan) -> Plan:
    """The plan of a scale: `GpuctlError` where more than the number of pods would change, or nothing is there."""
    doing = f"scale {plan.env.name}"
    if not plan.failed and not any(s.live and s.wanted["kind"] == "StatefulSet" for s in plan.standing):
        raise InvalidInput(doing, "it is not deployed", "`gpuctl cluster deploy` does it, with --nodes")
    other = [change for change in plan.changes if change.action != "same" and not _only_counts(change)]
    if other:
        wrong = f"more would change than the number of pods: {', '.join(change.subject for change in other)}"
        raise InvalidInput(doing, wrong, "`gpuctl cluster diff` shows it, `deploy --nodes` brings it")
    return plan


def _only_counts(change: Change) -> bool:
    of_pods = change.kind == "StatefulSet" and {field.path for field in change.fields} <= {"spec.replicas", DEPLOYED_BY}
    of_hosts = change.kind == "ConfigMap" and {field.path for field in change.fields} <= {"data.hostfile", DEPLOYED_BY}
    of_others = {field.path for field in change.fields} == {DEPLOYED_BY}
    return change.action == "change" and (of_pods or of_hosts or of_others)
