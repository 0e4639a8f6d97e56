"""Status of an environment: its objects, pods, volumes and external addresses."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from dataclasses import dataclass

from gpuctl.cluster import manifests
from gpuctl.cluster.clusterfile.model import Cluster as File
from gpuctl.cluster.deploy import account_grant, cluster_snapshot, deployed_state, grow, read_snapshot, wait
from gpuctl.cluster.deploy.model import ObjectState, is_ours, is_terminating
from gpuctl.cluster.deploy.wait import ViewReader
from gpuctl.cluster.environment import Environment, EnvironmentRequest, Mode, Object, environment
from gpuctl.cluster.manifests import storage
from gpuctl.domain.findings import Verdict
from gpuctl.domain.kube_errors import Forbidden
from gpuctl.domain.pod_status import statuses
from gpuctl.edges.kube.cluster import Cluster, name_of


@dataclass(frozen=True)
class Pod:
    """One pod; `trouble`: what keeps it from being ready."""

    name: str
    node: str
    ready: bool
    restarts: int
    summary: str
    trouble: str


@dataclass(frozen=True)
class Status:
    """`mode` is None if it is not deployed. `nodes`: the desired number of pods. `foreign`: objects of others.

    `terminating`: objects being deleted. `unread`: objects that could not be read.
    """

    name: str
    namespace: str
    mode: Mode | None
    nodes: int
    present: Sequence[str]
    missing: Sequence[str]
    foreign: Sequence[str]
    terminating: Sequence[str]
    unread: Sequence[str]
    pods: Sequence[Pod]
    volumes: Sequence[str]
    too_small: Sequence[str]  # volumes that are smaller than the file says
    addresses: Sequence[str]

    @property
    def verdict(self) -> Verdict:
        if self.missing or self.foreign or self.terminating or self.mode is None:
            return Verdict.FAIL
        if len(self.pods) < self.nodes or not all(pod.ready for pod in self.pods):
            return Verdict.FAIL
        return Verdict.UNKNOWN if self.unread else Verdict.WARN if self.too_small else Verdict.OK


def read_status(cluster: Cluster, file: File, name: str = "", single: bool = False) -> Status:
    """Read the status of the environment in the mode and size in which it is deployed."""
    env, mode = deployed(cluster, file, name, single)
    count = None if single else deployed_state.nodes(cluster, env)
    states = read_snapshot.object_states(cluster, manifests.everything(env))
    served = [state for state in states if state.served]
    claims = _claims(cluster, env)
    return Status(
        env.name,
        env.namespace,
        mode,
        env.nodes if count is None else count,  # even if the file no longer allows as many
        [state.subject for state in served if state.live and is_ours(env, state.live)],
        [state.subject for state in states if state.missing],
        [state.subject for state in served if state.live and not is_ours(env, state.live)],
        sorted(
            {
                *(state.subject for state in served if state.terminating),
                *(name_of(c) for c in claims.value if is_terminating(c)),
            }
        ),
        [f"{state.subject}: {state.unread}" for state in states if state.unread],
        _pods(cluster, env),
        [f"unknown: {claims.why}"] if claims.why else [_volume(cluster, env, claim) for claim in claims.value],
        [claim["metadata"]["name"] for claim in claims.value if _is_too_small(env, claim)],
        _addresses(served),
    )


def deployed(cluster: Cluster, file: File, name: str = "", single: bool = False) -> tuple[Environment, Mode | None]:
    """Return the environment in its deployed mode and size, as far as the file allows; mode None: not deployed."""
    request = EnvironmentRequest(name=name, single=single)
    env = environment(file, request)
    mode = deployed_state.mode(cluster, env)
    count = None if single else deployed_state.nodes(cluster, env)
    return account_grant.as_deployed(cluster, _as_deployed(file, request, mode, count)), mode


def _as_deployed(file: File, request: EnvironmentRequest, mode: Mode | None, count: int | None) -> Environment:
    """Reduce the deployed mode and size to what the file still allows (fewer nodes, no RDMA)."""
    usable = mode if mode != "rdma" or file.network.rdma.enabled else None
    most = len(file.nodes.gpu_nodes) or count
    fits = count if count and most and count <= most else None
    return environment(file, EnvironmentRequest(usable, fits, request.name, single=request.single))


def _pods(cluster: Cluster, env: Environment) -> list[Pod]:
    kind = cluster.kind("v1", "Pod")
    pods = {progress["metadata"]["name"]: progress for progress in cluster.find(kind, env.selector)}
    view = ViewReader(cluster, env).view(pods)
    states = wait.states_of(env, view)
    return [
        Pod(name, _node(pods.get(name)), progress.ready, _restarts(pods.get(name)), progress.summary, progress.trouble)
        for name, progress in states.items()
    ]


def _node(pod: Object | None) -> str:
    return str((pod or {}).get("spec", {}).get("nodeName") or "")


def _restarts(pod: Object | None) -> int:
    return sum(container.get("restartCount", 0) for container in statuses(pod or {}))


def _claims(cluster: Cluster, env: Environment) -> cluster_snapshot.Maybe[list[Object]]:
    try:
        claims = cluster.find(cluster.kind("v1", "PersistentVolumeClaim"), env.labels)
    except Forbidden as error:
        return cluster_snapshot.Maybe([], error.wrong)
    return cluster_snapshot.Maybe(sorted(claims, key=lambda claim: str(claim["metadata"]["name"])))


def _volume(cluster: Cluster, env: Environment, claim: Object) -> str:
    phase = (claim.get("status") or {}).get("phase", "phase unknown")
    parts = [phase, *(["is being deleted"] if is_terminating(claim) else []), *_growth(cluster, env, claim)]
    return f"{claim['metadata']['name']}: {_capacity(claim)}, {', '.join(parts)}"


def _capacity(claim: Object) -> str:
    """Return the size that a volume has; before it has one, the size that is requested."""
    return str(((claim.get("status") or {}).get("capacity") or {}).get("storage") or grow.size_of(claim))


def _is_too_small(env: Environment, claim: Object) -> bool:
    return grow.is_smaller(_capacity(claim), storage.desired_size(env, claim["metadata"]["name"]))


def _growth(cluster: Cluster, env: Environment, claim: Object) -> list[str]:
    """Describe the difference between a volume's size and the file's, if there is one."""
    desired = storage.desired_size(env, claim["metadata"]["name"])
    if grow.is_smaller(desired, _capacity(claim)):
        return [f"the file says {desired}: volumes do not shrink"]
    if not _is_too_small(env, claim):
        return []
    if not grow.is_smaller(grow.size_of(claim), desired):
        conditions = (claim.get("status") or {}).get("conditions") or []
        reasons = [text for item in conditions if (text := item.get("message") or item.get("type"))]
        return [f"grows to {desired}{''.join(f': {reason}' for reason in reasons[-1:])}"]
    name = claim["spec"].get("storageClassName") or ""
    with contextlib.suppress(Forbidden):
        storage_class = cluster.get(cluster.kind("storage.k8s.io/v1", "StorageClass"), name) if name else None
        if storage_class is not None and not storage_class.get("allowVolumeExpansion"):
            return [f"did not grow to {desired}: StorageClass {name} does not allow it (allowVolumeExpansion)"]
    return [f"did not grow to {desired}: `gpuctl cluster deploy` grows it, or says why it cannot"]


def _addresses(states: Sequence[ObjectState]) -> list[str]:
    """Return the addresses of exposed services."""
    addresses = []
    for state in states:
        spec = (state.live or {}).get("spec") or {}
        if state.desired["kind"] == "Route":
            addresses.append(f"https://{spec['host']}" if spec.get("host") else f"{state.subject} has no host yet")
        elif state.desired["kind"] == "Ingress":
            addresses += [f"https://{rule['host']}" for rule in spec.get("rules") or [] if rule.get("host")]
    return addresses
