"""The draft's section on storage: what the classes can do, as far as that is known."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from gpuctl.cluster.deploy.checks.storage import BY_MANY_NODES, BY_ONE_NODE
from gpuctl.cluster.discover.draft_yaml import UNKNOWN, Line, known, unknown
from gpuctl.cluster.discover.facts import Facts
from gpuctl.cluster.environment import Object

# Kubernetes, Storage Classes, "default StorageClass"; the second is its older name.
DEFAULTS = ("storageclass.kubernetes.io/is-default-class", "storageclass.beta.kubernetes.io/is-default-class")
BY_HAND = "kubernetes.io/no-provisioner"  # somebody makes the volumes
FSX = "fsx.csi.aws.com"
MANY, ONE, HAND = (
    "many nodes write its volumes",
    "one node at a time writes its volumes",
    "its volumes are made by hand",
)


@dataclass(frozen=True)
class Class:
    """A storage class; `can`: what is known of its volumes, empty where nothing is."""

    name: str
    provisioner: str
    default: bool
    can: str
    proof: str = ""

    @property
    def words(self) -> str:
        default = ", the default" if self.default else ""
        can = f"{self.can} ({self.proof})" if self.proof else self.can or f"what its volumes can do is {UNKNOWN}"
        return f"{self.name} ({self.provisioner}{default}): {can}"


def classes(facts: Facts) -> list[Class]:
    """Those there are; where they may not be listed, those that volumes of the namespace have."""
    proofs = _proofs(facts)
    if facts.classes.why:
        return [Class(name, "provisioner not known", False, MANY, claim) for name, claim in sorted(proofs.items())]
    return sorted((_class(each, proofs) for each in facts.classes.value), key=lambda each: each.name)


def storage(facts: Facts) -> Iterator[Line]:
    found = classes(facts)
    said = [f"Class {each.words}." for each in found]
    if facts.classes.why:
        said.insert(0, f"Storage classes may not be read: {facts.classes.why}.")
    said.append("What provisioners can do: Kubernetes, Persistent Volumes; OpenShift, supported access modes.")
    yield Line("storage", None, tuple(said))
    many = [each for each in found if each.can == MANY]
    own = _chosen([each for each in found if each.can in (ONE, "")])
    if many:
        yield from _shared(many)
        if own:
            yield known("storage.class_rwo", own.name, f"Not used in this mode. {own.words}.")
    elif own:
        yield from _own(own)
    else:
        yield from _none(facts, found)


def _shared(many: list[Class]) -> Iterator[Line]:
    yield known("storage.mode", "rwx", "One volume for all pods: there is a class that many nodes can write.")
    chosen = _chosen(many)
    if chosen is None:
        names = ", ".join(each.name for each in many)
        fill = f"one of {names}"
        yield unknown("storage.class_rwx", "several can do it, and none of them is the default", fill, needed=True)
        return
    yield known("storage.class_rwx", chosen.name, f"{chosen.words}.")
    if chosen.provisioner == FSX:  # examples/clusters/p5-efa-eks.yaml
        yield known("storage.workspace_size", "1200Gi", "FSx for Lustre takes 1200Gi, or multiples of 2400Gi.")
        yield known("storage.datasets_size", "2400Gi")


def _own(own: Class) -> Iterator[Line]:
    why = "A volume for each pod: no class is known to be written by many nodes."
    yield known("storage.mode", "volumeClaimTemplates", why)
    yield known("storage.class_rwo", own.name, f"{own.words}.")
    if not own.can:
        words = "whether many nodes can write its volumes is not known"
        yield unknown("storage.class_rwx", words, f"{own.name}, and mode: rwx, if they can")


def _none(facts: Facts, found: list[Class]) -> Iterator[Line]:
    why = facts.classes.why or (
        "several classes, none of which is the default" if found else "the cluster has no storage class"
    )
    names = ", ".join(each.name for each in found) or "a class's name (`kubectl get storageclass`)"
    yield unknown(
        "storage.mode", why, "rwx where many nodes can write a volume, else volumeClaimTemplates", needed=True
    )
    yield unknown("storage.class_rwx", why, f"with mode: rwx: {names}")
    yield unknown("storage.class_rwo", why, f"with mode: volumeClaimTemplates: {names}")


def _chosen(among: list[Class]) -> Class | None:
    """The default, or the only one."""
    defaults = [each for each in among if each.default]
    if len(defaults) == 1:
        return defaults[0]
    return among[0] if len(among) == 1 else None


def _class(found: Object, proofs: Mapping[str, str]) -> Class:
    meta, provisioner = found["metadata"], str(found.get("provisioner"))
    name, annotations = str(meta["name"]), meta.get("annotations") or {}
    default = any(annotations.get(each) == "true" for each in DEFAULTS)
    if provisioner.endswith(BY_MANY_NODES):
        return Class(name, provisioner, default, MANY)
    if name in proofs:
        return Class(name, provisioner, default, MANY, proofs[name])
    if provisioner.endswith(BY_ONE_NODE):
        return Class(name, provisioner, default, ONE)
    return Class(name, provisioner, default, HAND if provisioner == BY_HAND else "")


def _proofs(facts: Facts) -> dict[str, str]:
    """Classes of which somebody of the namespace has a volume that many nodes write."""
    return {
        str(each["spec"]["storageClassName"]): f"as the claim {each['metadata']['name']} shows"
        for each in facts.claims.value
        if each["spec"].get("storageClassName")
        and "ReadWriteMany" in (each["spec"].get("accessModes") or [])
        and (each.get("status") or {}).get("phase") == "Bound"
    }
