"""The preflight: each check a function from an environment and what was read of the cluster to findings."""

from __future__ import annotations

from collections.abc import Sequence

from gpuctl.cluster.deploy.checks import access, image, nodes, quota, rdma, storage
from gpuctl.cluster.deploy.cluster_snapshot import There
from gpuctl.cluster.deploy.model import Finding, Standing
from gpuctl.cluster.environment import Environment

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


def all_of(env: Environment, snapshot: There, states: Sequence[Standing]) -> list[Finding]:
    """Every finding, in the order in which a person would look."""
    findings = [
        *access.kinds(states),
        *access.verbs(snapshot),
        *access.names(env, states),
        *access.volumes(env, snapshot),
    ]
    findings += access.going(env, snapshot, states)
    return [*findings, *(finding for check in CHECKS for finding in check(env, snapshot))]
