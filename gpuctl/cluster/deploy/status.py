"""How an environment stands: its objects, pods, volumes, and the ways in."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from gpuctl.cluster import manifests
from gpuctl.cluster.clusterfile.model import Cluster as File
from gpuctl.cluster.deploy import cluster_snapshot, deployed_state, wait
from gpuctl.cluster.deploy.model import Standing, is_going, is_ours
from gpuctl.cluster.deploy.wait import Looking
from gpuctl.cluster.environment import Asked, Environment, Mode, Object, environment
from gpuctl.domain.findings import Verdict
from gpuctl.domain.pod_status import statuses
from gpuctl.edges.kube.cluster import Cluster, name_of
from gpuctl.edges.kube.errors import Forbidden


@dataclass(frozen=True)
class Pod:
    """One pod; `trouble`: what keeps it from being ready."""

    name: str
    node: str
    ready: bool
    restarts: int
    words: str
    trouble: str


@dataclass(frozen=True)
class Status:
    """`mode` is None where it is not deployed. `nodes`: how many pods it is to have. `going`: what is being deleted.

    `unread`: objects of which nobody knows whether they are there.
    """

    name: str
    namespace: str
    mode: Mode | None
    nodes: int
    there: Sequence[str]
    missing: Sequence[str]
    not_ours: Sequence[str]
    going: Sequence[str]
    unread: Sequence[str]
    pods: Sequence[Pod]
    volumes: Sequence[str]
    ways_in: Sequence[str]

    @property
    def verdict(self) -> Verdict:
        if self.missing or self.not_ours or self.going or self.mode is None:
            return Verdict.FAIL
        if len(self.pods) < self.nodes or not all(pod.ready for pod in self.pods):
            return Verdict.FAIL
        return Verdict.UNKNOWN if self.unread else Verdict.OK


def look(cluster: Cluster, file: File, name: str = "", single: bool = False) -> Status:
    """The environment as it is deployed, in whatever mode and size that is."""
    env, mode = deployed(cluster, file, name, single)
    count = None if single else deployed_state.nodes(cluster, env)
    states = cluster_snapshot.standing(cluster, manifests.everything(env))
    served = [state for state in states if state.served]
    claims = _claims(cluster, env)
    return Status(
        env.name,
        env.namespace,
        mode,
        env.nodes if count is None else count,  # also where the file allows no more so many
        [state.subject for state in served if state.live and is_ours(env, state.live)],
        [state.subject for state in states if state.missing],
        [state.subject for state in served if state.live and not is_ours(env, state.live)],
        sorted(
            {*(state.subject for state in served if state.going), *(name_of(c) for c in claims.value if is_going(c))}
        ),
        [f"{state.subject}: {state.unread}" for state in states if state.unread],
        _pods(cluster, env),
        [f"not known: {claims.why}"] if claims.why else [_volume(state) for state in claims.value],
        _ways_in(served),
    )


def deployed(cluster: Cluster, file: File, name: str = "", single: bool = False) -> tuple[Environment, Mode | None]:
    """The environment in the mode and size that are there, as far as the file allows; no mode: it is not deployed."""
    request = Asked(name=name, single=single)
    env = environment(file, request)
    mode = deployed_state.mode(cluster, env)
    count = None if single else deployed_state.nodes(cluster, env)
    return _as_deployed(file, request, mode, count), mode


def _as_deployed(file: File, request: Asked, mode: Mode | None, count: int | None) -> Environment:
    """Where the file does not allow any more what is there (fewer nodes, no RDMA), what the file allows."""
    usable = mode if mode != "rdma" or file.network.rdma.enabled else None
    most = len(file.nodes.gpu_nodes) or count
    fits = count if count and most and count <= most else None
    return environment(file, Asked(usable, fits, request.name, single=request.single))


def _pods(cluster: Cluster, env: Environment) -> list[Pod]:
    kind = cluster.kind("v1", "Pod")
    pods = {progress["metadata"]["name"]: progress for progress in cluster.find(kind, env.selector)}
    view = Looking(cluster, env).view(pods)
    states = wait.states_of(env, view)
    return [
        Pod(name, _node(pods.get(name)), progress.ready, _restarts(pods.get(name)), progress.words, progress.trouble)
        for name, progress in states.items()
    ]


def _node(pod: Object | None) -> str:
    return str((pod or {}).get("spec", {}).get("nodeName") or "")


def _restarts(pod: Object | None) -> int:
    return sum(container.get("restartCount", 0) for container in statuses(pod or {}))


def _claims(cluster: Cluster, env: Environment) -> cluster_snapshot.Read[list[Object]]:
    try:
        claims = cluster.find(cluster.kind("v1", "PersistentVolumeClaim"), env.labels)
    except Forbidden as error:
        return cluster_snapshot.Read([], error.wrong)
    return cluster_snapshot.Read(sorted(claims, key=lambda claim: str(claim["metadata"]["name"])))


def _volume(claim: Object) -> str:
    status = claim.get("status") or {}
    size = (status.get("capacity") or {}).get("storage") or claim["spec"]["resources"]["requests"]["storage"]
    phase = status.get("phase", "phase not known")
    return f"{claim['metadata']['name']}: {size}, {f'{phase}, is being deleted' if is_going(claim) else phase}"


def _ways_in(states: Sequence[Standing]) -> list[str]:
    """The addresses of what is exposed."""
    addresses = []
    for state in states:
        spec = (state.live or {}).get("spec") or {}
        if state.wanted["kind"] == "Route":
            addresses.append(f"https://{spec['host']}" if spec.get("host") else f"{state.subject} has no host yet")
        elif state.wanted["kind"] == "Ingress":
            addresses += [f"https://{rule['host']}" for rule in spec.get("rules") or [] if rule.get("host")]
    return addresses
