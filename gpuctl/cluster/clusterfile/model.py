"""The cluster file's model. Each field has a description, and optionally a unit, default and source."""

# ruff: noqa: RUF009 - `part` returns a dataclass field
from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from gpuctl.cluster.clusterfile.field_types import Cores, Size, Value
from gpuctl.cluster.clusterfile.fields import holds, part
from gpuctl.cluster.clusterfile.network import Network
from gpuctl.cluster.clusterfile.patterns import (
    ANY,
    ANY_VARIABLE,
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
    SECRET_USE,
    URL,
)
from gpuctl.core.strict_yaml import Choice, Flag, ListOf, MappingOf, Whole


@dataclass(frozen=True)
class About:
    """The Kubernetes cluster, and the namespace to use on it."""

    name: str = holds(NAME, "The cluster's name.", source=FIELD)
    api: str = holds(URL, "The URL of its API server; a kubeconfig that leads elsewhere is refused.", source=FIELD)
    namespace: str = holds(LABEL, "The namespace of all objects; it has to exist.", source=FIELD)
    flavour: str = holds(Choice(("openshift", "kubernetes", "eks")), "The kind of cluster, which decides the objects.")
    environment: str = holds(
        NAME,
        "The name of the environment and its objects: each user of a namespace chooses one. [the cluster's name]",
        default="",
        source=K8S,
    )
    description: str = holds(LINE, "Free text for people.", default="", source=FIELD)


@dataclass(frozen=True)
class Nodes:
    """The nodes that pods may run on."""

    gpu_nodes: tuple[str, ...] = holds(
        ListOf(OBJECT, "node names", unique=True),
        "The only nodes to use, by name. [every node with the GPUs]",
        default=(),
        source=FIELD,
    )
    selector: Mapping[str, str] = holds(
        MappingOf(KEY, LABEL_VALUE), "Labels that a node must also have.", default={}, source="Kubernetes: nodeSelector"
    )
    tolerations: tuple[str, ...] = holds(
        ListOf(KEY, "taint names", unique=True),
        "Taints to tolerate, besides those named after the GPUs and adapters.",
        default=(),
        source="Kubernetes: taints and tolerations",
    )
    topology_key: str = holds(
        KEY,
        "A node label, such as the rack or leaf switch: pods are placed where it is the same, if possible.",
        default="",
        source="Kubernetes: inter-pod affinity",
    )


@dataclass(frozen=True)
class Storage:
    """The workspace and the data sets."""

    mode: str = holds(
        Choice(("rwx", "volumeClaimTemplates")),
        "rwx: volumes shared by all pods; volumeClaimTemplates: each pod has its own.",
        source=FIELD,
    )
    class_rwx: str = holds(OBJECT, "The storage class of volumes that many nodes write.", default="", source=FIELD)
    class_rwo: str = holds(OBJECT, "The storage class of volumes that one node writes.", default="", source=FIELD)
    workspace_size: str = holds(
        Size(), "The size of the volume at /workspace.", default="100Gi", source=FIELD, unit="bytes"
    )
    datasets_size: str = holds(
        Size(), "The size of the volume at /datasets.", default="500Gi", source=FIELD, unit="bytes"
    )
    folders: Mapping[str, str] = holds(
        MappingOf(PLACE, INSIDE),
        "More mount paths, each for a folder of a volume: /checkpoints: workspace/checkpoints.",
        default={},
        source="Kubernetes: subPath",
    )
    claims: Mapping[str, str] = holds(
        MappingOf(PLACE, OBJECT),
        "Existing PersistentVolumeClaims by mount path; at /workspace or /datasets one takes the place of our volume.",
        default={},
        source="Kubernetes: PersistentVolumeClaim",
    )


@dataclass(frozen=True)
class Security:
    """Rights of the pods. In TCP mode they always comply with the restricted profile."""

    service_account: str = holds(
        OBJECT,
        "An existing service account; constraints that an admin granted to it are used. [deploy creates its own]",
        default="",
        source=FIELD,
    )
    requires_privileged_scc: bool = holds(
        Flag(),
        "OpenShift: RDMA pods use the constraints `privileged`. [constraints of its own with the least privileges]",
        default=False,
        source=FIELD,
    )
    ipc_lock: bool = holds(
        Flag(),
        "RDMA pods get IPC_LOCK, which removes the limit of locked memory for root.",
        default=False,
        source=FIELD,
    )
    sys_resource: bool = holds(
        Flag(),
        "RDMA pods get SYS_RESOURCE, with which root may raise limits by `ulimit`.",
        default=False,
        source="EldritchJS/ml-dev-env, k8s/scc-modification-for-memlock.yaml",
    )
    rdma_as_root: bool = holds(
        Flag(),
        "RDMA pods run as root: capabilities have no effect for other users.",
        default=False,
        source="NVIDIA/nvidia-container-toolkit#2037",
    )
    run_as_user: int | None = holds(
        Whole(1, 2**31 - 1),
        "The user ID of the pods; OpenShift assigns one to each namespace. [1000]",
        default=None,
        source="Kubernetes: pod security standards, restricted",
    )


@dataclass(frozen=True)
class Gpus:
    """The GPUs of a node, all of which one pod uses."""

    per_node: int = holds(Whole(1, 16), "GPUs that a pod requests: all GPUs of a node.", source=FIELD, unit="GPUs")
    type: str = holds(LINE, "The GPU model; informational.", default="", source=FIELD)
    default_nodes: int = holds(Whole(1, 4096), "The number of pods without --nodes.", default=2, source=FIELD)
    resource: str = holds(
        RESOURCE,
        "The resource name of their device plugin.",
        default="nvidia.com/gpu",
        source="NVIDIA/k8s-device-plugin",
    )


@dataclass(frozen=True)
class Resources:
    """Resources of a pod: requests equal limits."""

    cpu: str = holds(Cores(), "CPU cores; only whole cores can be pinned.", source=FIELD, unit="cores")
    memory: str = holds(Size(), "Memory, including shared memory.", source=FIELD, unit="bytes")
    shm: str = holds(
        Size(),
        "Shared memory, used by NCCL and data loaders; container runtimes default to 64 MiB.",
        default="32Gi",
        source="EldritchJS/ml-dev-env, k8s/statefulset-multi-node-rdma.yaml",
        unit="bytes",
    )
    hugepages_2mi: str = holds(
        Size(),
        "Huge pages of 2 MiB; EFA needs 5120Mi. [none]",
        default="",
        source="awsome-distributed-training, micro-benchmarks/nccl-tests/kubernetes",
        unit="bytes",
    )
    scratch: str = holds(
        Size(),
        "The size limit of /tmp and of the home folder, each on the node's disk; deleted with the pod.",
        default="20Gi",
        unit="bytes",
    )


@dataclass(frozen=True)
class Pods:
    """Settings that sites require of every pod."""

    environment: Mapping[str, str] = holds(
        MappingOf(ANY_VARIABLE, Value()),
        "Environment variables, such as HTTPS_PROXY; those of NCCL belong to network.*.environment.",
        default={},
    )
    secrets: Mapping[str, str] = holds(
        MappingOf(OBJECT, SECRET_USE),
        "Existing Secrets by name: `environment`, or the path that their keys are mounted at as files.",
        default={},
        source="Kubernetes: envFrom; secret volumes",
    )
    annotations: Mapping[str, str] = holds(
        MappingOf(KEY, ANY),
        "Annotations, such as sidecar.istio.io/inject.",
        default={},
        source="Kubernetes: annotations",
    )
    labels: Mapping[str, str] = holds(
        MappingOf(KEY, LABEL_VALUE), "Labels of the pods and of their StatefulSet.", default={}, source=K8S
    )
    queue: str = holds(
        OBJECT,
        "The LocalQueue of Kueue that admits the pods. [none]",
        default="",
        source="Kueue: Run StatefulSet",
    )
    priority_class: str = holds(
        OBJECT, "The PriorityClass. [the cluster's default]", default="", source="Kubernetes: pod priority"
    )
    runtime_class: str = holds(
        OBJECT, "The RuntimeClass, such as nvidia. [the node's default]", default="", source="Kubernetes: runtime class"
    )
    disruption_budget: bool = holds(
        Flag(),
        "Forbid evictions (PodDisruptionBudget): a training that loses one rank has lost all.",
        default=True,
        source="Kubernetes: pod disruption budgets",
    )
    grace_period: int = holds(
        Whole(5, 3600),
        "Time from SIGTERM to SIGKILL when a pod or a training is ended: enough to write a checkpoint.",
        default=30,
        source="Kubernetes: terminationGracePeriodSeconds",
        unit="seconds",
    )


@dataclass(frozen=True)
class Build:
    """An image build on OpenShift: an inline Dockerfile, a git repository, or {} for an uploaded folder."""

    dockerfile: str = holds(ANY, "The content of the Dockerfile.", default="", source="OpenShift: BuildConfig")
    git: str = holds(GIT, "A repository with a Dockerfile.", default="", source="OpenShift: BuildConfig")
    ref: str = holds(REF, "The branch, tag or commit. [the default branch]", default="")
    folder: str = holds(FOLDER, "The folder of the repository to build. [its root]", default="")
    memory: str = holds(Size(), "Memory of the build's pod.", default="16Gi", unit="bytes")
    cpu: str = holds(Cores(), "CPU cores of the build's pod.", default="4", unit="cores")


@dataclass(frozen=True)
class Image:
    """The container image: an existing one, or one built by OpenShift."""

    name: str = holds(IMAGE, "The image, with a tag or digest.", default="")
    pull_secret: str = holds(OBJECT, "The Secret to pull the image with.", default="")
    pull_policy: str = holds(
        Choice(("IfNotPresent", "Always")), "The pull policy of the image.", default="IfNotPresent"
    )
    build: Build | None = part(Build, "Build the image on the cluster (OpenShift): `gpuctl cluster build`.", empty=None)


@dataclass(frozen=True)
class Ingress:
    """External access for browsers on clusters without Routes."""

    domain: str = holds(DOMAIN, "The domain whose names resolve to the cluster: vscode-ENVIRONMENT.DOMAIN.")
    ingress_class: str = holds(OBJECT, "The IngressClass. [the cluster's default]", default="")
    tls_secret: str = holds(OBJECT, "The Secret with the certificate for these names.", default="")
    annotations: Mapping[str, str] = holds(MappingOf(KEY, LINE), "Annotations for the ingress controller.", default={})
    from_namespace: str = holds(LABEL, "The namespace of the controller's pods.", default="")
    from_addresses: tuple[str, ...] = holds(
        ListOf(CIDR, "address ranges", unique=True), "The source addresses of an external load balancer.", default=()
    )


@dataclass(frozen=True)
class Ports:
    """Ports in the pods. TensorBoard and the debugger have no password: only port forwards reach them."""

    vscode: int = holds(PORT, "code-server, on the first pod.", default=8080, source=FIELD)
    jupyter: int = holds(PORT, "Jupyter, on the first pod.", default=8888, source=FIELD)
    tensorboard: int = holds(PORT, "TensorBoard; by port forward only.", default=6006, source=FIELD)
    debug: int = holds(PORT, "debugpy; by port forward only.", default=5678, source=FIELD)
    master: int = holds(PORT, "The rendezvous port of the ranks; between pods only.", default=29500, source=FIELD)
    ssh: int = holds(PORT, "sshd, for launchers that use ssh; between pods only.", default=2222)
    expose: tuple[str, ...] = holds(
        ListOf(Choice(("vscode", "jupyter")), "vscode and jupyter", unique=True),
        "Editors exposed by Route or Ingress, with a password. [none]",
        default=(),
    )
    ingress: Ingress | None = part(Ingress, "The Ingress on clusters without Routes.", empty=None)


@dataclass(frozen=True)
class Nccl:
    """NCCL in both modes."""

    debug: str = holds(
        Choice(("VERSION", "WARN", "INFO", "TRACE")),
        "The log level of NCCL (NCCL_DEBUG).",
        default="WARN",
        source=GUIDE,
    )


@dataclass(frozen=True)
class Cluster:
    """A cluster file."""

    cluster: About = part(About, "The Kubernetes cluster, and the namespace to use on it.")
    storage: Storage = part(Storage, "The workspace and the data sets.")
    gpus: Gpus = part(Gpus, "The GPUs of a node.")
    resources: Resources = part(Resources, "Resources of a pod.")
    image: Image = part(Image, "The container image.")
    pods: Pods = part(Pods, "Settings that sites require of every pod.", optional=True)
    nodes: Nodes = part(Nodes, "The nodes that pods may run on.", optional=True)
    network: Network = part(Network, "The network between pods.", optional=True)
    security: Security = part(Security, "Rights of the pods.", optional=True)
    ports: Ports = part(Ports, "Ports in the pods.", optional=True)
    nccl: Nccl = part(Nccl, "NCCL in both modes.", optional=True)
    notes: str = holds(ANY, "Free text for people.", default="", source=FIELD)
