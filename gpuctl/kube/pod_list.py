"""Read the pods of a context, and one of them with its events, through the API; nothing is changed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from gpuctl.core.errors import GpuctlError
from gpuctl.domain.findings import Finding
from gpuctl.domain.kube_errors import NotFound
from gpuctl.edges.kube import cluster as kube
from gpuctl.edges.kube import config
from gpuctl.edges.kube.cluster import Cluster, Object
from gpuctl.engine import printable
from gpuctl.kube import pod_rows
from gpuctl.kube.logs_ai import facts, judge
from gpuctl.kube.logs_ai.flow import Redactor
from gpuctl.kube.logs_ai.model import Events
from gpuctl.kube.pod import Scope
from gpuctl.kube.pod_rows import PodRow
from gpuctl.kube.pod_secrets import literals

PATIENCE_S = 10.0  # for a cluster that does not answer


@dataclass(frozen=True)
class PodDetail:
    """A pod in full. `facts` and `events`: lines without secrets."""

    row: PodRow
    findings: Sequence[Finding]
    facts: Sequence[str]
    events: Sequence[str]


class PodReader:
    """Reads pods of one context; "" in `scope`: the current one, which stays the same after a later switch.

    `context` and `namespace`: names of those that are read, as the kubeconfig has them.
    """

    def __init__(self, scope: Scope) -> None:
        """Read the kubeconfig; `InvalidInput` without a context of this name. The cluster is not contacted."""
        active = None if scope.context else config.current(*config.files())
        self.context = scope.context or (active.name if active else "")
        # By its name: the current one may be another by now. Without one, connect says so.
        self._cluster = kube.connect(self.context, scope.namespace, patience_s=PATIENCE_S)
        self.namespace = self._cluster.namespace

    def list_all(self) -> list[PodRow]:
        """List the pods of all namespaces; `Forbidden` without the right to."""
        return self._rows(self._cluster.find_everywhere_by(self._cluster.kind("v1", "Pod"), {}))

    def list_namespace(self) -> list[PodRow]:
        """List the pods of the namespace."""
        return self._rows(self._cluster.find(self._cluster.kind("v1", "Pod"), {}))

    @staticmethod
    def _rows(pods: Sequence[Object]) -> list[PodRow]:
        return pod_rows.rows([_without_secrets(pod) for pod in pods], datetime.now(UTC))

    def detail(self, name: str, namespace: str = "") -> PodDetail:
        """Read a pod and its events; `NotFound` if it does not exist."""
        cluster = Cluster(self._cluster.client, namespace or self.namespace, PATIENCE_S)
        found = cluster.get(cluster.kind("v1", "Pod"), name)
        if found is None:
            doing, wrong = f"read the pod {name}", f"the namespace {cluster.namespace} has none of that name"
            raise NotFound(doing, wrong, "`gpuctl kube pods -A` lists those of all namespaces")
        redactor = Redactor(literals(found))
        pod = redactor.record(found)
        events = facts.of_events(_events(cluster, found, redactor))
        row = pod_rows.row(pod, datetime.now(UTC))
        return PodDetail(
            row,
            [redactor.finding(finding) for finding in row.findings],
            redactor.lines(facts.of_pod(pod)),
            redactor.lines(events),
        )


def _without_secrets(pod: Object) -> Object:
    """Pod whose messages have no secrets; those of a pod without a fault are not shown."""
    return Redactor(literals(pod)).record(pod) if judge.of_status(pod) else pod


def _events(cluster: Cluster, pod: Object, redactor: Redactor) -> Events:
    meta = pod["metadata"]
    fields = f"involvedObject.kind=Pod,involvedObject.name={meta['name']},involvedObject.uid={meta['uid']}"
    try:
        items = cluster.find_by(cluster.kind("v1", "Event"), fields)
    except GpuctlError as error:
        return Events(why=printable(error.wrong))
    return Events([redactor.record(item) for item in items])
