"""Rules for combinations of fields; each rule names its fields, and is skipped if one of them is invalid."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterator

from gpuctl.cluster.clusterfile import variables
from gpuctl.cluster.clusterfile.field_types import bytes_of
from gpuctl.cluster.clusterfile.model import Cluster
from gpuctl.core.redact import has_credential, removed

Broken = tuple[str, str, str]  # the field, what is wrong, what to try
Rule = Callable[[Cluster], Iterator[Broken]]
RDMA = "network.rdma"
RIGHTS = ("requires_privileged_scc", "ipc_lock", "sys_resource", "rdma_as_root")
PORTS = ("vscode", "jupyter", "tensorboard", "debug", "master", "ssh")
LONGEST_LABEL = 63  # characters between two dots of a DNS name
VOLUMES = ("/workspace", "/datasets")  # an existing claim may take their place
POD_VARIABLES = (
    *("GPUS_PER_NODE", "HOME", "MASTER_ADDR", "MASTER_PORT", "NODE_RANK", "POD_NAME", "POD_NAMESPACE"),
    *("PATH", "NVIDIA_VISIBLE_DEVICES"),
)
RESERVED_KEYS = ("app.kubernetes.io/", "gpuctl/", "k8s.v1.cni.cncf.io/networks", "kueue.x-k8s.io/queue-name")
# https with any user (tokens are given as one, too), or a password in any URL.
CREDENTIALS = re.compile(r"https?://[^/@]*@|[a-z+]+://[^/@:]*:[^/@]*@")
RULES: list[tuple[tuple[str, ...], Rule]] = []
# Paths that the pod or the image's system uses.
RESERVED = (
    *("/workspace", "/datasets", "/home/gpuctl", "/job", "/run", "/tmp"),  # noqa: S108 - paths in a pod
    *("/bin", "/boot", "/dev", "/etc", "/lib", "/lib64", "/proc", "/root", "/sbin", "/sys", "/usr", "/var"),
)


def broken(cluster: Cluster, wrong: Collection[str]) -> Iterator[Broken]:
    """Yield mistakes in combinations of valid fields."""
    for looked_at, rule in RULES:
        if not any(_touches(field, need) for field in wrong for need in looked_at):
            yield from rule(cluster)


def _touches(wrong: str, need: str) -> bool:
    return not wrong or f"{wrong}.".startswith((f"{need}.", f"{need}[")) or f"{need}.".startswith(f"{wrong}.")


def needs(*fields: str) -> Callable[[Rule], Rule]:
    """Register a rule with the fields it uses."""

    def put(rule: Rule) -> Rule:
        RULES.append((fields, rule))
        return rule

    return put


@needs("storage.mode", "storage.class_rwx", "storage.class_rwo")
def storage_class(cluster: Cluster) -> Iterator[Broken]:
    storage = cluster.storage
    field = "class_rwx" if storage.mode == "rwx" else "class_rwo"
    if not getattr(storage, field):
        hint = "`kubectl get storageclass` lists the classes"
        yield "storage.mode", f"is {storage.mode}, which needs storage.{field}", hint


@needs("storage.folders", "storage.claims", "pods.secrets")
def mount_paths(cluster: Cluster) -> Iterator[Broken]:
    secrets = {f"pods.secrets.{name}": use for name, use in cluster.pods.secrets.items() if use.startswith("/")}
    claims = [path for path in cluster.storage.claims if path not in VOLUMES]
    paths = {f"storage.folders.{path}": path for path in cluster.storage.folders}
    paths |= {f"storage.claims.{path}": path for path in claims} | secrets
    used: dict[str, str] = {}
    for field, path in paths.items():
        if any(f"{path}/".startswith(f"{reserved}/") for reserved in RESERVED):
            yield field, f"is mounted at {path}, which is used by the pod itself", "choose another path"
        elif path in used:
            yield field, f"is mounted at {path}, as {used[path]} is", "choose another path"
        used.setdefault(path, field)


@needs("pods.environment", "pods.labels", "pods.annotations", "network", "nccl")
def pod_metadata(cluster: Cluster) -> Iterator[Broken]:
    pods = cluster.pods
    every = (*variables.all_of(cluster, "rdma"), *variables.all_of(cluster, "tcp"))
    derived = {variable.name: variable.field for variable in every}
    for name, value in pods.environment.items():
        if name in POD_VARIABLES:
            yield f"pods.environment.{name}", "is set by the pod itself", "omit it"
        elif name in derived:
            yield f"pods.environment.{name}", f"is set by {derived[name]}", f"set {derived[name]} instead"
        elif has_credential(value):
            wrong = "holds a password or token, which everybody sees who may read this file or the StatefulSet"
            yield f"pods.environment.{name}", wrong, "put it in a Secret, and name that in pods.secrets"
    for field in ("labels", "annotations"):
        for name in getattr(pods, field):
            if name.startswith(RESERVED_KEYS) or name in RESERVED_KEYS:
                hint = "omit it; network attachments and the queue have fields of their own"
                yield f"pods.{field}.{name}", "is set by gpuctl", hint


@needs("cluster.namespace")
def namespace(cluster: Cluster) -> Iterator[Broken]:
    name = cluster.cluster.namespace
    if name == "default" or name.startswith(("kube-", "openshift-")):
        yield "cluster.namespace", f"is {name}, which is reserved for the cluster", "use a namespace of yours"


@needs(RDMA + ".enabled", RDMA + ".fabric", RDMA + ".resources")
def rdma(cluster: Cluster) -> Iterator[Broken]:
    network = cluster.network.rdma
    if not network.enabled:
        return
    if not network.fabric:
        yield "network.rdma", "is enabled, but fabric is missing", "fabric: roce, infiniband or efa"
    if not network.resources:
        yield (
            "network.rdma",
            "is enabled without the resource that gives pods the adapters",
            "resources: {NAME: COUNT}; `kubectl describe node` lists them under Allocatable",
        )


@needs(RDMA + ".host_network", RDMA + ".attachments")
def host_network(cluster: Cluster) -> Iterator[Broken]:
    network = cluster.network.rdma
    if network.host_network and network.attachments:
        yield "network.rdma.host_network", "excludes attachments: Multus adds none to the host network", "choose one"


@needs(RDMA + ".enabled", RDMA + ".fabric")
def efa(cluster: Cluster) -> Iterator[Broken]:
    network = cluster.network.rdma
    for name in ("devices", "gid_index") if network.enabled and network.fabric == "efa" else ():
        if getattr(network, name) not in ((), None):
            yield (
                f"network.rdma.{name}",
                "has no effect with EFA: its NCCL plugin uses all devices",
                "omit it",
            )


@needs(RDMA + ".enabled", RDMA + ".devices", RDMA + ".interfaces", RDMA + ".attachments")
def lengths(cluster: Cluster) -> Iterator[Broken]:
    network = cluster.network.rdma
    counted = {name: len(getattr(network, name)) for name in ("devices", "interfaces", "attachments")}
    named = {name: count for name, count in counted.items() if count}
    if network.enabled and len(set(named.values())) > 1:
        counts = ", ".join(f"{count} {name}" for name, count in named.items())
        yield "network.rdma", f"has {counts}: each adapter needs one of each", "list the same number of each"


@needs(RDMA + ".resources", "gpus.resource")
def resources(cluster: Cluster) -> Iterator[Broken]:
    if cluster.gpus.resource in cluster.network.rdma.resources:
        yield "network.rdma.resources", f"names {cluster.gpus.resource}, which is the GPU resource", "omit it"


@needs("network", "nccl")
def derived_variables(cluster: Cluster) -> Iterator[Broken]:
    for mode, network in (("rdma", cluster.network.rdma), ("tcp", cluster.network.tcp)):
        ours = {variable.name: variable.field for variable in variables.derived(cluster, mode)}
        for name in network.environment:
            if name in ours:
                yield (
                    f"network.{mode}.environment.{name}",
                    f"is set already, by {ours[name]}",
                    f"set {ours[name]} instead",
                )


@needs(*(f"security.{name}" for name in RIGHTS), RDMA + ".enabled", "cluster.flavour")
def rights(cluster: Cluster) -> Iterator[Broken]:
    may = cluster.security
    if not cluster.network.rdma.enabled:
        for name in (name for name in RIGHTS if getattr(may, name)):
            yield f"security.{name}", "applies to RDMA pods, and network.rdma is not enabled", "omit it"
    if may.requires_privileged_scc and cluster.cluster.flavour != "openshift":
        yield (
            "security.requires_privileged_scc",
            "exists on OpenShift only; this flavour has no security context constraints",
            "omit it",
        )
    if may.rdma_as_root and not (may.ipc_lock or may.requires_privileged_scc):
        yield "security.rdma_as_root", "has no effect without ipc_lock", "add `ipc_lock: true`, or omit it"


@needs("security.run_as_user", "cluster.flavour")
def user(cluster: Cluster) -> Iterator[Broken]:
    if cluster.security.run_as_user is not None and cluster.cluster.flavour == "openshift":
        yield (
            "security.run_as_user",
            "cannot be chosen: OpenShift assigns user IDs to each namespace",
            "omit it",
        )


@needs("nodes.gpu_nodes", "gpus.default_nodes")
def enough_nodes(cluster: Cluster) -> Iterator[Broken]:
    named = len(cluster.nodes.gpu_nodes)
    if named and named < cluster.gpus.default_nodes:
        yield (
            "gpus.default_nodes",
            f"is {cluster.gpus.default_nodes}, and nodes.gpu_nodes names {named}",
            "select more nodes",
        )


@needs(*(f"ports.{name}" for name in PORTS))
def ports_differ(cluster: Cluster) -> Iterator[Broken]:
    taken: dict[int, str] = {}
    for name in PORTS:
        port = getattr(cluster.ports, name)
        if port in taken:
            yield f"ports.{name}", f"is {port}, as ports.{taken[port]} is", "choose another"
        taken.setdefault(port, name)


@needs("ports.expose", "ports.ingress", "cluster.flavour")
def exposed_ports(cluster: Cluster) -> Iterator[Broken]:
    ports, openshift = cluster.ports, cluster.cluster.flavour == "openshift"
    if ports.ingress and openshift:
        yield "ports.ingress", "is for clusters without Routes; OpenShift has them", "omit it"
    if ports.expose and not openshift and not ports.ingress:
        yield (
            "ports.expose",
            "needs ports.ingress on this flavour",
            "ingress: {domain: …, tls_secret: …}, or omit it",
        )
    if ports.ingress and not (ports.ingress.tls_secret or ports.ingress.annotations):
        yield (
            "ports.ingress",
            "has neither tls_secret nor annotations: passwords would be sent unencrypted",
            "set one of them",
        )
    if ports.ingress and bool(ports.ingress.from_namespace) == bool(ports.ingress.from_addresses):
        wrong = "needs exactly one of from_namespace and from_addresses, which the NetworkPolicy admits"
        yield "ports.ingress", wrong, "from_namespace: ingress-nginx, or from_addresses: [10.0.0.0/16]"


@needs("ports.expose", "cluster.name", "cluster.environment", "cluster.namespace", "cluster.flavour")
def route_names(cluster: Cluster) -> Iterator[Broken]:
    wrong = host_too_long(cluster, cluster.cluster.environment or cluster.cluster.name)
    if wrong:
        yield "cluster.environment", wrong, "use a shorter name"


def host_too_long(cluster: Cluster, name: str) -> str:
    """Return why the host names of an environment's Routes are too long for DNS, or ""."""
    about = cluster.cluster
    for port in cluster.ports.expose if about.flavour == "openshift" else ():
        host = f"{name}-{port}-{about.namespace}"
        if len(host) > LONGEST_LABEL:
            return f"makes the Route's host {host}, which is {len(host)} characters long; DNS allows {LONGEST_LABEL}"
    return ""


@needs("image.name", "image.build", "cluster.flavour")
def image(cluster: Cluster) -> Iterator[Broken]:
    image, build = cluster.image, cluster.image.build
    if bool(image.name) == bool(build):
        yield "image", "needs exactly one of name and build", "name the image, or define how it is built"
    if build and cluster.cluster.flavour != "openshift":
        yield (
            "image.build",
            "works on OpenShift only; this flavour builds no images",
            "build it elsewhere, and set image.name",
        )
    if build and build.dockerfile and build.git:
        yield "image.build", "has both dockerfile and git", "keep one; without both, a local folder is built"
    if build and (CREDENTIALS.match(build.git) or ("?" in build.git and removed(build.git)[1])):
        yield (
            "image.build.git",
            "holds a password or token, which everybody sees who may read this file or the BuildConfig",
            "remove and revoke it; use a Secret annotated with build.openshift.io/source-secret-match-uri-1",
        )
    for name in ("ref", "folder") if build and not build.git else ():
        if getattr(build, name):
            yield f"image.build.{name}", "needs image.build.git", "omit it"


@needs("resources.shm", "resources.memory", "resources.hugepages_2mi")
def sizes(cluster: Cluster) -> Iterator[Broken]:
    pod = cluster.resources
    if bytes_of(pod.shm) >= bytes_of(pod.memory):
        yield (
            "resources.shm",
            f"is {pod.shm} of {pod.memory} memory: shared memory counts as memory",
            "make it smaller than resources.memory",
        )
    if pod.hugepages_2mi and bytes_of(pod.hugepages_2mi) % (2 * 2**20):
        yield (
            "resources.hugepages_2mi",
            f"is {pod.hugepages_2mi}: not a whole number of 2 MiB pages",
            "use an even number of Mi",
        )
