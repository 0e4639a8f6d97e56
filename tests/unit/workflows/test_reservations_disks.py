"""Volumes of disks in a cluster: what is asked of it at each step, and how a storage class copies."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest

from gpuctl.core.errors import Unreachable
from gpuctl.domain.kube_errors import Forbidden, NotFound
from gpuctl.edges.kube.cluster import Kind, Object
from gpuctl.reservations.agent import NotObeyed, NotReady, Unable
from gpuctl.workflows.reservations_disk_objects import (
    SNAPSHOT_API,
    Means,
    claim,
    claim_name,
    class_of,
    copying,
    snapshot,
)
from gpuctl.workflows.reservations_disks import ClusterDisks
from tests.rig.standin_namespace import StandinNamespace, merged

DATA, COPY = claim_name("ada/data"), claim_name("ada/copy")
SNAPSHOT = f"{COPY}-source"


class Storage(StandinNamespace):
    """The namespace, with storage classes; `snapshots`: the API of snapshots is installed. `down`: no answer."""

    def __init__(self) -> None:
        super().__init__()
        self.snapshots = self.down = False

    def kind(self, api_version: str, kind: str) -> Kind:
        if api_version == SNAPSHOT_API and not self.snapshots:
            raise NotFound(f"find {kind}", "the cluster does not serve it")
        return super().kind(api_version, kind)

    def once(self, request: Any, silent_s: float = 0) -> Object:
        if self.down:
            raise Unreachable(request.doing, "no answer")
        return super().once(request, silent_s)

    def storage_class(self, name: str, driver: str, **more: Any) -> None:
        self.add(
            {
                "apiVersion": "storage.k8s.io/v1",
                "kind": "StorageClass",
                "metadata": {"name": name},
                "provisioner": driver,
                **more,
            }
        )

    def snapshot_class(self, name: str, driver: str) -> None:
        self.snapshots = True
        self.add(
            {"apiVersion": SNAPSHOT_API, "kind": "VolumeSnapshotClass", "metadata": {"name": name}, "driver": driver}
        )

    def at(self, kind: str, name: str) -> str:
        return self.path_of(self.kind(SNAPSHOT_API if kind.startswith("VolumeS") else "v1", kind), name)

    def status(self, kind: str, name: str, **status: Any) -> None:
        self.items[self.at(kind, name)] = merged(self.items[self.at(kind, name)], {"status": status})


@pytest.fixture
def storage() -> Storage:
    return Storage()


@pytest.fixture
def disks(storage: Storage) -> ClusterDisks:
    return ClusterDisks(storage, "service-1", "10Gi", "fast")


def with_data(storage: Storage, disks: ClusterDisks) -> None:
    disks.make("ada/data", "ada")
    storage.status("PersistentVolumeClaim", DATA, phase="Bound", capacity={"storage": "12Gi"})


def claim_of(storage: Storage, name: str) -> Object:
    return storage.items[storage.at("PersistentVolumeClaim", name)]


def test_a_volume_is_made_once_and_listed_with_its_size(storage: Storage, disks: ClusterDisks) -> None:
    for _ in range(2):
        disks.make("ada/data", "ada")
    assert storage.writes == [("POST", "persistentvolumeclaims")]
    assert claim_of(storage, DATA)["spec"]["storageClassName"] == "fast"
    [volume] = disks.volumes()
    assert (volume.id, volume.person, volume.claim, volume.size) == ("ada/data", "ada", DATA, "10Gi")
    storage.status("PersistentVolumeClaim", DATA, phase="Bound", capacity={"storage": "12Gi"})
    assert disks.volumes()[0].size == "12Gi"


def test_volumes_of_another_service_are_neither_listed_nor_made_nor_deleted(
    storage: Storage, disks: ClusterDisks
) -> None:
    storage.add(claim("service-2", "ada/data", "ada", "1Gi", ""))
    assert disks.volumes() == []
    with pytest.raises(NotObeyed, match="was not made for the disk ada/data of these reservations"):
        disks.make("ada/data", "ada")
    disks.delete("ada/data")  # there is none of this service, so that its name is free again
    assert storage.writes == []


def test_a_volume_that_a_session_had_is_not_made_again_as_an_empty_one(storage: Storage, disks: ClusterDisks) -> None:
    with pytest.raises(NotObeyed, match="does not exist any more"):
        disks.make_claim("ada/data", "ada", existed=True)
    assert storage.writes == []


def test_deleting_lasts_until_the_claim_is_gone(storage: Storage, disks: ClusterDisks) -> None:
    with_data(storage, disks)
    with pytest.raises(NotReady, match="is being deleted"):
        disks.delete("ada/data")
    disks.delete("ada/data")
    assert storage.writes == [("POST", "persistentvolumeclaims"), ("DELETE", f"persistentvolumeclaims/{DATA}")]


def test_a_claim_that_a_pod_still_has_is_deleted_once_and_waited_for(storage: Storage, disks: ClusterDisks) -> None:
    storage.add(claim("service-1", "ada/data", "ada", "1Gi", ""), deletionTimestamp="2026-01-05T09:00:00Z")
    for step in (partial(disks.delete, "ada/data"), partial(disks.make, "ada/data", "ada")):
        with pytest.raises(NotReady, match="is being deleted"):
            step()
    assert storage.writes == []
    assert disks.volumes()[0].ending


def test_a_driver_that_clones_gets_the_claim_as_the_source(storage: Storage, disks: ClusterDisks) -> None:
    storage.storage_class("fast", "rook-ceph.rbd.csi.ceph.com")
    with_data(storage, disks)
    with pytest.raises(NotReady, match=f"{COPY} is Pending"):
        disks.copy("ada/copy", "ada", "ada/data")
    spec = claim_of(storage, COPY)["spec"]
    assert spec["dataSource"] == {"kind": "PersistentVolumeClaim", "name": DATA}
    assert (spec["resources"]["requests"]["storage"], spec["storageClassName"]) == ("12Gi", "fast")
    storage.status("PersistentVolumeClaim", COPY, phase="Bound")
    disks.copy("ada/copy", "ada", "ada/data")


@pytest.mark.parametrize("waits", [True, False])
def test_a_snapshot_is_taken_at_once_and_ends_when_the_volume_has_it(
    storage: Storage, disks: ClusterDisks, waits: bool
) -> None:
    mode = {"volumeBindingMode": "WaitForFirstConsumer"} if waits else {}
    storage.storage_class("fast", "ebs.csi.aws.com", **mode)
    storage.snapshot_class("ebs-snapshots", "ebs.csi.aws.com")
    with_data(storage, disks)
    for _ in range(2):
        with pytest.raises(NotReady, match="is being taken"):
            disks.copy("ada/copy", "ada", "ada/data")
    spec = storage.items[storage.at("VolumeSnapshot", SNAPSHOT)]["spec"]
    assert spec == {"volumeSnapshotClassName": "ebs-snapshots", "source": {"persistentVolumeClaimName": DATA}}
    storage.status("VolumeSnapshot", SNAPSHOT, readyToUse=True)
    if waits:
        disks.copy("ada/copy", "ada", "ada/data")
    else:
        with pytest.raises(NotReady, match="is Pending"):
            disks.copy("ada/copy", "ada", "ada/data")
    origin = {"apiGroup": "snapshot.storage.k8s.io", "kind": "VolumeSnapshot", "name": SNAPSHOT}
    assert claim_of(storage, COPY)["spec"]["dataSource"] == origin
    disks.volumes()
    assert storage.at("VolumeSnapshot", SNAPSHOT) in storage.items
    storage.status("PersistentVolumeClaim", COPY, phase="Bound")
    disks.copy("ada/copy", "ada", "ada/data")
    disks.volumes()
    assert storage.at("VolumeSnapshot", SNAPSHOT) not in storage.items


def test_a_snapshot_that_fails_says_why_and_goes_with_the_disk(storage: Storage, disks: ClusterDisks) -> None:
    storage.storage_class("fast", "ebs.csi.aws.com")
    storage.snapshot_class("ebs-snapshots", "ebs.csi.aws.com")
    with_data(storage, disks)
    with pytest.raises(NotReady):
        disks.copy("ada/copy", "ada", "ada/data")
    storage.status("VolumeSnapshot", SNAPSHOT, error={"message": "SnapshotLimitExceeded"})
    with pytest.raises(NotObeyed, match="SnapshotLimitExceeded"):
        disks.copy("ada/copy", "ada", "ada/data")
    with pytest.raises(NotReady, match=f"{SNAPSHOT} is being deleted"):
        disks.delete("ada/copy")
    disks.delete("ada/copy")
    assert storage.at("VolumeSnapshot", SNAPSHOT) not in storage.items


def with_snapshot(storage: Storage, source: str, **meta: str) -> None:
    """A snapshot that can be used, left from an earlier disk ada/copy."""
    storage.storage_class("fast", "ebs.csi.aws.com")
    storage.snapshot_class("ebs-snapshots", "ebs.csi.aws.com")
    storage.add(snapshot("service-1", "ada/copy", {"metadata": {"name": source}}, "ebs-snapshots"), **meta)
    storage.status("VolumeSnapshot", SNAPSHOT, readyToUse=True)


def test_a_snapshot_of_an_earlier_disk_of_this_name_is_not_copied(storage: Storage, disks: ClusterDisks) -> None:
    with_data(storage, disks)
    with_snapshot(storage, DATA, deletionTimestamp="2026-01-05T09:00:00Z")
    with pytest.raises(NotReady, match="is being deleted"):
        disks.copy("ada/copy", "ada", "ada/data")
    assert storage.at("PersistentVolumeClaim", COPY) not in storage.items


def test_a_snapshot_of_another_disk_is_not_copied(storage: Storage, disks: ClusterDisks) -> None:
    with_data(storage, disks)
    with_snapshot(storage, claim_name("ada/secret"))
    with pytest.raises(NotObeyed, match=f"{SNAPSHOT} is of another disk"):
        disks.copy("ada/copy", "ada", "ada/data")
    assert storage.at("PersistentVolumeClaim", COPY) not in storage.items


def test_a_disk_is_deleted_once_its_snapshot_is_gone(storage: Storage, disks: ClusterDisks) -> None:
    with_snapshot(storage, DATA, deletionTimestamp="2026-01-05T09:00:00Z")
    for _ in range(2):
        with pytest.raises(NotReady, match=f"{SNAPSHOT} is being deleted"):
            disks.delete("ada/copy")
    assert storage.writes == []


@pytest.mark.parametrize(
    ("driver", "mode", "snapshots_of", "means", "reason"),
    [
        ("ebs.csi.aws.com", "WaitForFirstConsumer", "ebs.csi.aws.com", Means.SNAPSHOT, ""),
        ("rbd.csi.ceph.com", "Immediate", "", Means.VOLUME, ""),
        ("rbd.csi.ceph.com", "WaitForFirstConsumer", "", None, "makes volumes at their first use"),
        ("ebs.csi.aws.com", "Immediate", "other.csi", None, "is not known to copy volumes, and the cluster has no Vol"),
        ("kubernetes.io/no-provisioner", "WaitForFirstConsumer", "", None, "is not known to copy volumes"),
    ],
)
def test_a_storage_class_copies_by_snapshot_by_volume_or_not_at_all(
    driver: str, mode: str, snapshots_of: str, means: Means | None, reason: str
) -> None:
    of_class = {"metadata": {"name": "fast"}, "provisioner": driver, "volumeBindingMode": mode}
    snapshot_classes = [{"metadata": {"name": "s"}, "driver": snapshots_of}] if snapshots_of else []
    method = copying(of_class, snapshot_classes)
    assert method.means is means
    assert (reason in method.impossible) if reason else (method.impossible == "")


def test_the_default_class_counts_where_it_is_clear() -> None:
    def made(name: str, default: str) -> Object:
        return {"metadata": {"name": name, "annotations": {"storageclass.kubernetes.io/is-default-class": default}}}

    classes = [made("a", "true"), made("b", "false")]
    assert class_of(classes, "") == classes[0]
    assert class_of(classes, "b") == classes[1]
    assert class_of(classes, "c") is None
    assert class_of([*classes, made("d", "true")], "") is None
    assert "storage class of the disk is unknown" in copying(None, []).impossible


def test_a_clone_of_a_disk_whose_class_does_not_copy_says_so(storage: Storage, disks: ClusterDisks) -> None:
    storage.storage_class("fast", "nfs")
    with_data(storage, disks)
    with pytest.raises(NotObeyed, match="the storage class fast is not known to copy volumes"):
        disks.copy("ada/copy", "ada", "ada/data")
    with pytest.raises(NotObeyed, match="the volume of its source does not exist"):
        disks.copy("ada/copy", "ada", "ada/none")


def test_without_the_right_to_read_classes_it_is_unknown_whether_they_copy(
    storage: Storage, disks: ClusterDisks, monkeypatch: pytest.MonkeyPatch
) -> None:
    def forbidden(*_: object) -> list[Object]:
        raise Forbidden("list storageclasses", "it may not")

    monkeypatch.setattr(storage, "find", forbidden)
    assert disks.copying("fast").impossible == "it is unknown whether disks can be copied: it may not"


def test_an_api_without_an_answer_is_no_answer_of_the_disks(storage: Storage, disks: ClusterDisks) -> None:
    storage.down = True
    steps = (disks.volumes, partial(disks.make, "ada/a", "ada"), partial(disks.delete, "ada/a"))
    for step in steps:
        with pytest.raises(Unable, match="no answer"):
            step()
