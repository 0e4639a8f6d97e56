"""What a run on Kubernetes is made of."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from gpuctl.nccl.model import Launch

WORKER, LAUNCHER = "worker", "launcher"
RUN, ROUND, COMPONENT = "gpuctl/run", "gpuctl/round", "app.kubernetes.io/component"
BY, LASTS = "gpuctl/by", "gpuctl/lasts-seconds"
# A test that we cannot end ends itself, this long after its limit.
GRACE_S = 30.0
BROKEN_OFF, LIMIT = "broken off", "limit"  # why we end a launch
OURS = {"app.kubernetes.io/managed-by": "gpuctl", "app.kubernetes.io/name": "nccl"}


@dataclass(frozen=True)
class Settings:
    """How the pods are made.

    `image` holds nccl-tests, and for several nodes Open MPI and OpenSSH. `gpu` is the name of the GPU resource;
    `fabric` names more that each worker gets, with its quantity: the adapters ("vpc.amazonaws.com/efa": "32"), huge
    pages ("hugepages-2Mi": "5120Mi"). `user`: the number it runs as. RDMA pins memory: an ordinary user as much as
    the node's container runtime allows (LimitMEMLOCK), for capabilities of a container do not reach its ordinary
    users; root, 0, gets IPC_LOCK and no limit. `mpijob`: several nodes as an MPIJob of the Kubeflow MPI operator.
    `tolerations`: names of taints besides those of the GPUs and the fabric.
    `networks`: secondary networks, as the annotation k8s.v1.cni.cncf.io/networks takes them. `start_s`: how long pods
    may take to start. `search_path`: folders searched before the image's PATH.
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
    """One launch as objects: `round` is shared by the launches that run at the same time, `by` says whose it is."""

    round: str
    number: int
    launch: Launch
    settings: Settings
    by: str

    @property
    def run(self) -> str:
        return f"{self.round}-{self.number}"

    @property
    def name(self) -> str:
        return f"nccl-{self.run}"

    @property
    def by_operator(self) -> bool:
        """Whether the MPI operator makes its pods; a single node needs none."""
        return self.settings.mpijob and len(self.launch.nodes) > 1

    @property
    def hosts(self) -> tuple[str, ...]:
        """The workers' names, in the order of the nodes; without a dot, at which Open MPI would cut them."""
        return tuple(f"w{index}" for index in range(len(self.launch.nodes)))

    @property
    def lasts_s(self) -> float:
        """After this long it is over, whatever became of the gpuctl that began it."""
        return self.settings.start_s * 2 + self.launch.sweep.limit_s + 120

    @property
    def labels(self) -> dict[str, str]:
        return {**OURS, ROUND: self.round, RUN: self.run}
