"""The preflight: each check a function from an environment and what was read of the cluster to findings."""

from __future__ import annotations

from collections.abc import Sequence

from gpuctl.cluster.deploy.checks import access, image, nodes, quota, rdma, storage
from gpuctl.cluster.deploy.cluster_snapshot import There
from gpuctl.cluster.deploy.model import Standing
from gpuctl.cluster.environment import Environment
from gpuctl.domain.findings import Finding

# Each of the environment in its mode: where one fails for RDMA and none for TCP, `--mode auto` goes on without RDMA.
CHECKS = (
    access.namespace,
    access.level,
    quota.quota,
    quota.limits,
    storage.storage_class,
    rdma.constraints,
    rdma.attachments,
    nodes.gpus,
    nodes.adapters,
    nodes.room,
    nodes.busy,
    image.account,
    image.pull_secret,
    image.image,
)


def all_of(env: Environment, there: There, standing: Sequence[Standing]) -> list[Finding]:
    """Every finding, in the order in which a person would look."""
    found = [*access.kinds(standing), *access.verbs(there), *access.names(env, standing), *access.volumes(env, there)]
    found += access.going(env, there, standing)
    return [*found, *(each for check in CHECKS for each in check(env, there))]
