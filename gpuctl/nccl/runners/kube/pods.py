"""The pods of all launches that run at the same time, as the cluster tells of them: one watch for all."""

from __future__ import annotations

from gpuctl.edges.kube import pod_watch
from gpuctl.edges.kube.cluster import Cluster, Object
from gpuctl.nccl.runners.kube import pod_placement
from gpuctl.nccl.runners.kube.model import OURS, ROUND, Task


class Pods(pod_watch.Pods):
    """Those of a round."""

    def __init__(self, cluster: Cluster, round_: str) -> None:
        super().__init__(cluster, {**OURS, ROUND: round_})

    def of(self, task: Task) -> dict[str, Object]:
        """Those of one launch by place (places.py); raises what ended the watch."""
        self.check()
        return self.known(task)

    def known(self, task: Task) -> dict[str, Object]:
        """The same as far as it is known."""
        return pod_placement.of(task, (self.latest or {}).values())
