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
from gpuctl.cluster.deploy.model import Change, Plan, Tell
from gpuctl.cluster.environment import BY, Asked, Environment, Object, environment
from gpuctl.core.errors import GpuctlError, InvalidInput
from gpuctl.domain.findings import Finding, Verdict
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
    found = kube.connect(context, file.cluster.namespace, patience_s=patience_s)
    if not same_server(found.server, file.cluster.api):
        wrong = f"the kubeconfig's context leads to {found.server}, and the cluster file is for {file.cluster.api}"
        raise InvalidInput(f"use the cluster {file.cluster.name}", wrong, "give the right --context")
    return found


def same_server(one: str, other: str) -> bool:
    """Whether two URLs lead to the same port of the same host."""
    return _address(one) == _address(other)


def _address(url: str) -> tuple[str | None, int]:
    at = urlsplit(url)
    return at.hostname, at.port or (443 if at.scheme == "https" else 80)


# ---- what would be done ---------------------------------------------------------------------------------------------


def plan(cluster: Cluster, file: File, wish: Wish) -> Plan:
    """What a deployment would do; nothing is changed. Its changes are looked at only where the preflight passes."""
    if wish.mode != "auto":
        return _with_changes(cluster, _checked(cluster, _environment(cluster, file, wish)))
    if not file.network.rdma.enabled:
        found = _checked(cluster, _environment(cluster, file, replace(wish, mode="tcp")))
        return _with_changes(cluster, replace(found, fell_back="the cluster file does not enable RDMA"))
    found = _checked(cluster, _environment(cluster, file, replace(wish, mode="rdma")))
    if found.failed:
        without = _checked(cluster, _environment(cluster, file, replace(wish, mode="tcp")))
        if not without.failed:
            why = "; ".join(f"{each.subject}: {each.message}" for each in found.failed)
            found = replace(without, fell_back=why)
    return _with_changes(cluster, found)


def _environment(cluster: Cluster, file: File, wish: Wish) -> Environment:
    mode = None if wish.mode == "auto" else wish.mode
    asked = Asked(mode, wish.nodes, wish.name, wish.by, wish.single)
    made = environment(file, asked)
    if wish.nodes is None and not wish.single:
        with contextlib.suppress(Forbidden):  # which the preflight tells, with all else that we may not do
            made = environment(file, replace(asked, nodes=deployed_state.nodes(cluster, made)))
    return replace(made, built=deployed_state.built(cluster, made))


def _checked(cluster: Cluster, env: Environment) -> Plan:
    """The preflight alone."""
    try:
        standing = cluster_snapshot.standing(cluster, manifests.everything(env))
        found = checks.all_of(env, cluster_snapshot.look(cluster, env, standing), standing)
        found += memlock.look(cluster, env, pods_of(cluster, env))
    except GpuctlError as error:
        error.hint = error.hint or f"is {env.cluster.cluster.api} up, and are you logged in?"
        raise
    return Plan(env, found, (), [each for each in standing if not each.spared])


def _with_changes(cluster: Cluster, found: Plan) -> Plan:
    if found.failed:
        return found
    live = [each.live for each in found.standing]
    wanted = apply.filled(found.env, [each.wanted for each in found.standing], live)
    standing = [replace(each, wanted=whole) for each, whole in zip(found.standing, wanted, strict=True)]
    left, unread = prune.unwanted(cluster, found.env, wanted)
    changes = [*diff.changes(cluster, found.env, standing), *prune.removals(left)]
    unknown = [Finding("leftovers", found.env.name, Verdict.UNKNOWN, why) for why in unread]
    return replace(found, changes=changes, standing=standing, leftovers=left, findings=[*found.findings, *unknown])


# ---- doing it -------------------------------------------------------------------------------------------------------


def refuse(found: Plan) -> None:
    """`GpuctlError` with all that stands against the plan; nothing was touched."""
    doing = f"deploy {found.env.name}"
    if found.failed:
        first = found.failed[0]
        more = f"; and {len(found.failed) - 1} more of the preflight" if len(found.failed) > 1 else ""
        raise GpuctlError(doing, f"{first.check}: {first.subject}: {first.message}{more}", first.hint)
    for change in found.changes:
        if change.action == "refused":
            raise GpuctlError(doing, f"{change.subject}: {change.note}", "nothing was changed")


def deploy(cluster: Cluster, found: Plan, tell: Tell, limit_s: float, applied: Applied) -> list[Finding]:
    """Make the changes of a plan and wait for the pods; `limit_s` 0 does not wait. What only shows in pods."""
    refuse(found)
    apply.apply(cluster, found, tell, applied)
    if not limit_s:
        return []
    wait.wait(cluster, found.env, tell, limit_s)
    return memlock.look(cluster, found.env, pods_of(cluster, found.env))


def pods_of(cluster: Cluster, env: Environment) -> list[Object]:
    """The environment's pods, as far as the cluster tells."""
    with contextlib.suppress(Forbidden, NotThere):
        return cluster.find(cluster.kind("v1", "Pod"), env.selector)
    return []


def scaling(found: Plan) -> Plan:
    """The plan of a scale: `GpuctlError` where more than the number of pods would change, or nothing is there."""
    doing = f"scale {found.env.name}"
    if not found.failed and not any(s.live and s.wanted["kind"] == "StatefulSet" for s in found.standing):
        raise InvalidInput(doing, "it is not deployed", "`gpuctl cluster deploy` does it, with --nodes")
    other = [each for each in found.changes if each.action != "same" and not _only_counts(each)]
    if other:
        wrong = f"more would change than the number of pods: {', '.join(each.subject for each in other)}"
        raise InvalidInput(doing, wrong, "`gpuctl cluster diff` shows it, `deploy --nodes` brings it")
    return found


def _only_counts(change: Change) -> bool:
    of_pods = change.kind == "StatefulSet" and {each.path for each in change.fields} <= {"spec.replicas", DEPLOYED_BY}
    of_hosts = change.kind == "ConfigMap" and {each.path for each in change.fields} <= {"data.hostfile", DEPLOYED_BY}
    of_others = {each.path for each in change.fields} == {DEPLOYED_BY}
    return change.action == "change" and (of_pods or of_hosts or of_others)
