"""Probe all pods of an environment concurrently, and judge."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from gpuctl.cluster.deploy import deployed_state
from gpuctl.cluster.environment import CONTAINER, Environment
from gpuctl.cluster.probe import flow, judge
from gpuctl.cluster.probe.model import Facts, ProbeRequest
from gpuctl.cluster.selftest import judge as more
from gpuctl.cluster.train.prepare import pods_of, pods_to_use
from gpuctl.core.sizes import size
from gpuctl.domain.findings import Finding, Verdict
from gpuctl.edges.kube.cluster import Cluster
from gpuctl.remote.model import PodTarget


@dataclass(frozen=True)
class Row:
    """One pod in the table: its equipment, "?" if unknown, and its verdict."""

    pod: str
    node: str
    verdict: Verdict
    gpus: str
    driver: str
    shm: str
    rdma: str
    memlock: str


@dataclass(frozen=True)
class TestReport:
    """Result of a test."""

    env: Environment
    rows: Sequence[Row]
    findings: Sequence[Finding]


def run_test(cluster: Cluster, env: Environment, python: str) -> TestReport:
    """Probe and judge. The mode is the deployed one, if it can be read."""
    env = replace(env, mode=deployed_state.mode(cluster, env) or env.mode)
    pods, count = pods_of(cluster, env), pods_to_use(cluster, env)
    targets = [PodTarget(cluster, env.pod_name(rank), CONTAINER, python=python) for rank in range(count)]
    listed = [target for target in targets if target.pod in pods]
    facts: list[Facts] = []
    hosts = [env.host(rank) for rank in range(count)]
    ssh_hosts = {env.pod_name(0): hosts}
    if listed:
        facts, _ = flow.probe(listed, ProbeRequest(hosts, ssh=ssh_hosts, whole=True))
    findings = [
        *judge.pods(env, count, pods),
        *judge.unread(facts),
        *judge.gpus(env, facts, env.cluster.gpus.per_node, exactly=True),
        *more.health(facts),
        *more.drivers(facts),
        *more.shared_memory(env, facts),
        *more.workspace(facts),
        *more.rdma(env, facts),
        *judge.hostfile(env, count, facts, needed=True),
        *judge.names(facts),
        *[replace(finding, verdict=Verdict.WARN) for finding in judge.ssh(facts, ssh_hosts)],
    ]
    nodes = {name: str(pod["spec"].get("nodeName") or "-") for name, pod in pods.items()}
    by_pod = {answer.pod: answer for answer in facts}
    rows = [_row(target.pod, nodes.get(target.pod, "-"), by_pod.get(target.pod), findings) for target in targets]
    return TestReport(env, rows, findings)


def _row(pod: str, node: str, facts: Facts | None, findings: Sequence[Finding]) -> Row:
    verdict = _worst([finding.verdict for finding in findings if finding.subject == pod])
    if facts is None or facts.unread:
        return Row(pod, node, Verdict.FAIL, *["?"] * 5)
    answer, details = facts.answer, facts.details or {}
    shm, lock = answer["shm"], answer["memlock"]
    devices = answer["devices"]["infiniband"]
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
    return next((verdict for verdict in order if verdict in verdicts), Verdict.OK)
