"""Prepare a training: which pods exist, what they answer, and what each would run. Nothing is started."""

from __future__ import annotations

import posixpath
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from gpuctl.cluster.deploy import deployed_state
from gpuctl.cluster.environment import CONTAINER, Environment, Object
from gpuctl.cluster.probe import flow, judge
from gpuctl.cluster.probe.model import Facts, ProbeRequest
from gpuctl.cluster.train import checks, launch
from gpuctl.cluster.train.launch import DS_ENV, GRACE_S, Launch
from gpuctl.cluster.train.request import Launcher, TrainRequest
from gpuctl.core.errors import GpuctlError, InvalidInput
from gpuctl.core.text import named
from gpuctl.domain.findings import Finding, Verdict
from gpuctl.edges.kube.cluster import Cluster
from gpuctl.remote.model import PodTarget

ALL_PROGRAMS = tuple(dict.fromkeys(name for names in launch.PROGRAMS.values() for name in names))


@dataclass(frozen=True)
class Ready:
    """A training that can be started unless something `failed`. `why`: the reason for a chosen launcher."""

    launch: Launch
    pods: Sequence[PodTarget]
    uids: Mapping[str, str]
    facts: Sequence[Facts]
    findings: Sequence[Finding]
    why: str = ""
    grace_s: float = GRACE_S

    @property
    def failed(self) -> list[Finding]:
        return [finding for finding in self.findings if finding.verdict is Verdict.FAIL]


def prepare(cluster: Cluster, env: Environment, request: TrainRequest) -> Ready:
    """Probe all pods concurrently and return every problem at once, within seconds."""
    pods = pods_of(cluster, env)
    deployed = pods_to_use(cluster, env)
    nodes = _nodes(request, env, deployed)
    targets = [PodTarget(cluster, env.pod_name(rank), CONTAINER, python=request.python) for rank in range(nodes)]
    listed = [target for target in targets if target.pod in pods]
    if not listed:
        wrong = f"none of its pods exists: {named(target.pod for target in targets)}"
        raise GpuctlError(f"train on {env.name}", wrong, "`gpuctl cluster status` says why")
    first = _launch(env, request, "deepspeed" if request.launcher == "auto" else request.launcher, nodes)
    probe = ProbeRequest(
        [env.host(rank) for rank in range(nodes)],
        script=request.path,
        programs=ALL_PROGRAMS,
        ssh=checks.ssh_hosts(first),
        port=env.cluster.ports.master if listed[0].pod == env.pod_name(0) else 0,
        ds_env=[posixpath.join(request.folder, path) if path[0] != "~" else path for path in DS_ENV],
    )
    facts, port_check = flow.probe(listed, probe)
    chosen, why = first, ""
    if request.launcher == "auto":
        answers = judge.read(facts)
        programs = [pod.answer["programs"] for pod in answers] or [{}]
        name, why = launch.chosen(programs, [pod.answer["no_ssh"] for pod in answers])
        chosen = _launch(env, request, name, nodes)
    launch.check(chosen)
    findings = checks.all_of(chosen, deployed, pods, facts, port_check)
    uids = {name: str(pod["metadata"]["uid"]) for name, pod in pods.items()}
    return Ready(chosen, targets, uids, facts, findings, why, launch.grace_s(env))


def _launch(env: Environment, request: TrainRequest, name: Launcher, nodes: int) -> Launch:
    processes = env.cluster.gpus.per_node if request.processes is None else request.processes
    return Launch(env, name, request.script, request.args, nodes, processes, request.folder, request.variables)


def _nodes(request: TrainRequest, env: Environment, deployed: int) -> int:
    if request.nodes is not None and request.nodes > deployed:
        wrong = f"{request.nodes} pods were asked for, and {env.name} has {deployed}"
        raise InvalidInput(f"train on {env.name}", wrong, "`gpuctl cluster scale --nodes` makes more")
    return request.nodes or deployed


def deployed_pods(cluster: Cluster, env: Environment) -> int:
    """Number of pods the environment requests; `GpuctlError` if it is not deployed."""
    count = 1 if env.single else deployed_state.nodes(cluster, env)
    if count is None:
        wrong = f"the namespace {env.namespace} has no environment of that name"
        raise GpuctlError(f"use {env.name}", wrong, "`gpuctl cluster deploy` makes it")
    return count


def pods_to_use(cluster: Cluster, env: Environment) -> int:
    """As `deployed_pods`; `GpuctlError` also if it is scaled to zero."""
    count = deployed_pods(cluster, env)
    if not count:
        raise GpuctlError(
            f"use {env.name}", "it is scaled to no pod", "`gpuctl cluster scale --nodes N --take-over` makes some"
        )
    return count


def pods_of(cluster: Cluster, env: Environment) -> dict[str, Object]:
    """The environment's pods by name."""
    return {pod["metadata"]["name"]: pod for pod in cluster.find(cluster.kind("v1", "Pod"), env.selector)}
