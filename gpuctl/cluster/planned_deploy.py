"""Plan the deployment of a selected environment, and keep what applying the plan needs."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

from gpuctl.cluster.access import PodAccess
from gpuctl.cluster.clusterfile import locate, read
from gpuctl.cluster.clusterfile.model import Cluster as File
from gpuctl.cluster.deploy import deployed_state, flow
from gpuctl.cluster.deploy import status as status_reader
from gpuctl.cluster.deploy.flow import PlanRequest
from gpuctl.cluster.deploy.model import Plan
from gpuctl.cluster.deploy.status import Status
from gpuctl.cluster.environment import EnvironmentRequest, environment
from gpuctl.cluster.selection import EnvironmentSelection
from gpuctl.core.run_history import current_user
from gpuctl.edges.kube.cluster import Cluster


@dataclass(frozen=True)
class PlannedDeploy:
    """A plan, with its cluster, cluster file and kubeconfig context."""

    cluster: Cluster
    plan: Plan
    file: Path
    context: str

    def with_consent(self, *, take_over: bool) -> PlannedDeploy:
        """Return it with or without consent to set back fields that others changed."""
        return replace(self, plan=replace(self.plan, take_over=take_over))

    @property
    def access(self) -> PodAccess:
        return PodAccess(self.cluster, self.plan.env, self.context)


def plan(selection: EnvironmentSelection, mode: flow.RequestedMode | None, nodes: int | None) -> PlannedDeploy:
    cluster, file, path = _connect(selection)
    return PlannedDeploy(cluster, flow.plan(cluster, file, _request(selection, mode, nodes)), path, selection.context)


def plan_scaling(selection: EnvironmentSelection, nodes: int) -> PlannedDeploy:
    """Plan to change only the number of pods; `GpuctlError` if more would change."""
    cluster, file, path = _connect(selection)
    env = environment(file, EnvironmentRequest(name=selection.environment))
    plan = flow.plan(cluster, file, _request(selection, deployed_state.mode(cluster, env), nodes))
    return PlannedDeploy(cluster, flow.scaling(plan), path, selection.context)


def read_status(selection: EnvironmentSelection) -> Status:
    cluster, file, _ = _connect(selection)
    return status_reader.read_status(cluster, file, selection.environment, selection.single)


def _connect(selection: EnvironmentSelection) -> tuple[Cluster, File, Path]:
    path = locate.find(selection.name)
    file = read.load(path)
    return flow.connect(file, selection.context), file, path


def _request(selection: EnvironmentSelection, mode: flow.RequestedMode | None, nodes: int | None) -> PlanRequest:
    return PlanRequest(mode, nodes, selection.environment, current_user(), selection.single)
