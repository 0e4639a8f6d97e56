"""Objects that an environment uses and does not create, and the field of the cluster file that names each."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from gpuctl.cluster.environment import Environment

NODE = ("node.k8s.io/v1", "node.k8s.io/v1beta1")
KUEUE = ("kueue.x-k8s.io/v1beta2", "kueue.x-k8s.io/v1beta1")


@dataclass(frozen=True)
class Reference:
    """An object by name; `field`: its place in the cluster file."""

    api_versions: tuple[str, ...]  # the first that the cluster serves counts
    kind: str
    name: str
    field: str


def references_of(env: Environment) -> list[Reference]:
    """Return the objects that the pods wait for while they are missing."""
    return list(_references(env))


def _references(env: Environment) -> Iterator[Reference]:
    pods = env.cluster.pods
    for name in pods.secrets:
        yield Reference(("v1",), "Secret", name, f"pods.secrets.{name}")
    for path, claim in env.cluster.storage.claims.items():
        yield Reference(("v1",), "PersistentVolumeClaim", claim, f"storage.claims.{path}")
    if pods.priority_class:
        yield Reference(("scheduling.k8s.io/v1",), "PriorityClass", pods.priority_class, "pods.priority_class")
    if pods.runtime_class:
        yield Reference(NODE, "RuntimeClass", pods.runtime_class, "pods.runtime_class")
    if pods.queue:
        yield Reference(KUEUE, "LocalQueue", pods.queue, "pods.queue")
