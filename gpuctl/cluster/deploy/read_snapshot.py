"""Read the snapshot that the preflight needs of a cluster, concurrently."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import Executor, Future
from typing import TypeVar

from gpuctl.cluster.deploy.cluster_snapshot import ClusterSnapshot, Maybe
from gpuctl.cluster.deploy.model import ObjectState
from gpuctl.cluster.environment import Environment, Object
from gpuctl.cluster.manifests import rights
from gpuctl.cluster.manifests.references import Reference, references_of
from gpuctl.core.abandonable_pool import AbandonablePool
from gpuctl.domain.kube_errors import Forbidden, NotFound
from gpuctl.edges.kube.cluster import Cluster, Kind

T = TypeVar("T")
AT_ONCE = 8
VERBS = ("get", "list", "create", "patch", "delete")
WATCHED = (("v1", "Pod", ("get", "list", "watch")), ("v1", "Event", ("list",)))
SCC = ("security.openshift.io/v1", "SecurityContextConstraints")
SHARED_QUOTA = ("quota.openshift.io/v1", "AppliedClusterResourceQuota")
ATTACHMENT = ("k8s.cni.cncf.io/v1", "NetworkAttachmentDefinition")
# Pods that hold resources of a node: scheduled, and not finished.
LIVE_PODS = "spec.nodeName!=,status.phase!=Succeeded,status.phase!=Failed"


def take_snapshot(cluster: Cluster, env: Environment, states: Sequence[ObjectState]) -> ClusterSnapshot:
    """Read everything concurrently; raises `Unreachable` if the cluster does not answer."""
    with AbandonablePool(AT_ONCE) as pool:
        reader = ClusterReader(cluster, pool)
        security, image = env.cluster.security, env.cluster.image
        constraints_name = rights.constraints_to_grant(env)
        get, find = reader.get, reader.find
        namespace = get("v1", "Namespace", env.namespace)
        quotas, claims = find("v1", "ResourceQuota"), find("v1", "PersistentVolumeClaim")
        shared_quotas, limits = find(*SHARED_QUOTA), find("v1", "LimitRange")
        classes, nodes = find("storage.k8s.io/v1", "StorageClass"), find("v1", "Node")
        pods = pool.submit(attempt, lambda: cluster.find_everywhere(cluster.kind("v1", "Pod"), LIVE_PODS), [])
        env_pods = pool.submit(attempt, lambda: cluster.find(cluster.kind("v1", "Pod"), env.selector), [])
        account = get("v1", "ServiceAccount", security.service_account)
        secret = get("v1", "Secret", image.pull_secret)
        stream = get("image.openshift.io/v1", "ImageStream", env.name if image.build else "")
        constraints = get(*SCC, constraints_name)
        attached = env.cluster.network.rdma.attachments if env.rdma else ()
        attachments = {name: reader.attachment(name) for name in attached}
        references = {reference: reader.reference(reference) for reference in references_of(env)}
        optional = {reference.kind: reference.api_versions for reference in references}
        optional |= {ATTACHMENT[1]: ATTACHMENT[:1]} if attached else {}
        served = {
            kind: pool.submit(attempt, _served_in(cluster, kind, of), nothing=True) for kind, of in optional.items()
        }
        may = reader.rights({(state.desired["apiVersion"], state.desired["kind"]) for state in states if state.served})
        may_use = pool.submit(attempt, lambda: _may_use(cluster, constraints_name), nothing=False)
        return ClusterSnapshot(
            server=cluster.server,
            namespace=namespace.result(),
            quotas=quotas.result(),
            shared_quotas=shared_quotas.result(),
            limits=limits.result(),
            claims=claims.result(),
            classes=classes.result(),
            nodes=nodes.result(),
            pods=pods.result(),
            env_pods=env_pods.result(),
            account=account.result(),
            pull_secret=secret.result(),
            stream=stream.result(),
            constraints=constraints.result(),
            attachments={name: pending.result() for name, pending in attachments.items()},
            references={reference: pending.result() for reference, pending in references.items()},
            unserved=frozenset(kind for kind, pending in served.items() if not pending.result().value),
            may={right: pending.result() for right, pending in may.items()},
            may_use=may_use.result(),
        )


def object_states(cluster: Cluster, objects: Sequence[Object]) -> list[ObjectState]:
    """Look up the current state of each object on the cluster."""
    # One kind of each API group first: otherwise every concurrent request would run the group's discovery.
    groups = {obj["apiVersion"]: (obj["apiVersion"], obj["kind"]) for obj in objects}
    with AbandonablePool(AT_ONCE) as pool:
        list(pool.map(lambda obj: cluster.serves(*obj), groups.values()))
        return list(pool.map(lambda obj: _object_state(cluster, obj), objects))


def _object_state(cluster: Cluster, desired: Object) -> ObjectState:
    try:
        kind = cluster.kind_of(desired)
    except NotFound:
        return ObjectState(desired, served=False)
    try:
        return ObjectState(desired, cluster.get(kind, desired["metadata"]["name"]))
    except Forbidden as error:
        return ObjectState(desired, unread=error.wrong)


class ClusterReader:
    """Concurrent reads of a cluster."""

    def __init__(self, cluster: Cluster, pool: Executor) -> None:
        self.cluster, self.pool = cluster, pool

    def get(self, api_version: str, kind: str, name: str) -> Future[Maybe[Object | None]]:
        """Read an object by name; None if it does not exist, its kind is not served, or the name is empty."""

        def ask() -> Object | None:
            return self.cluster.get(self.cluster.kind(api_version, kind), name) if name else None

        return self.pool.submit(attempt, ask, None)

    def find(self, api_version: str, kind: str) -> Future[Maybe[list[Object]]]:
        """List all objects of a kind, in our namespace if the kind is namespaced."""
        return self.pool.submit(attempt, lambda: self.cluster.find(self.cluster.kind(api_version, kind), {}), [])

    def attachment(self, name: str) -> Future[Maybe[Object | None]]:
        """Read a NetworkAttachmentDefinition, given as NAME or NAMESPACE/NAME."""
        namespace, _, own_name = name.rpartition("/")
        elsewhere = Cluster(self.cluster.client, namespace or self.cluster.namespace, self.cluster.patience_s)
        return ClusterReader(elsewhere, self.pool).get(*ATTACHMENT, own_name)

    def reference(self, reference: Reference) -> Future[Maybe[Object | None]]:
        """Read an object that the cluster file refers to, in the first API version that is served."""

        def ask() -> Object | None:
            versions = [version for version in reference.api_versions if self.cluster.serves(version, reference.kind)]
            return (
                self.cluster.get(self.cluster.kind(versions[0], reference.kind), reference.name) if versions else None
            )

        return self.pool.submit(attempt, ask, None)

    def rights(self, kinds: set[tuple[str, str]]) -> dict[tuple[str, str], Future[Maybe[bool]]]:
        """Check the rights that deploy, status and destroy need."""
        needed = [(*kind, VERBS) for kind in sorted(kinds)] + list(WATCHED)
        answers = {}
        for api_version, kind, verbs in needed:
            for verb in verbs:
                answers[verb, kind] = self.pool.submit(_may, self.cluster, verb, (api_version, kind))
        return answers


def _served_in(cluster: Cluster, kind: str, api_versions: Sequence[str]) -> Callable[[], bool]:
    return lambda: any(cluster.serves(version, kind) for version in api_versions)


def _may(cluster: Cluster, verb: str, kind: tuple[str, str]) -> Maybe[bool]:
    return attempt(lambda: cluster.may(verb, cluster.kind(*kind)), nothing=False)


def _may_use(cluster: Cluster, name: str) -> bool:
    """Check the right by name; the constraints need not exist yet."""
    plural = Kind(SCC[0], SCC[1], "securitycontextconstraints", namespaced=True)
    return not name or cluster.may("use", plural, name)


def attempt(ask: Callable[[], T], nothing: T) -> Maybe[T]:
    try:
        return Maybe(ask())
    except NotFound:  # a kind that the cluster does not serve
        return Maybe(nothing)
    except Forbidden as error:
        return Maybe(nothing, error.wrong)
