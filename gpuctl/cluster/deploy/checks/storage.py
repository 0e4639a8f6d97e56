"""Whether the storage class is there, and gives volumes that as many nodes can write as the mode needs."""

from __future__ import annotations

from gpuctl.cluster.deploy.cluster_snapshot import There
from gpuctl.cluster.environment import Environment
from gpuctl.cluster.manifests import storage
from gpuctl.domain.findings import Finding, Verdict

# No API tells what a provisioner can do. Block storage is written by one node at a time, file systems by many:
# Kubernetes, Persistent Volumes, access modes; OpenShift, "Understanding persistent storage", supported access modes.
# The end of a provisioner's name, for operators put their namespace before it.
BY_ONE_NODE = (
    "rbd.csi.ceph.com",
    "ebs.csi.aws.com",
    "kubernetes.io/aws-ebs",
    "pd.csi.storage.gke.io",
    "kubernetes.io/gce-pd",
    "disk.csi.azure.com",
    "cinder.csi.openstack.org",
    "rancher.io/local-path",
)
BY_MANY_NODES = ("cephfs.csi.ceph.com", "efs.csi.aws.com", "fsx.csi.aws.com", "nfs.csi.k8s.io", "file.csi.azure.com")


def storage_class(env: Environment, there: There) -> list[Finding]:
    """The class of all volumes."""
    name = storage.storage_class(env)
    subject = f"StorageClass {name}"
    if there.classes.why:
        return [Finding("storage", subject, Verdict.UNKNOWN, there.classes.why)]
    known = {each["metadata"]["name"]: each for each in there.classes.value}
    if name not in known:
        field = "storage.class_rwx" if env.cluster.storage.mode == "rwx" else "storage.class_rwo"
        hint = f"{field}: there are {', '.join(sorted(known)) or 'none at all'}"
        return [Finding("storage", subject, Verdict.FAIL, "there is no such class", hint=hint)]
    if env.cluster.storage.mode != "rwx":
        return [Finding("storage", subject, Verdict.OK)]
    return [_by_many(env, there, subject, str(known[name].get("provisioner")))]


def _by_many(env: Environment, there: There, subject: str, provisioner: str) -> Finding:
    """Proved by a volume that is there, or known by the provisioner."""
    if provisioner.endswith(BY_MANY_NODES) or _proof(env, there):
        return Finding("storage", subject, Verdict.OK)
    if provisioner.endswith(BY_ONE_NODE):
        words = f"its volumes ({provisioner}) are written by one node at a time, and storage.mode is rwx"
        hint = "take a class of a shared file system, or storage.mode: volumeClaimTemplates"
        return Finding("storage", subject, Verdict.FAIL, words, hint=hint)
    words = f"whether many nodes can write a volume of {provisioner} is not known; it shows when the first is made"
    return Finding("storage", subject, Verdict.UNKNOWN, words)


def _proof(env: Environment, there: There) -> bool:
    """Whether somebody of the namespace has such a volume."""
    return any(
        each["spec"].get("storageClassName") == storage.storage_class(env)
        and "ReadWriteMany" in each["spec"].get("accessModes", [])
        and (each.get("status") or {}).get("phase") == "Bound"
        for each in there.claims.value
    )
