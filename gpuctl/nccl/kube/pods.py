"""The pods of all launches that run at the same time, as the cluster tells of them: one watch for all."""

from __future__ import annotations

from gpuctl.edges import kube_pods
from gpuctl.edges.kube import Cluster, Object
from gpuctl.nccl.kube import places
from gpuctl.nccl.kube.model import OURS, ROUND, Task


class Pods(kube_pods.Pods):
    """Those of a round."""

    def __init__(self, cluster: Cluster, round_: str) -> None:
        super().__init__(cluster, {**OURS, ROUND: round_})

    def of(self, task: Task) -> dict[str, Object]:
        """Those of one launch by place (places.py); raises what ended the watch."""
        self.check()
        return self.known(task)

    def known(self, task: Task) -> dict[str, Object]:
        """The same as far as it is known."""
        return places.of(task, (self.latest or {}).values())
