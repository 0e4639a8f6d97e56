"""The preflight: each check is a function from an environment and a cluster snapshot to findings."""

from __future__ import annotations

from collections.abc import Sequence

from gpuctl.cluster.deploy.checks import access, image, nodes, quota, rdma, storage
from gpuctl.cluster.deploy.cluster_snapshot import ClusterSnapshot
from gpuctl.cluster.deploy.model import ObjectState
from gpuctl.cluster.environment import Environment
from gpuctl.domain.findings import Finding

# Checks that depend on the mode: if one fails for RDMA and none for TCP, `--mode auto` falls back to TCP.
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
    image.references,
    image.image,
)


def all_of(env: Environment, snapshot: ClusterSnapshot, states: Sequence[ObjectState]) -> list[Finding]:
    """Return every finding, in the order in which a person would look."""
    findings = [
        *access.kinds(states),
        *access.verbs(snapshot),
        *access.names(env, states),
        *access.volumes(env, snapshot),
    ]
    findings += access.terminating(env, snapshot, states)
    return [*findings, *(finding for check in CHECKS for finding in check(env, snapshot))]
