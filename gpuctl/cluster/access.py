"""Resolve a selection to its cluster file, environment and connection."""

from __future__ import annotations

from dataclasses import dataclass, replace

from gpuctl.cluster.clusterfile import locate
from gpuctl.cluster.deploy.flow import connect
from gpuctl.cluster.environment import Environment, EnvironmentRequest, environment
from gpuctl.cluster.selection import EnvironmentSelection
from gpuctl.edges.kube import config
from gpuctl.edges.kube.cluster import Cluster
from gpuctl.edges.kube.kubectl import Kubectl


@dataclass(frozen=True)
class PodAccess:
    """An environment and a connection to its cluster. `context`: for kubectl; "" is the current one."""

    cluster: Cluster
    env: Environment
    context: str

    @property
    def kubectl(self) -> Kubectl:
        return Kubectl(self.context, self.env.namespace)


def environment_of(selection: EnvironmentSelection) -> Environment:
    """Return the selected environment, without contacting a cluster."""
    file = locate.cluster(selection.name)
    return environment(file, EnvironmentRequest(name=selection.environment, single=selection.single))


def open_access(selection: EnvironmentSelection) -> PodAccess:
    """Connect to the environment's cluster."""
    env = environment_of(selection)
    return PodAccess(connect(env.cluster, selection.context), env, selection.context)


def open_lasting_access(selection: EnvironmentSelection) -> PodAccess:
    """Connect with the current context resolved to its name, so that a later switch does not affect kubectl."""
    current = config.current(*config.files())
    return open_access(replace(selection, context=selection.context or (current.name if current else "")))
