"""Kubernetes objects of disks of reservations as plain data, and the choice of how a volume is copied."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any

from gpuctl.eks.gpu_pod import model
from gpuctl.reservations.rules.disks import Volume

Object = dict[str, Any]
SERVICE, DISK, PERSON = "gpuctl.io/reservations", "gpuctl/disk", "gpuctl/person"
LABELS = {"app.kubernetes.io/managed-by": "gpuctl", model.PART_LABEL: "disk"}
SNAPSHOT_API = "snapshot.storage.k8s.io/v1"
DEFAULT_CLASS = "storageclass.kubernetes.io/is-default-class"
# Drivers that copy a volume directly: "Cloning" in https://kubernetes-csi.github.io/docs/drivers.html. No object of a
# cluster says so. Some installations put a name before the driver's, such as rook-ceph.
CLONING_DRIVERS = (
    "block.csi.ibm.com",
    "cephfs.csi.ceph.com",
    "cinder.csi.openstack.org",
    "csi-isilon.dellemc.com",
    "csi-powermax.dellemc.com",
    "csi-powerstore.dellemc.com",
    "csi-unity.dellemc.com",
    "csi.hpe.com",
    "csi.huawei.com",
    "csi.nutanix.com",
    "csi.san.synology.com",
    "csi.trident.netapp.io",
    "cstor.csi.openebs.io",
    "hspc.csi.hitachi.com",
    "infinibox-csi-driver",
    "linstor.csi.linbit.com",
    "pxd.portworx.com",
    "rbd.csi.ceph.com",
)


class Means(Enum):
    """Means of a copy."""

    SNAPSHOT = "snapshot"
    VOLUME = "volume"


@dataclass(frozen=True)
class Copying:
    """Method by which volumes of a storage class are copied. `impossible`: why they are not, "" if they are.

    `snapshot_class`: for `Means.SNAPSHOT`. `waits`: a new volume is made at its first use only.
    """

    means: Means | None = None
    snapshot_class: str = ""
    waits: bool = False
    impossible: str = ""


def copying(storage_class: Object | None, snapshot_classes: Sequence[Object]) -> Copying:
    """Choose the method by which volumes of a class are copied.

    A class that makes volumes at their first use would copy what the source has then, not now: it needs snapshots.
    """
    if storage_class is None:
        return Copying(impossible="the storage class of the disk is unknown, so that nothing says how it is copied")
    name, driver = storage_class["metadata"]["name"], str(storage_class.get("provisioner", ""))
    waits = storage_class.get("volumeBindingMode") == "WaitForFirstConsumer"
    for one in snapshot_classes:
        if one.get("driver") == driver:
            return Copying(Means.SNAPSHOT, str(one["metadata"]["name"]), waits)
    lacks = f"the cluster has no VolumeSnapshotClass for {driver or 'it'}"
    if not any(driver == known or driver.endswith(f".{known}") for known in CLONING_DRIVERS):
        why = f"the storage class {name} is not known to copy volumes, and {lacks}"
        return Copying(impossible=why)
    if waits:
        why = f"the storage class {name} makes volumes at their first use, when the source may be another, and {lacks}"
        return Copying(impossible=why)
    return Copying(Means.VOLUME)


def class_of(classes: Sequence[Object], name: str) -> Object | None:
    """A storage class by its name, "" for the default one; None if it does not exist, or is not clear."""
    if name:
        return next((one for one in classes if one["metadata"]["name"] == name), None)
    defaults = [one for one in classes if (one["metadata"].get("annotations") or {}).get(DEFAULT_CLASS) == "true"]
    return defaults[0] if len(defaults) == 1 else None


def claim_name(volume: str) -> str:
    """Name of the claim of a volume: accounts and names of disks may have letters that Kubernetes does not take."""
    return f"disk-{hashlib.sha256(volume.encode()).hexdigest()[:16]}"


def claim(service: str, volume: str, person: str, size: str, storage_class: str) -> Object:
    """The claim of an empty volume."""
    spec: Object = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": size}}}
    if storage_class:
        spec["storageClassName"] = storage_class
    notes = {SERVICE: service, DISK: volume, PERSON: person}
    meta = {"name": claim_name(volume), "labels": LABELS, "annotations": notes}
    return {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": meta, "spec": spec}


def copied_claim(made: Object, source: Object, snapshot: Object | None) -> Object:
    """The claim `made` with the content of another claim, or of a snapshot of it; as large, and of the same class."""
    size = source["spec"]["resources"]["requests"]["storage"]
    if snapshot is None:
        origin = {"kind": "PersistentVolumeClaim", "name": source["metadata"]["name"]}
    else:
        group = SNAPSHOT_API.partition("/")[0]
        origin = {"apiGroup": group, "kind": "VolumeSnapshot", "name": snapshot["metadata"]["name"]}
    spec = {
        **made["spec"],
        "resources": {"requests": {"storage": (source.get("status") or {}).get("capacity", {}).get("storage", size)}},
    }
    if "storageClassName" in source["spec"]:
        spec["storageClassName"] = source["spec"]["storageClassName"]
    return {**made, "spec": {**spec, "dataSource": origin}}


def snapshot(service: str, volume: str, source: Object, snapshot_class: str) -> Object:
    """A snapshot of a claim, of which a volume is made."""
    meta = {
        "name": f"{claim_name(volume)}-source",
        "labels": LABELS,
        "annotations": {SERVICE: service, DISK: volume},
    }
    origin = {"persistentVolumeClaimName": source["metadata"]["name"]}
    spec = {"volumeSnapshotClassName": snapshot_class, "source": origin}
    return {"apiVersion": SNAPSHOT_API, "kind": "VolumeSnapshot", "metadata": meta, "spec": spec}


def is_disk(item: Object, service: str, volume: str) -> bool:
    """True for an object of a disk of this service; another one's people may be others with the same names."""
    notes = notes_of(item)
    return (notes.get(SERVICE), notes.get(DISK)) == (service, volume)


def notes_of(item: Object) -> Mapping[str, str]:
    return item["metadata"].get("annotations") or {}


def volume_of(item: Object) -> Volume:
    """A claim as a volume. Its size is that of the volume, before it is bound that of the request."""
    status, notes = item.get("status") or {}, notes_of(item)
    requested = item["spec"].get("resources", {}).get("requests", {}).get("storage", "")
    size = (status.get("capacity") or {}).get("storage") or requested
    ending = "deletionTimestamp" in item["metadata"]
    return Volume(str(notes.get(DISK)), str(notes.get(PERSON)), str(item["metadata"]["name"]), str(size), ending)
