"""What the preflight needs to know of a cluster, asked at once; what may not be read is said, not guessed."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Executor, Future
from dataclasses import dataclass
from typing import Generic, TypeVar

from gpuctl.cluster.deploy.model import Standing
from gpuctl.cluster.environment import Environment, Object
from gpuctl.cluster.manifests import rights
from gpuctl.core.abandonable_pool import AbandonablePool
from gpuctl.edges.kube.cluster import Cluster, Kind
from gpuctl.edges.kube.errors import Forbidden, NotThere

T = TypeVar("T")
AT_ONCE = 8
VERBS = ("get", "list", "create", "patch", "delete")
WATCHED = (("v1", "Pod", ("get", "list", "watch")), ("v1", "Event", ("list",)))
SCC = ("security.openshift.io/v1", "SecurityContextConstraints")
SHARED_QUOTA = ("quota.openshift.io/v1", "AppliedClusterResourceQuota")
ATTACHMENT = ("k8s.cni.cncf.io/v1", "NetworkAttachmentDefinition")
# Those that hold something of a node: placed on one, and not ended.
LIVE_PODS = "spec.nodeName!=,status.phase!=Succeeded,status.phase!=Failed"


@dataclass(frozen=True)
class Read(Generic[T]):
    """What was read; `why` it could not be, and then the value says nothing."""

    value: T
    why: str = ""


@dataclass(frozen=True)
class There:
    """A cluster as the preflight sees it; None: it is not there."""

    server: str
    namespace: Read[Object | None]
    quotas: Read[list[Object]]
    shared_quotas: Read[list[Object]]  # OpenShift's, of several namespaces together
    limits: Read[list[Object]]
    claims: Read[list[Object]]
    classes: Read[list[Object]]
    nodes: Read[list[Object]]
    pods: Read[list[Object]]  # of all namespaces, those that are on a node
    own: Read[list[Object]]  # of the environment, those too that wait for a node
    account: Read[Object | None]
    pull_secret: Read[Object | None]
    stream: Read[Object | None]
    constraints: Read[Object | None]
    attachments: Mapping[str, Read[Object | None]]
    may: Mapping[tuple[str, str], Read[bool]]  # (verb, kind) -> whether we may
    may_use: Read[bool]  # the constraints: who may not, may not give them to others either


def look(cluster: Cluster, env: Environment, standing: Sequence[Standing]) -> There:
    """Everything of it; `Unreachable` where the cluster does not answer."""
    with AbandonablePool(AT_ONCE) as pool:
        asking = Asking(cluster, pool)
        security, image = env.cluster.security, env.cluster.image
        wanted_constraints = rights.constraints_name(env)
        one, several = asking.one, asking.several
        namespace = one("v1", "Namespace", env.namespace)
        quotas, claims = several("v1", "ResourceQuota"), several("v1", "PersistentVolumeClaim")
        shared_quotas, limits = several(*SHARED_QUOTA), several("v1", "LimitRange")
        classes, nodes = several("storage.k8s.io/v1", "StorageClass"), several("v1", "Node")
        pods = pool.submit(read, lambda: cluster.find_everywhere(cluster.kind("v1", "Pod"), LIVE_PODS), [])
        own = pool.submit(read, lambda: cluster.find(cluster.kind("v1", "Pod"), env.selector), [])
        account = one("v1", "ServiceAccount", security.service_account)
        secret = one("v1", "Secret", image.pull_secret)
        stream = one("image.openshift.io/v1", "ImageStream", env.name if image.build else "")
        constraints = one(*SCC, wanted_constraints)
        attached = env.cluster.network.rdma.attachments if env.rdma else ()
        attachments = {each: asking.attachment(each) for each in attached}
        may = asking.rights({(each.wanted["apiVersion"], each.wanted["kind"]) for each in standing if each.served})
        may_use = pool.submit(read, lambda: _may_use(cluster, wanted_constraints), False)
        return There(
            server=cluster.server,
            namespace=namespace.result(),
            quotas=quotas.result(),
            shared_quotas=shared_quotas.result(),
            limits=limits.result(),
            claims=claims.result(),
            classes=classes.result(),
            nodes=nodes.result(),
            pods=pods.result(),
            own=own.result(),
            account=account.result(),
            pull_secret=secret.result(),
            stream=stream.result(),
            constraints=constraints.result(),
            attachments={name: each.result() for name, each in attachments.items()},
            may={asked: each.result() for asked, each in may.items()},
            may_use=may_use.result(),
        )


def standing(cluster: Cluster, wanted: Sequence[Object]) -> list[Standing]:
    """Each of the objects as it is on the cluster."""
    # One of each group first: asked all at once, every one of them would ask what the group has.
    groups = {each["apiVersion"]: (each["apiVersion"], each["kind"]) for each in wanted}
    with AbandonablePool(AT_ONCE) as pool:
        list(pool.map(lambda each: cluster.serves(*each), groups.values()))
        return list(pool.map(lambda each: _standing(cluster, each), wanted))


def _standing(cluster: Cluster, wanted: Object) -> Standing:
    try:
        kind = cluster.kind_of(wanted)
    except NotThere:
        return Standing(wanted, served=False)
    try:
        return Standing(wanted, cluster.get(kind, wanted["metadata"]["name"]))
    except Forbidden as error:
        return Standing(wanted, unread=error.wrong)


class Asking:
    """Questions that do not wait for each other."""

    def __init__(self, cluster: Cluster, pool: Executor) -> None:
        self.cluster, self.pool = cluster, pool

    def one(self, api_version: str, kind: str, name: str) -> Future[Read[Object | None]]:
        """An object by its name; None where it is not there, its kind is not known, or no name is given."""

        def ask() -> Object | None:
            return self.cluster.get(self.cluster.kind(api_version, kind), name) if name else None

        return self.pool.submit(read, ask, None)

    def several(self, api_version: str, kind: str) -> Future[Read[list[Object]]]:
        """All of a kind, in our namespace where it has one."""
        return self.pool.submit(read, lambda: self.cluster.find(self.cluster.kind(api_version, kind), {}), [])

    def attachment(self, name: str) -> Future[Read[Object | None]]:
        """A NetworkAttachmentDefinition, NAME or NAMESPACE/NAME."""
        namespace, _, own = name.rpartition("/")
        there = Cluster(self.cluster.client, namespace or self.cluster.namespace, self.cluster.patience_s)
        return Asking(there, self.pool).one(*ATTACHMENT, own)

    def rights(self, kinds: set[tuple[str, str]]) -> dict[tuple[str, str], Future[Read[bool]]]:
        """Whether we may do all that deploy, status and destroy do."""
        asked = [(*kind, VERBS) for kind in sorted(kinds)] + list(WATCHED)
        found = {}
        for api_version, kind, verbs in asked:
            for verb in verbs:
                found[verb, kind] = self.pool.submit(_may, self.cluster, verb, (api_version, kind))
        return found


def _may(cluster: Cluster, verb: str, kind: tuple[str, str]) -> Read[bool]:
    return read(lambda: cluster.may(verb, cluster.kind(*kind)), False)


def _may_use(cluster: Cluster, name: str) -> bool:
    """By name, and whether they are there already or not."""
    plural = Kind(SCC[0], SCC[1], "securitycontextconstraints", namespaced=True)
    return not name or cluster.may("use", plural, name)


def read(ask: Callable[[], T], nothing: T) -> Read[T]:
    try:
        return Read(ask())
    except NotThere:  # a kind that the cluster does not know
        return Read(nothing)
    except Forbidden as error:
        return Read(nothing, error.wrong)
