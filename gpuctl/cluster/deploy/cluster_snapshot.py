"""Values that the preflight read of a cluster; a value that may not be read carries the reason."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Generic, TypeVar

from gpuctl.cluster.environment import Object
from gpuctl.cluster.manifests.references import Reference

T = TypeVar("T")


@dataclass(frozen=True)
class Maybe(Generic[T]):
    """A value that was read, or `why` it could not be read; the value is then meaningless."""

    value: T
    why: str = ""


@dataclass(frozen=True)
class ClusterSnapshot:
    """A cluster as the preflight sees it; None means that the object does not exist."""

    server: str
    namespace: Maybe[Object | None]
    quotas: Maybe[list[Object]]
    shared_quotas: Maybe[list[Object]]  # OpenShift's quotas across several namespaces
    limits: Maybe[list[Object]]
    claims: Maybe[list[Object]]
    classes: Maybe[list[Object]]
    nodes: Maybe[list[Object]]
    pods: Maybe[list[Object]]  # of all namespaces, those scheduled to a node
    env_pods: Maybe[list[Object]]  # of the environment, including pods that are not scheduled yet
    account: Maybe[Object | None]
    pull_secret: Maybe[Object | None]
    stream: Maybe[Object | None]
    constraints: Maybe[Object | None]
    attachments: Mapping[str, Maybe[Object | None]]
    references: Mapping[Reference, Maybe[Object | None]]
    unserved: Collection[str]  # kinds of attachments and references that the cluster does not serve
    may: Mapping[tuple[str, str], Maybe[bool]]  # (verb, kind) -> allowed
    may_use: Maybe[bool]  # the constraints: who may not use them may not grant them either
