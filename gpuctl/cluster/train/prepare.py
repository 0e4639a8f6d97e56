"""Before a training: who is there, what the pods answer, and what each would run. Nothing is started."""

from __future__ import annotations

import posixpath
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from gpuctl.cluster.deploy import deployed_state
from gpuctl.cluster.environment import CONTAINER, Environment, Object
from gpuctl.cluster.probe import flow, judge
from gpuctl.cluster.probe.model import Facts, Wanted
from gpuctl.cluster.train import checks, launch
from gpuctl.cluster.train.launch import DS_ENV, Launch, Launcher
from gpuctl.core.errors import GpuctlError, InvalidInput
from gpuctl.core.text import named
from gpuctl.domain.findings import Finding, Verdict
from gpuctl.edges.kube.cluster import Cluster
from gpuctl.remote.model import There

ALL_PROGRAMS = tuple(dict.fromkeys(name for names in launch.PROGRAMS.values() for name in names))


@dataclass(frozen=True)
class Wish:
    """What somebody wants trained; where `processes` or `nodes` is None: all GPUs of a pod, all pods."""

    script: str
    args: Sequence[str] = ()
    launcher: Launcher | Literal["auto"] = "auto"
    processes: int | None = None
    nodes: int | None = None
    folder: str = "/workspace"
    variables: Mapping[str, str] = field(default_factory=dict)
    python: str = "python3"

    @property
    def path(self) -> str:
        return posixpath.join(self.folder, self.script)


@dataclass(frozen=True)
class Ready:
    """A training that can be started, unless something `failed`. `why`: why this launcher, where it was chosen."""

    launch: Launch
    pods: Sequence[There]
    uids: Mapping[str, str]
    facts: Sequence[Facts]
    findings: Sequence[Finding]
    why: str = ""

    @property
    def failed(self) -> list[Finding]:
        return [each for each in self.findings if each.verdict is Verdict.FAIL]


def prepare(cluster: Cluster, env: Environment, wish: Wish) -> Ready:
    """Ask all pods at the same time; all that stands against it at once, within seconds."""
    found = pods_of(cluster, env)
    deployed = pods_to_use(cluster, env)
    nodes = _nodes(wish, env, deployed)
    theirs = [There(cluster, env.pod_name(rank), CONTAINER, python=wish.python) for rank in range(nodes)]
    listed = [each for each in theirs if each.pod in found]
    if not listed:
        wrong = f"none of its pods is there: {named(each.pod for each in theirs)}"
        raise GpuctlError(f"train on {env.name}", wrong, "`gpuctl cluster status` says why")
    first = _launch(env, wish, "deepspeed" if wish.launcher == "auto" else wish.launcher, nodes)
    asked = Wanted(
        [env.host(rank) for rank in range(nodes)],
        script=wish.path,
        programs=ALL_PROGRAMS,
        ssh=checks.ssh_hosts(first),
        port=env.cluster.ports.master if listed[0].pod == env.pod_name(0) else 0,
        ds_env=[posixpath.join(wish.folder, path) if path[0] != "~" else path for path in DS_ENV],
    )
    facts, held = flow.ask(listed, asked)
    chosen, why = first, ""
    if wish.launcher == "auto":
        heard = judge.read(facts)
        programs = [each.told["programs"] for each in heard] or [{}]
        name, why = launch.chosen(programs, [each.told["no_ssh"] for each in heard])
        chosen = _launch(env, wish, name, nodes)
    launch.check(chosen)
    findings = checks.all_of(chosen, deployed, found, facts, held)
    uids = {name: str(pod["metadata"]["uid"]) for name, pod in found.items()}
    return Ready(chosen, theirs, uids, facts, findings, why)


def _launch(env: Environment, wish: Wish, name: Launcher, nodes: int) -> Launch:
    processes = env.cluster.gpus.per_node if wish.processes is None else wish.processes
    return Launch(env, name, wish.script, wish.args, nodes, processes, wish.folder, wish.variables)


def _nodes(wish: Wish, env: Environment, deployed: int) -> int:
    if wish.nodes is not None and wish.nodes > deployed:
        wrong = f"{wish.nodes} pods were asked for, and {env.name} has {deployed}"
        raise InvalidInput(f"train on {env.name}", wrong, "`gpuctl cluster scale --nodes` makes more")
    return wish.nodes or deployed


def deployed_pods(cluster: Cluster, env: Environment) -> int:
    """How many pods the environment is to have; `GpuctlError` where it is not deployed."""
    count = 1 if env.single else deployed_state.nodes(cluster, env)
    if count is None:
        wrong = f"the namespace {env.namespace} has no environment of that name"
        raise GpuctlError(f"use {env.name}", wrong, "`gpuctl cluster deploy` makes it")
    return count


def pods_to_use(cluster: Cluster, env: Environment) -> int:
    """The same; `GpuctlError` also where it is to have none."""
    count = deployed_pods(cluster, env)
    if not count:
        raise GpuctlError(f"use {env.name}", "it is scaled to no pod", "`gpuctl cluster scale --nodes` makes some")
    return count


def pods_of(cluster: Cluster, env: Environment) -> dict[str, Object]:
    """The environment's pods by their names."""
    return {each["metadata"]["name"]: each for each in cluster.find(cluster.kind("v1", "Pod"), env.selector)}
