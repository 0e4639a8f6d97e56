"""Bring a GPU pod up: the pod, what it runs, and its load balancer."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from gpuctl.domain.findings import Finding, problems
from gpuctl.edges.kube.cluster import Cluster
from gpuctl.eks.gpu_pod import exposure
from gpuctl.eks.gpu_pod.exposure import Exposure
from gpuctl.eks.gpu_pod.ssh_files import HostEntry
from gpuctl.workflows import eks_expose, eks_pod, eks_pod_jupyter, eks_pod_slurm
from gpuctl.workflows.eks_access import Place
from gpuctl.workflows.eks_pod import PodRequest


@dataclass(frozen=True)
class Reach:
    """The load balancer: "nlb" with its form, "none", or None to leave it as it is. `limit_s`: for each wait."""

    choice: str | None
    desired: Exposure | None
    limit_s: float


def bring_up(
    cluster: Cluster, place: Place, request: PodRequest, reach: Reach, progress: Callable[[str], object]
) -> tuple[HostEntry, list[Finding]]:
    """Make the pod and wait until it is reached; its entry for ssh, and the findings."""
    made = eks_pod.ensure(cluster, place, request, progress)
    if reach.choice == exposure.NONE:
        eks_expose.withdraw(cluster, place, progress)
    entry = eks_expose.entry(cluster, place, made)
    results = eks_pod.wait(cluster, place, made, eks_pod.Patience(reach.limit_s), progress)
    if problems(results):
        return entry, results
    results += [*eks_pod_jupyter.wait(cluster, place, made), *eks_pod_slurm.wait(cluster, place, made)]
    exposing = eks_expose.Exposer(cluster, place, reach.limit_s, progress).follow(made, reach.choice, reach.desired)
    if reach.choice is not None:
        entry = eks_expose.entry_after(cluster, place, made, exposing)
    return entry, [*results, *exposing]
