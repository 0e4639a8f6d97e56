"""The draft's section on storage: the access modes of the classes, as far as they are known."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from gpuctl.cluster.deploy.checks.storage import BY_MANY_NODES, BY_ONE_NODE
from gpuctl.cluster.discover.draft_yaml import UNKNOWN, Line, known, unknown
from gpuctl.cluster.discover.facts import Facts
from gpuctl.cluster.environment import Object

# Kubernetes, Storage Classes, "default StorageClass"; the second is its older name.
DEFAULTS = ("storageclass.kubernetes.io/is-default-class", "storageclass.beta.kubernetes.io/is-default-class")
BY_HAND = "kubernetes.io/no-provisioner"  # volumes are created by an administrator
FSX = "fsx.csi.aws.com"
MANY, ONE, HAND = (
    "many nodes write its volumes",
    "one node at a time writes its volumes",
    "its volumes are created by hand",
)


@dataclass(frozen=True)
class Class:
    """A storage class; `can`: the known access mode of its volumes, or ""."""

    name: str
    provisioner: str
    default: bool
    can: str
    proof: str = ""

    @property
    def description(self) -> str:
        default = ", the default" if self.default else ""
        can = f"{self.can} ({self.proof})" if self.proof else self.can or f"the access mode of its volumes is {UNKNOWN}"
        return f"{self.name} ({self.provisioner}{default}): {can}"


def classes(facts: Facts) -> list[Class]:
    """Return the storage classes; if they may not be listed, those of the namespace's volumes."""
    proofs = _proofs(facts)
    if facts.classes.why:
        return [
            Class(name, "provisioner unknown", default=False, can=MANY, proof=claim)
            for name, claim in sorted(proofs.items())
        ]
    return sorted((_class(item, proofs) for item in facts.classes.value), key=lambda item: item.name)


def storage(facts: Facts) -> Iterator[Line]:
    listed = classes(facts)
    comments = [f"Class {item.description}." for item in listed]
    if facts.classes.why:
        comments.insert(0, f"Storage classes cannot be read: {facts.classes.why}.")
    comments.append("Access modes of provisioners: Kubernetes, Persistent Volumes; OpenShift, supported access modes.")
    yield Line("storage", None, tuple(comments))
    many = [item for item in listed if item.can == MANY]
    single_node = _chosen([item for item in listed if item.can in (ONE, "")])
    if many:
        yield from _shared(many)
        if single_node:
            yield known("storage.class_rwo", single_node.name, f"Not used in this mode. {single_node.description}.")
    elif single_node:
        yield from _own(single_node)
    else:
        yield from _none(facts, listed)


def _shared(many: list[Class]) -> Iterator[Line]:
    yield known("storage.mode", "rwx", "One volume for all pods: there is a class that many nodes can write.")
    chosen = _chosen(many)
    if chosen is None:
        names = ", ".join(item.name for item in many)
        fill = f"one of {names}"
        yield unknown(
            "storage.class_rwx", "several classes qualify, and none of them is the default", fill, needed=True
        )
        return
    yield known("storage.class_rwx", chosen.name, f"{chosen.description}.")
    if chosen.provisioner == FSX:  # examples/clusters/p5-efa-eks.yaml
        yield known("storage.workspace_size", "1200Gi", "FSx for Lustre supports 1200Gi and multiples of 2400Gi.")
        yield known("storage.datasets_size", "2400Gi")


def _own(chosen: Class) -> Iterator[Line]:
    why = "One volume per pod: no class is known to support writing by many nodes."
    yield known("storage.mode", "volumeClaimTemplates", why)
    yield known("storage.class_rwo", chosen.name, f"{chosen.description}.")
    if not chosen.can:
        message = "it is not known whether many nodes can write its volumes"
        yield unknown("storage.class_rwx", message, f"{chosen.name}, and mode: rwx, if they can")


def _none(facts: Facts, listed: list[Class]) -> Iterator[Line]:
    why = facts.classes.why or (
        "several classes, none of which is the default" if listed else "the cluster has no storage class"
    )
    names = ", ".join(item.name for item in listed) or "a class's name (`kubectl get storageclass`)"
    yield unknown("storage.mode", why, "rwx if many nodes can write a volume, else volumeClaimTemplates", needed=True)
    yield unknown("storage.class_rwx", why, f"with mode: rwx: {names}")
    yield unknown("storage.class_rwo", why, f"with mode: volumeClaimTemplates: {names}")


def _chosen(among: list[Class]) -> Class | None:
    """Return the default class, or the only one."""
    defaults = [item for item in among if item.default]
    if len(defaults) == 1:
        return defaults[0]
    return among[0] if len(among) == 1 else None


def _class(definition: Object, proofs: Mapping[str, str]) -> Class:
    meta, provisioner = definition["metadata"], str(definition.get("provisioner"))
    name, annotations = str(meta["name"]), meta.get("annotations") or {}
    default = any(annotations.get(key) == "true" for key in DEFAULTS)
    if provisioner.endswith(BY_MANY_NODES):
        return Class(name, provisioner, default, MANY)
    if name in proofs:
        return Class(name, provisioner, default, MANY, proofs[name])
    if provisioner.endswith(BY_ONE_NODE):
        return Class(name, provisioner, default, ONE)
    return Class(name, provisioner, default, HAND if provisioner == BY_HAND else "")


def _proofs(facts: Facts) -> dict[str, str]:
    """Return classes with a bound ReadWriteMany volume in the namespace, with the volume as proof."""
    return {
        str(claim["spec"]["storageClassName"]): f"as the claim {claim['metadata']['name']} shows"
        for claim in facts.claims.value
        if claim["spec"].get("storageClassName")
        and "ReadWriteMany" in (claim["spec"].get("accessModes") or [])
        and (claim.get("status") or {}).get("phase") == "Bound"
    }
