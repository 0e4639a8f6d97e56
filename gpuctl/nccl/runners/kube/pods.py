"""Pods of all launches that run at the same time, kept up to date by a single watch."""

from __future__ import annotations

from gpuctl.edges.kube import pod_watch
from gpuctl.edges.kube.cluster import Cluster, Object
from gpuctl.nccl.runners.kube import pod_placement
from gpuctl.nccl.runners.kube.model import OURS, ROUND, Task


class Pods(pod_watch.Pods):
    """Pods of one round."""

    def __init__(self, cluster: Cluster, round_: str) -> None:
        super().__init__(cluster, {**OURS, ROUND: round_})

    def of_launch(self, task: Task) -> dict[str, Object]:
        """Pods of one launch by place (pod_placement.py); raises the error that ended the watch."""
        self.check()
        return self.known(task)

    def known(self, task: Task) -> dict[str, Object]:
        """Pods of one launch as last observed, even if the watch has ended."""
        return pod_placement.pods_of_launch(task, (self.latest or {}).values())
