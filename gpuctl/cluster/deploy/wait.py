"""Wait until all pods of an environment are ready in their current form, and report the progress of each."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from gpuctl.cluster.deploy import pod_progress
from gpuctl.cluster.deploy.model import ProgressListener
from gpuctl.cluster.deploy.pod_progress import PodProgress
from gpuctl.cluster.environment import Environment, Object
from gpuctl.core.errors import GpuctlError
from gpuctl.domain.kube_errors import Forbidden
from gpuctl.domain.pod_status import REVISION, is_ready
from gpuctl.edges.kube.cluster import Cluster, Kind
from gpuctl.edges.kube.pod_watch import Pods

LOOK_S = 1.0
EVENTS_S = 3.0
POD_EVENTS, SET_EVENTS = "involvedObject.kind=Pod", "involvedObject.kind=StatefulSet"


class NotReady(GpuctlError):
    """Pods are not ready; what was applied stays, and they may still become ready."""


@dataclass(frozen=True)
class EnvironmentView:
    """The environment at one moment; `owner` is its StatefulSet, or None."""

    pods: Mapping[str, Object]
    owner: Object | None
    events: Sequence[Object] = ()
    claims: Sequence[Object] = ()


def wait(cluster: Cluster, env: Environment, tell: ProgressListener, limit_s: float) -> None:
    """Wait until all pods are ready; raises `NotReady` with the reasons on timeout, or once it is hopeless."""
    end, reporter = time.monotonic() + limit_s, PodChangeReporter(tell)
    with Pods(cluster, env.selector) as pods:
        reader, version = ViewReader(cluster, env), 0
        while True:
            pods.check()
            version = pods.wait(version, min(LOOK_S, max(0.05, end - time.monotonic())))
            if pods.latest is None and time.monotonic() < end:
                continue
            view = reader.view(pods.latest or {})
            states = states_of(env, view)
            reporter.report(states)
            if is_done(env, view):
                return
            late = time.monotonic() > end
            if late or any(state.hopeless for state in states.values()):
                raise NotReady(f"deploy {env.name}", _words(env, states, limit_s if late else 0), HINT)


HINT = "what was applied stays: `gpuctl cluster status` shows the progress, `destroy` removes it"


def states_of(env: Environment, view: EnvironmentView) -> dict[str, PodProgress]:
    """Return the progress of each desired pod by name, and of pods that still exist beyond those."""
    names = [env.pod_name(rank) for rank in range(env.nodes)]
    states = {name: _state(name, view) for name in names}
    return {**states, **{name: _state(name, view) for name in view.pods if name not in states}}


def _state(name: str, view: EnvironmentView) -> PodProgress:
    pod = view.pods.get(name)
    if pod is None:
        about = [event for event in _of(view.events, view.owner) if f"Pod {name} " in str(event.get("message"))]
        return PodProgress("does not exist yet", trouble=pod_progress.warning(about[-1:]))
    return pod_progress.state(pod, _of(view.events, pod), view.claims)


def _of(events: Sequence[Object], about: Object | None) -> list[Object]:
    """Return the events of exactly this object, not of an earlier one of its name; oldest first."""
    uid = about["metadata"]["uid"] if about else ""
    mine = [event for event in events if (event.get("involvedObject") or {}).get("uid") == uid]
    return sorted(mine, key=lambda event: str(event.get("lastTimestamp") or event.get("eventTime") or ""))


def is_done(env: Environment, view: EnvironmentView) -> bool:
    """Return True if exactly the desired pods exist, are ready, and are of the current revision."""
    if set(view.pods) != {env.pod_name(rank) for rank in range(env.nodes)}:
        return False
    if any("deletionTimestamp" in pod["metadata"] or not is_ready(pod) for pod in view.pods.values()):
        return False
    return env.single or (view.owner is not None and _is_current(view.owner, view.pods))


def _is_current(owner: Object, pods: Mapping[str, Object]) -> bool:
    status = owner.get("status") or {}
    if status.get("observedGeneration", 0) < owner["metadata"]["generation"]:
        return False
    revision = status.get("updateRevision")
    return all(pod["metadata"]["labels"].get(REVISION) == revision for pod in pods.values())


def _words(env: Environment, states: Mapping[str, PodProgress], limit_s: float) -> str:
    ready = sum(state.ready for state in states.values())
    after = f" after {limit_s:g} s" if limit_s else ""
    open_ = {name: state for name, state in states.items() if not state.ready}
    reasons = [
        f"{name} {state.summary}" + (f": {state.trouble}" if state.trouble else "") for name, state in open_.items()
    ]
    if not open_:
        reasons = ["not all are of the current revision"]
    more = f"; and {len(reasons) - 4} more" if len(reasons) > 4 else ""
    return f"{ready} of {env.nodes} pods are ready{after}; {'; '.join(reasons[:4])}{more}"


@dataclass
class PodChangeReporter:
    """Reports each change of a pod once."""

    notify: ProgressListener
    before: dict[str, PodProgress] = field(default_factory=dict)

    def report(self, states: Mapping[str, PodProgress]) -> None:
        for name, now in states.items():
            if self.before.get(name) != now:
                self.notify(f"Pod {name}", f"{now.summary}: {now.trouble}" if now.trouble else now.summary)
        for name in set(self.before) - set(states):
            self.notify(f"Pod {name}", "is gone")
        self.before = dict(states)


class ViewReader:
    """Reads what a watch of pods lacks: their owner, volumes and events; only while a pod is not ready."""

    def __init__(self, cluster: Cluster, env: Environment) -> None:
        self.cluster, self.env = cluster, env
        self._events: list[Object] = []
        self._claims: list[Object] = []
        self._asked = 0.0

    def view(self, pods: Mapping[str, Object]) -> EnvironmentView:
        owner = None if self.env.single else self.cluster.get(self._kind("apps/v1", "StatefulSet"), self.env.name)
        waiting = len(pods) < self.env.nodes or not all(map(is_ready, pods.values()))
        if waiting and time.monotonic() - self._asked > EVENTS_S:
            self._asked = time.monotonic()
            self._events, self._claims = self._now()
        return EnvironmentView(pods, owner, self._events, self._claims)

    def _now(self) -> tuple[list[Object], list[Object]]:
        """Read events and claims; empty without the right to, which does not stop the report on pods."""
        try:
            events = self._kind("v1", "Event")
            listed = [event for fields in (POD_EVENTS, SET_EVENTS) for event in self.cluster.find_by(events, fields)]
            mine = {self.env.name, *(self.env.pod_name(rank) for rank in range(self.env.nodes))}
            listed = [event for event in listed if (event.get("involvedObject") or {}).get("name") in mine]
            return listed, self.cluster.find(self._kind("v1", "PersistentVolumeClaim"), self.env.labels)
        except Forbidden:
            return [], []

    def _kind(self, api_version: str, kind: str) -> Kind:
        return self.cluster.kind(api_version, kind)
