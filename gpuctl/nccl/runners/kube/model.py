"""Settings and names of a run on Kubernetes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from gpuctl.nccl.model import Launch

WORKER, LAUNCHER = "worker", "launcher"
RUN, ROUND, COMPONENT = "gpuctl/run", "gpuctl/round", "app.kubernetes.io/component"
BY, LASTS = "gpuctl/by", "gpuctl/lasts-seconds"
# Seconds after its limit at which a test ends itself, if gpuctl cannot end it.
GRACE_S = 30.0
BROKEN_OFF, LIMIT = "broken off", "limit"  # why we end a launch
OURS = {"app.kubernetes.io/managed-by": "gpuctl", "app.kubernetes.io/name": "nccl"}


@dataclass(frozen=True)
class Settings:
    """Settings of the pods of a test.

    `image` contains nccl-tests, and for several nodes Open MPI and OpenSSH. `gpu` is the name of the GPU resource;
    `fabric` lists further resources of each worker with their quantity: adapters ("vpc.amazonaws.com/efa": "32"), huge
    pages ("hugepages-2Mi": "5120Mi"). `user`: numeric user ID. RDMA pins memory: an ordinary user may pin as much as
    the node's container runtime allows (LimitMEMLOCK), because a container's capabilities do not apply to its ordinary
    users; root (0) gets IPC_LOCK and no limit. `mpijob`: run several nodes as an MPIJob of the Kubeflow MPI operator.
    `tolerations`: keys of taints besides those of the GPUs and the fabric. `networks`: secondary networks in the form
    of the annotation k8s.v1.cni.cncf.io/networks. `start_s`: seconds for pods to start. `search_path`: folders
    searched before the image's PATH.
    """

    image: str
    gpu: str = "nvidia.com/gpu"
    fabric: Mapping[str, str] = field(default_factory=dict)
    cpu: str = "8"
    memory: str = "64Gi"
    shm: str = "16Gi"
    user: int = 1000
    mpijob: bool = False
    service_account: str = ""
    pull_secret: str = ""
    networks: str = ""
    search_path: tuple[str, ...] = ()
    tolerations: tuple[str, ...] = ()
    start_s: float = 300.0


@dataclass(frozen=True)
class Task:
    """A launch to run as objects. `round`: ID shared by launches that run at the same time; `by`: user who runs it."""

    round: str
    number: int
    launch: Launch
    settings: Settings
    actor: str

    @property
    def run(self) -> str:
        return f"{self.round}-{self.number}"

    @property
    def name(self) -> str:
        return f"nccl-{self.run}"

    @property
    def by_operator(self) -> bool:
        """True if the MPI operator creates the pods; a single node needs no operator."""
        return self.settings.mpijob and len(self.launch.nodes) > 1

    @property
    def hosts(self) -> tuple[str, ...]:
        """Names of the workers in the order of the nodes; without dots, at which Open MPI would cut them."""
        return tuple(f"w{index}" for index in range(len(self.launch.nodes)))

    @property
    def lasts_s(self) -> float:
        """Seconds after which the cluster ends the pods, whatever happened to gpuctl."""
        return self.settings.start_s * 2 + self.launch.sweep.limit_s + 120

    @property
    def labels(self) -> dict[str, str]:
        return {**OURS, ROUND: self.round, RUN: self.run}
