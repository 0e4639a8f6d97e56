"""The cluster file as values. Each field says what it is for; its unit, default and source stand beside it."""

# ruff: noqa: RUF009 - `part` gives a dataclass field, which is what may stand there
from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from gpuctl.cluster.clusterfile.field_types import Cores, Size
from gpuctl.cluster.clusterfile.fields import holds, part
from gpuctl.cluster.clusterfile.network import Network
from gpuctl.cluster.clusterfile.patterns import (
    ANY,
    CIDR,
    DOMAIN,
    FIELD,
    FOLDER,
    GIT,
    GUIDE,
    IMAGE,
    INSIDE,
    K8S,
    KEY,
    LABEL,
    LABEL_VALUE,
    LINE,
    NAME,
    OBJECT,
    PLACE,
    PORT,
    REF,
    RESOURCE,
    URL,
)
from gpuctl.core.strict_yaml import Choice, Flag, ListOf, MappingOf, Whole


@dataclass(frozen=True)
class About:
    """Which cluster, and where on it."""

    name: str = holds(NAME, "What the cluster is called.", source=FIELD)
    api: str = holds(URL, "Its API server; a kubeconfig that leads elsewhere is refused.", source=FIELD)
    namespace: str = holds(LABEL, "The namespace that everything is made in; it has to be there.", source=FIELD)
    flavour: str = holds(Choice(("openshift", "kubernetes", "eks")), "What kind of cluster: it decides the objects.")
    environment: str = holds(
        NAME,
        "The name of this environment, which its objects carry: users of one namespace take one each. "
        "[the cluster's name]",
        default="",
        source=K8S,
    )
    description: str = holds(LINE, "For people.", default="", source=FIELD)


@dataclass(frozen=True)
class Nodes:
    """Which nodes the pods may run on."""

    gpu_nodes: tuple[str, ...] = holds(
        ListOf(OBJECT, "node names", unique=True),
        "Only these nodes, by name. [every node that has the GPUs]",
        default=(),
        source=FIELD,
    )
    selector: Mapping[str, str] = holds(
        MappingOf(KEY, LABEL_VALUE), "Labels that a node must have, too.", default={}, source="Kubernetes: nodeSelector"
    )
    tolerations: tuple[str, ...] = holds(
        ListOf(KEY, "taint names", unique=True),
        "Taints of nodes to put up with, besides those named after the GPUs and adapters.",
        default=(),
        source="Kubernetes: taints and tolerations",
    )
    topology_key: str = holds(
        KEY,
        "A node label, such as the rack's or the leaf switch's: pods go where it is the same, as far as they can.",
        default="",
        source="Kubernetes: inter-pod affinity",
    )


@dataclass(frozen=True)
class Storage:
    """The workspace and the data sets."""

    mode: str = holds(
        Choice(("rwx", "volumeClaimTemplates")),
        "rwx: one volume of each for all pods; volumeClaimTemplates: each pod has its own.",
        source=FIELD,
    )
    class_rwx: str = holds(OBJECT, "The storage class for volumes that many nodes write.", default="", source=FIELD)
    class_rwo: str = holds(OBJECT, "The storage class for volumes of a single node.", default="", source=FIELD)
    workspace_size: str = holds(Size(), "The volume at /workspace.", default="100Gi", source=FIELD, unit="bytes")
    datasets_size: str = holds(Size(), "The volume at /datasets.", default="500Gi", source=FIELD, unit="bytes")
    folders: Mapping[str, str] = holds(
        MappingOf(PLACE, INSIDE),
        "More paths in the pods, each a folder of a volume bound there: /checkpoints: workspace/checkpoints.",
        default={},
        source="Kubernetes: subPath",
    )


@dataclass(frozen=True)
class Security:
    """What pods may do. In TCP mode they always keep to the restricted profile."""

    service_account: str = holds(
        OBJECT, "A service account that is there. [one of our own, made and removed]", default="", source=FIELD
    )
    requires_privileged_scc: bool = holds(
        Flag(), "OpenShift: RDMA pods are privileged. [the smallest rights of our own]", default=False, source=FIELD
    )
    ipc_lock: bool = holds(
        Flag(), "RDMA pods get IPC_LOCK, which lifts the limit of locked memory for root.", default=False, source=FIELD
    )
    sys_resource: bool = holds(
        Flag(),
        "RDMA pods get SYS_RESOURCE, so that root may raise limits by `ulimit`.",
        default=False,
        source="EldritchJS/ml-dev-env, k8s/scc-modification-for-memlock.yaml",
    )
    rdma_as_root: bool = holds(
        Flag(),
        "RDMA pods run as root: capabilities do not reach other users.",
        default=False,
        source="NVIDIA/nvidia-container-toolkit#2037",
    )
    run_as_user: int | None = holds(
        Whole(1, 2**31 - 1),
        "The number of the pods' user; OpenShift gives each namespace its own. [1000]",
        default=None,
        source="Kubernetes: pod security standards, restricted",
    )


@dataclass(frozen=True)
class Gpus:
    """The GPUs of a node, all of which one pod takes."""

    per_node: int = holds(Whole(1, 16), "GPUs a pod asks for: all that a node has.", source=FIELD, unit="GPUs")
    type: str = holds(LINE, "What they are; for people.", default="", source=FIELD)
    default_nodes: int = holds(Whole(1, 4096), "How many pods where no --nodes is given.", default=2, source=FIELD)
    resource: str = holds(
        RESOURCE, "What their device plugin calls them.", default="nvidia.com/gpu", source="NVIDIA/k8s-device-plugin"
    )


@dataclass(frozen=True)
class Resources:
    """What a pod gets, and keeps: what it asks for is also its limit."""

    cpu: str = holds(Cores(), "CPU cores; whole ones can be pinned.", source=FIELD, unit="cores")
    memory: str = holds(Size(), "Memory, with shared memory in it.", source=FIELD, unit="bytes")
    shm: str = holds(
        Size(),
        "Shared memory, which NCCL and data loaders use; the runtime's own is 64 MiB.",
        default="32Gi",
        source="EldritchJS/ml-dev-env, k8s/statefulset-multi-node-rdma.yaml",
        unit="bytes",
    )
    hugepages_2mi: str = holds(
        Size(),
        "Huge pages of 2 MiB; EFA asks for 5120Mi. [none]",
        default="",
        source="awsome-distributed-training, micro-benchmarks/nccl-tests/kubernetes",
        unit="bytes",
    )
    scratch: str = holds(
        Size(),
        "Each of the folders for temporary files and of the user, on the node's disk; gone with the pod.",
        default="20Gi",
        unit="bytes",
    )


@dataclass(frozen=True)
class Build:
    """How OpenShift makes the image: a Dockerfile written here, a git repository, or {} for a folder that is sent."""

    dockerfile: str = holds(ANY, "The Dockerfile itself.", default="", source="OpenShift: BuildConfig")
    git: str = holds(GIT, "A repository that has a Dockerfile.", default="", source="OpenShift: BuildConfig")
    ref: str = holds(REF, "Its branch, tag or commit. [its default branch]", default="")
    folder: str = holds(FOLDER, "The folder of it to build in. [its top]", default="")
    memory: str = holds(Size(), "Memory of the build's pod.", default="16Gi", unit="bytes")
    cpu: str = holds(Cores(), "CPU cores of the build's pod.", default="4", unit="cores")


@dataclass(frozen=True)
class Image:
    """What the pods run: one that is there, or one that OpenShift builds."""

    name: str = holds(IMAGE, "The image, with a tag or digest.", default="")
    pull_secret: str = holds(OBJECT, "The Secret it is pulled with.", default="")
    pull_policy: str = holds(Choice(("IfNotPresent", "Always")), "When nodes pull it again.", default="IfNotPresent")
    build: Build | None = part(Build, "Build it on the cluster (OpenShift): `gpuctl cluster build`.", empty=None)


@dataclass(frozen=True)
class Ingress:
    """How browsers come in where there are no Routes."""

    domain: str = holds(DOMAIN, "Names below it lead to the cluster: vscode-ENVIRONMENT.DOMAIN.")
    ingress_class: str = holds(OBJECT, "The IngressClass. [the cluster's default]", default="")
    tls_secret: str = holds(OBJECT, "The Secret with the certificate for those names.", default="")
    annotations: Mapping[str, str] = holds(
        MappingOf(KEY, LINE), "What the ingress controller wants to be told.", default={}
    )
    from_namespace: str = holds(LABEL, "The namespace that the controller's pods run in.", default="")
    from_addresses: tuple[str, ...] = holds(
        ListOf(CIDR, "address ranges", unique=True), "Where a load balancer outside the cluster comes from.", default=()
    )


@dataclass(frozen=True)
class Ports:
    """What listens in the pods. TensorBoard and the debugger have no password: they are reached by forwards only."""

    vscode: int = holds(PORT, "code-server, on the first pod.", default=8080, source=FIELD)
    jupyter: int = holds(PORT, "Jupyter, on the first pod.", default=8888, source=FIELD)
    tensorboard: int = holds(PORT, "TensorBoard; by forward only.", default=6006, source=FIELD)
    debug: int = holds(PORT, "debugpy; by forward only.", default=5678, source=FIELD)
    master: int = holds(PORT, "Where ranks meet; from pod to pod only.", default=29500, source=FIELD)
    ssh: int = holds(PORT, "sshd, for launchers that use ssh; from pod to pod only.", default=2222)
    expose: tuple[str, ...] = holds(
        ListOf(Choice(("vscode", "jupyter")), "vscode and jupyter", unique=True),
        "Which are also reached from outside, with a password: by Route or Ingress. [none]",
        default=(),
    )
    ingress: Ingress | None = part(Ingress, "How they are reached where there are no Routes.", empty=None)


@dataclass(frozen=True)
class Nccl:
    """NCCL in both modes."""

    debug: str = holds(
        Choice(("VERSION", "WARN", "INFO", "TRACE")), "How much NCCL logs (NCCL_DEBUG).", default="WARN", source=GUIDE
    )


@dataclass(frozen=True)
class Cluster:
    """A cluster file."""

    cluster: About = part(About, "Which cluster, and where on it.")
    storage: Storage = part(Storage, "The workspace and the data sets.")
    gpus: Gpus = part(Gpus, "The GPUs of a node.")
    resources: Resources = part(Resources, "What a pod gets.")
    image: Image = part(Image, "What the pods run.")
    nodes: Nodes = part(Nodes, "Which nodes the pods may run on.", optional=True)
    network: Network = part(Network, "How pods reach each other.", optional=True)
    security: Security = part(Security, "What pods may do.", optional=True)
    ports: Ports = part(Ports, "What listens in the pods.", optional=True)
    nccl: Nccl = part(Nccl, "NCCL in both modes.", optional=True)
    notes: str = holds(ANY, "For people.", default="", source=FIELD)
