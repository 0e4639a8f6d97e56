"""How a cluster is asked: many things at once, nothing twice, and what one may not see is told."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import cast

from gpuctl.cluster.deploy import prune, read_snapshot
from gpuctl.cluster.environment import Environment, Object
from gpuctl.cluster.manifests import KINDS, VOLUMES, everything
from gpuctl.domain.kube_errors import Forbidden
from gpuctl.edges.kube.cluster import Cluster, Kind
from tests.rig.cluster.snapshots import env_of


@dataclass
class RecordingCluster:
    """A cluster that serves all but OpenShift's kinds, and notes what it is asked."""

    env: Environment
    found: dict[str, list[Object]] = field(default_factory=dict)
    closed: str = ""
    asked: list[str] = field(default_factory=list)
    together: int = 0
    _now: int = 0
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def serves(self, api_version: str, kind: str) -> bool:
        self.asked.append(api_version)
        return "openshift" not in api_version

    def kind(self, api_version: str, kind: str) -> Kind:
        return Kind(api_version, kind, f"{kind.lower()}s", namespaced=True)

    def kind_of(self, wanted: Object) -> Kind:
        return self.kind(wanted["apiVersion"], wanted["kind"])

    def get(self, kind: Kind, name: str) -> Object | None:
        self.asked.append(f"{kind.kind} {name}")
        return None

    def find(self, kind: Kind, labels: Mapping[str, str]) -> list[Object]:
        assert labels == self.env.labels
        with self._lock:
            self._now += 1
            self.together = max(self.together, self._now)
        threading.Event().wait(0.02)
        with self._lock:
            self._now -= 1
        if kind.kind == self.closed:
            raise Forbidden(f"list {kind.plural}", "you may not")
        return self.found.get(kind.kind, [])


def ours(env: Environment, kind: str, name: str) -> Object:
    return {"kind": kind, "metadata": {"name": name, "labels": env.labels}}


def test_what_a_group_serves_is_asked_once_before_anything_of_it(tmp_path: Path) -> None:
    env = env_of(tmp_path)
    cluster, wanted = RecordingCluster(env), everything(env)
    found = read_snapshot.object_states(cast(Cluster, cluster), wanted)
    groups = {each["apiVersion"] for each in wanted}
    assert sorted(cluster.asked[: len(groups)]) == sorted(groups)
    assert sorted(cluster.asked[len(groups) :]) == sorted(each.subject for each in found)
    assert [each.desired for each in found] == wanted


def test_what_is_of_no_use_any_more_is_looked_for_in_all_kinds_at_once(tmp_path: Path) -> None:
    env = env_of(tmp_path)
    names = [("Role", "lab-scc"), ("ConfigMap", "lab-start"), ("ConfigMap", "lab-older"), ("Ingress", "lab-jupyter")]
    found = {kind: [ours(env, *each) for each in names if each[0] == kind] for kind, _ in names}
    cluster = RecordingCluster(env, found, closed="Secret")
    left, unread = prune.unwanted(cast(Cluster, cluster), env, everything(env))
    # In the order in which kinds are made, whoever answered first.
    assert [each["metadata"]["name"] for each in left] == ["lab-scc", "lab-older", "lab-jupyter"]
    assert unread == ["you may not"]
    assert cluster.together > 1


def test_volumes_are_never_of_no_use(tmp_path: Path) -> None:
    env = env_of(tmp_path)
    found = {kind: [ours(env, kind, "lab-other")] for _, kind in KINDS}
    left, _ = prune.unwanted(cast(Cluster, RecordingCluster(env, found)), env, [])
    kinds = {each["kind"] for each in left}
    assert VOLUMES[1] not in kinds
    assert {"ConfigMap", "Secret", "StatefulSet"} <= kinds
