"""Asks all pods of an environment at the same time, and judges."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from gpuctl.cluster.deploy import deployed_state
from gpuctl.cluster.environment import CONTAINER, Environment
from gpuctl.cluster.probe import flow, judge
from gpuctl.cluster.probe.model import Facts, Wanted
from gpuctl.cluster.selftest import judge as more
from gpuctl.cluster.train.prepare import pods_of, pods_to_use
from gpuctl.core.sizes import size
from gpuctl.domain.findings import Finding, Verdict
from gpuctl.edges.kube.cluster import Cluster
from gpuctl.remote.model import There


@dataclass(frozen=True)
class Row:
    """A pod: what it has, "?" where nobody knows, and how it stands."""

    pod: str
    node: str
    verdict: Verdict
    gpus: str
    driver: str
    shm: str
    rdma: str
    memlock: str


@dataclass(frozen=True)
class Tested:
    """What came of it."""

    env: Environment
    rows: Sequence[Row]
    findings: Sequence[Finding]


def look(cluster: Cluster, env: Environment, python: str) -> Tested:
    """Ask, and judge. The mode is the one that is deployed, where that can be known."""
    env = replace(env, mode=deployed_state.mode(cluster, env) or env.mode)
    found, count = pods_of(cluster, env), pods_to_use(cluster, env)
    theirs = [There(cluster, env.pod_name(rank), CONTAINER, python=python) for rank in range(count)]
    listed = [each for each in theirs if each.pod in found]
    facts: list[Facts] = []
    hosts = [env.host(rank) for rank in range(count)]
    by_ssh = {env.pod_name(0): hosts}
    if listed:
        facts, _ = flow.ask(listed, Wanted(hosts, ssh=by_ssh, whole=True))
    findings = [
        *judge.pods(env, count, found),
        *judge.unread(facts),
        *judge.gpus(env, facts, env.cluster.gpus.per_node, exactly=True),
        *more.health(facts),
        *more.drivers(facts),
        *more.shared_memory(env, facts),
        *more.workspace(facts),
        *more.rdma(env, facts),
        *judge.hostfile(env, count, facts, needed=True),
        *judge.names(facts),
        *[replace(each, verdict=Verdict.WARN) for each in judge.ssh(facts, by_ssh)],
    ]
    nodes = {name: str(pod["spec"].get("nodeName") or "-") for name, pod in found.items()}
    by_pod = {each.pod: each for each in facts}
    rows = [_row(each.pod, nodes.get(each.pod, "-"), by_pod.get(each.pod), findings) for each in theirs]
    return Tested(env, rows, findings)


def _row(pod: str, node: str, facts: Facts | None, findings: Sequence[Finding]) -> Row:
    verdict = _worst([each.verdict for each in findings if each.subject == pod])
    if facts is None or facts.unread:
        return Row(pod, node, Verdict.FAIL, *["?"] * 5)
    told, details = facts.told, facts.details or {}
    shm, lock = told["shm"], told["memlock"]
    devices = told["devices"]["infiniband"]
    return Row(
        pod,
        node,
        verdict,
        "?" if facts.gpus is None else str(facts.gpus),
        str(details.get("driver") or "?"),
        "?" if "why" in shm else size(shm["bytes"]),
        ("none" if not devices else str(len(devices))),
        "unlimited" if lock["bytes"] is None else size(lock["bytes"]),
    )


def _worst(verdicts: Sequence[Verdict]) -> Verdict:
    order = (Verdict.FAIL, Verdict.UNKNOWN, Verdict.WARN)
    return next((each for each in order if each in verdicts), Verdict.OK)
