"""Preflight of storage: the class exists, and its volumes support the access mode that is needed."""

from __future__ import annotations

from gpuctl.cluster.deploy.cluster_snapshot import ClusterSnapshot
from gpuctl.cluster.environment import Environment
from gpuctl.cluster.manifests import storage
from gpuctl.domain.findings import Finding, Verdict

# No API reports a provisioner's access modes. Block storage is written by one node at a time, file systems by many:
# Kubernetes, Persistent Volumes, access modes; OpenShift, "Understanding persistent storage", supported access modes.
# Matched at the end of the provisioner's name, because operators put their namespace in front.
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


def storage_class(env: Environment, snapshot: ClusterSnapshot) -> list[Finding]:
    """Check the storage class of the volumes."""
    name = storage.storage_class(env)
    subject = f"StorageClass {name}"
    if snapshot.classes.why:
        return [Finding("storage", subject, Verdict.UNKNOWN, snapshot.classes.why)]
    known = {
        storage_class_object["metadata"]["name"]: storage_class_object
        for storage_class_object in snapshot.classes.value
    }
    if name not in known:
        field = "storage.class_rwx" if env.cluster.storage.mode == "rwx" else "storage.class_rwo"
        hint = f"{field}: the classes are {', '.join(sorted(known)) or 'none'}"
        return [Finding("storage", subject, Verdict.FAIL, "the class does not exist", hint=hint)]
    if env.cluster.storage.mode != "rwx":
        return [Finding("storage", subject, Verdict.OK)]
    return [_by_many(env, snapshot, subject, str(known[name].get("provisioner")))]


def _by_many(env: Environment, snapshot: ClusterSnapshot, subject: str, provisioner: str) -> Finding:
    """Judge ReadWriteMany by an existing volume, or by the provisioner."""
    if provisioner.endswith(BY_MANY_NODES) or _proof(env, snapshot):
        return Finding("storage", subject, Verdict.OK)
    if provisioner.endswith(BY_ONE_NODE):
        message = f"its volumes ({provisioner}) are written by one node at a time, and storage.mode is rwx"
        hint = "use a class of a shared file system, or storage.mode: volumeClaimTemplates"
        return Finding("storage", subject, Verdict.FAIL, message, hint=hint)
    message = (
        f"it is not known whether many nodes can write a volume of {provisioner}; that is seen once the first is made"
    )
    return Finding("storage", subject, Verdict.UNKNOWN, message)


def _proof(env: Environment, snapshot: ClusterSnapshot) -> bool:
    """Return True if the namespace has a bound ReadWriteMany volume of the class."""
    return any(
        claim["spec"].get("storageClassName") == storage.storage_class(env)
        and "ReadWriteMany" in claim["spec"].get("accessModes", [])
        and (claim.get("status") or {}).get("phase") == "Bound"
        for claim in snapshot.claims.value
    )
