"""Deploy an environment: preflight, diff, apply, wait. The other cluster commands share its connection and plan."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass, replace
from typing import Literal
from urllib.parse import urlsplit

from gpuctl.cluster import manifests
from gpuctl.cluster.clusterfile.model import Cluster as File
from gpuctl.cluster.deploy import (
    account_grant,
    apply,
    checks,
    deployed_state,
    dry_runs,
    grow,
    memlock,
    prune,
    read_snapshot,
    wait,
)
from gpuctl.cluster.deploy.apply import Applied
from gpuctl.cluster.deploy.model import Change, Plan, ProgressListener
from gpuctl.cluster.environment import BY, Environment, EnvironmentRequest, Mode, Object, environment
from gpuctl.cluster.manifests import storage
from gpuctl.core.errors import GpuctlError, InvalidInput
from gpuctl.domain.findings import Finding, Verdict
from gpuctl.domain.kube_errors import Forbidden, NotFound
from gpuctl.edges.kube import cluster as kube
from gpuctl.edges.kube.cluster import Cluster

RequestedMode = Literal["rdma", "tcp", "auto"]
DEPLOYED_BY = f"metadata.annotations[{BY}]"


@dataclass(frozen=True)
class PlanRequest:
    """A request to deploy. `mode` and `nodes` None keep what is deployed, else they are the file's defaults.

    `auto` is RDMA, or TCP if the cluster lacks only what RDMA needs.
    """

    mode: RequestedMode | None = None
    nodes: int | None = None
    name: str = ""
    actor: str = ""
    single: bool = False


def connect(file: File, context: str = "", patience_s: float = 60) -> Cluster:
    """Connect to the file's cluster; raises `InvalidInput` if the kubeconfig leads to another one."""
    cluster = kube.connect(context, file.cluster.namespace, patience_s=patience_s)
    if not same_server(cluster.server, file.cluster.api):
        wrong = f"the kubeconfig's context leads to {cluster.server}, and the cluster file is for {file.cluster.api}"
        raise InvalidInput(f"use the cluster {file.cluster.name}", wrong, "pass the right --context")
    return cluster


def same_server(first: str, second: str) -> bool:
    """Return True if two URLs name the same port of the same host."""
    return _address(first) == _address(second)


def _address(url: str) -> tuple[str | None, int]:
    at = urlsplit(url)
    return at.hostname, at.port or (443 if at.scheme == "https" else 80)


# ---- planning -------------------------------------------------------------------------------------------------------


def plan(cluster: Cluster, file: File, request: PlanRequest) -> Plan:
    """Plan a deployment without changing anything; changes are computed only if the preflight passes."""
    if request.mode != "auto":
        return _with_changes(cluster, _checked(cluster, _environment(cluster, file, request)))
    if not file.network.rdma.enabled:
        checked = _checked(cluster, _environment(cluster, file, replace(request, mode="tcp")))
        return _with_changes(cluster, replace(checked, fell_back="the cluster file does not enable RDMA"))
    checked = _checked(cluster, _environment(cluster, file, replace(request, mode="rdma")))
    if checked.failed:
        without = _checked(cluster, _environment(cluster, file, replace(request, mode="tcp")))
        if not without.failed:
            why = "; ".join(f"{finding.subject}: {finding.message}" for finding in checked.failed)
            checked = replace(without, fell_back=why)
    return _with_changes(cluster, checked)


def _environment(cluster: Cluster, file: File, request: PlanRequest) -> Environment:
    """Complete the request: what it leaves open stays as it is deployed, else it is the file's default."""
    mode = None if request.mode == "auto" else request.mode
    completed = EnvironmentRequest(mode, request.nodes, request.name, request.actor, request.single)
    env = environment(file, completed)
    with contextlib.suppress(Forbidden):  # the preflight reports it, with all other missing rights
        if mode is None and (deployed := deployed_state.mode(cluster, env)) and _allows(file, deployed):
            completed = replace(completed, mode=deployed)
        if request.nodes is None and not request.single:
            # Scaled to no pod: the file's default, which is shown as a change.
            completed = replace(completed, nodes=deployed_state.nodes(cluster, env) or None)
        env = environment(file, completed)
    return replace(env, built=deployed_state.built(cluster, env))


def _allows(file: File, mode: Mode) -> bool:
    return mode == "tcp" or file.network.rdma.enabled


def _checked(cluster: Cluster, env: Environment) -> Plan:
    """The preflight alone."""
    try:
        grant = account_grant.find_grant(cluster, env)
        env = account_grant.with_grant(env, grant)
        states = read_snapshot.object_states(cluster, manifests.everything(env))
        findings = checks.all_of(env, read_snapshot.take_snapshot(cluster, env, states), states)
        findings += account_grant.findings(env, grant)
        findings += memlock.check_limit(cluster, env, pods_of(cluster, env))
    except GpuctlError as error:
        error.hint = error.hint or f"is {env.cluster.cluster.api} up, and are you logged in?"
        raise
    return Plan(env, findings, (), [state for state in states if not state.optional_kind_missing])


def _with_changes(cluster: Cluster, checked: Plan) -> Plan:
    if checked.failed:
        return checked
    live = [state.live for state in checked.states]
    desired = apply.filled(checked.env, [state.desired for state in checked.states], live)
    states = [replace(state, desired=whole) for state, whole in zip(checked.states, desired, strict=True)]
    leftovers, unread = prune.unwanted(cluster, checked.env, desired)

    def dry_run(desired: Object, *, force: bool) -> Object:
        return cluster.apply(desired, dry_run=True, force=force)

    small = grow.too_small(checked.env, _claims(cluster, checked.env))
    grown, kept = grow.changes(dry_run, small)
    # Volumes first: pods that are created later then get volumes of the same size.
    changes = [*grown, *dry_runs.changes(dry_run, checked.env, states), *prune.removals(leftovers)]
    unknown = [Finding("leftovers", checked.env.name, Verdict.UNKNOWN, why) for why in unread]
    findings = [*checked.findings, *kept, *unknown]
    return replace(checked, changes=changes, states=[*states, *small], leftovers=leftovers, findings=findings)


def _claims(cluster: Cluster, env: Environment) -> list[Object]:
    """List the claims of the environment; empty if they may not be read, which the preflight reports."""
    with contextlib.suppress(Forbidden):
        return cluster.find(cluster.kind("v1", "PersistentVolumeClaim"), env.labels) if storage.templates(env) else []
    return []


# ---- applying -------------------------------------------------------------------------------------------------------


def refuse(plan: Plan) -> None:
    """Raise `GpuctlError` if something stands against the plan; nothing was changed."""
    doing = f"deploy {plan.env.name}"
    if plan.failed:
        first = plan.failed[0]
        more = f"; and {len(plan.failed) - 1} more of the preflight" if len(plan.failed) > 1 else ""
        raise GpuctlError(doing, f"{first.check}: {first.subject}: {first.message}{more}", first.hint)
    for change in plan.changes:
        if change.action == "refused":
            raise GpuctlError(doing, f"{change.subject}: {change.note}", "nothing was changed")
        if change.action == "take-over" and not plan.take_over:
            hint = "nothing was changed; `gpuctl cluster diff` shows both values, --take-over sets them back"
            raise GpuctlError(doing, f"{change.subject}: {change.note}", hint)


def deploy(cluster: Cluster, plan: Plan, tell: ProgressListener, limit_s: float, applied: Applied) -> list[Finding]:
    """Apply a plan and wait for the pods (`limit_s` 0 does not wait); returns what can only be checked in pods."""
    refuse(plan)
    apply.apply(cluster, plan, tell, applied)
    if not limit_s:
        return []
    wait.wait(cluster, plan.env, tell, limit_s)
    return memlock.check_limit(cluster, plan.env, pods_of(cluster, plan.env))


def pods_of(cluster: Cluster, env: Environment) -> list[Object]:
    """List the environment's pods; empty if they may not be read."""
    with contextlib.suppress(Forbidden, NotFound):
        return cluster.find(cluster.kind("v1", "Pod"), env.selector)
    return []


def scaling(plan: Plan) -> Plan:
    """Check that a plan only scales; raises `GpuctlError` if more would change, or nothing is deployed."""
    doing = f"scale {plan.env.name}"
    if not plan.failed and not any(s.live and s.desired["kind"] == "StatefulSet" for s in plan.states):
        raise InvalidInput(doing, "it is not deployed", "`gpuctl cluster deploy --nodes N` deploys it")
    other = [change for change in plan.changes if change.action != "same" and not _only_counts(change)]
    if other:
        wrong = f"more would change than the number of pods: {', '.join(change.subject for change in other)}"
        raise InvalidInput(doing, wrong, "`gpuctl cluster diff` shows it, `deploy --nodes` brings it")
    return plan


def _only_counts(change: Change) -> bool:
    of_pods = change.kind == "StatefulSet" and {field.path for field in change.fields} <= {"spec.replicas", DEPLOYED_BY}
    of_hosts = change.kind == "ConfigMap" and {field.path for field in change.fields} <= {"data.hostfile", DEPLOYED_BY}
    of_others = {field.path for field in change.fields} == {DEPLOYED_BY}
    return change.action in ("change", "take-over") and (of_pods or of_hosts or of_others)
