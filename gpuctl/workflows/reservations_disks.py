"""Volumes of disks of reservations in a cluster: made, copied and deleted as claims, which no session owns."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from gpuctl.core.errors import GpuctlError, Unreachable
from gpuctl.domain.kube_errors import Conflict, NotFound
from gpuctl.edges.kube.cluster import Cluster, Kind, Request, name_of
from gpuctl.engine import printable
from gpuctl.reservations.agent import NotObeyed, NotReady, Unable
from gpuctl.reservations.rules.disks import Volume
from gpuctl.workflows import reservations_disk_objects as disk_objects
from gpuctl.workflows.reservations_disk_objects import SNAPSHOT_API, Copying, Means

Object = dict[str, Any]
AS_GPUCTL = (("fieldManager", "gpuctl"),)


@contextlib.contextmanager
def as_a_node() -> Iterator[None]:
    """Errors of the API as those of a node: without an answer of the API, the node is not lost."""
    try:
        yield
    except Unreachable as error:
        raise Unable(str(error)) from error
    except GpuctlError as error:
        raise NotObeyed(str(error)) from error


@dataclass(frozen=True)
class ClusterDisks:
    """Disks of a service in the namespace of a cluster. `size` and `storage_class`: of new ones."""

    cluster: Cluster
    service: str
    size: str
    storage_class: str

    def volumes(self) -> Sequence[Volume]:
        with as_a_node():
            claims = [
                one for one in self._listed() if disk_objects.notes_of(one).get(disk_objects.SERVICE) == self.service
            ]
            for claim in claims:
                self._end_snapshot(claim)
            return [disk_objects.volume_of(one) for one in claims]

    def make(self, volume: str, person: str) -> None:
        with as_a_node():
            self.make_claim(volume, person)

    def make_claim(self, volume: str, person: str, *, existed: bool = False) -> None:
        """The claim of a volume; its storage class decides when there is a volume behind it.

        `existed`: one that does not exist any more is not made again. `GpuctlError` if the cluster refuses.
        """
        if existed and self._claim(volume) is None:
            raise NotObeyed(f"the volume of its disk does not exist any more: {disk_objects.claim_name(volume)}")
        self._make(disk_objects.claim(self.service, volume, person, self.size, self.storage_class), volume)

    def copy(self, volume: str, person: str, source: str) -> None:
        with as_a_node():
            origin = self._claim(source)
            if origin is None:
                raise NotObeyed(f"the volume of its source does not exist: {disk_objects.claim_name(source)}")
            method = self.copying(str(origin["spec"].get("storageClassName") or ""))
            if method.impossible:
                raise NotObeyed(method.impossible)
            present = self._claim(volume)
            if present is None:
                taken = self._snapshot(volume, origin, method) if method.means is Means.SNAPSHOT else None
                empty = disk_objects.claim(self.service, volume, person, self.size, self.storage_class)
                present = self._make(disk_objects.copied_claim(empty, origin, taken), volume)
            phase = (present.get("status") or {}).get("phase", "Pending")
            if phase != "Bound" and not method.waits:
                raise NotReady(f"{name_of(present)} is {phase}")

    def delete(self, volume: str) -> None:
        """The volume is gone, and the snapshot of which it was made: a later volume of this name must not take that."""
        with as_a_node():
            claim = self._named(volume)
            if claim is None or not disk_objects.is_disk(claim, self.service, volume):  # there is none of this service
                if (snapshot := self._delete_snapshot(volume)) is not None:
                    raise NotReady(f"{name_of(snapshot)} is being deleted")
                return
            if "deletionTimestamp" not in claim["metadata"]:
                self.cluster.delete(claim)
            raise NotReady(f"{name_of(claim)} is being deleted")

    def copying(self, storage_class: str) -> Copying:
        """Method by which volumes of a storage class ("": the default one) are copied."""
        try:
            classes = self.cluster.find(self.cluster.kind("storage.k8s.io/v1", "StorageClass"), {})
            chosen = disk_objects.class_of(classes, storage_class)
            served = self.cluster.serves(SNAPSHOT_API, "VolumeSnapshotClass")
            kind = self.cluster.kind(SNAPSHOT_API, "VolumeSnapshotClass") if served else None
            return disk_objects.copying(chosen, self.cluster.find(kind, {}) if kind else ())
        except Unreachable:
            raise
        except GpuctlError as error:
            return Copying(impossible=f"it is unknown whether disks can be copied: {error.wrong}")

    # ---- claims -----------------------------------------------------------------------------------------------------

    def _kind(self) -> Kind:
        return self.cluster.kind("v1", "PersistentVolumeClaim")

    def _listed(self) -> list[Object]:
        return self.cluster.find(self._kind(), disk_objects.LABELS)

    def _claim(self, volume: str) -> Object | None:
        """The claim of a volume, None if there is none; `NotObeyed` if it is somebody else's."""
        claim = self._named(volume)
        if claim is not None and not disk_objects.is_disk(claim, self.service, volume):
            raise NotObeyed(f"{name_of(claim)} was not made for the disk {volume} of these reservations")
        return claim

    def _named(self, volume: str) -> Object | None:
        """The claim of the name that a volume has, whosever it is."""
        return self.cluster.get(self._kind(), disk_objects.claim_name(volume))

    def _make(self, claim: Object, volume: str) -> Object:
        present = self._claim(volume)
        if present is None:
            path = self.cluster.path_of(self._kind())
            try:
                return self.cluster.ask(Request(f"make {name_of(claim)}", "POST", path, AS_GPUCTL, claim))
            except Conflict:  # made by an earlier try whose answer was lost
                present = self._claim(volume)
        if present is None or "deletionTimestamp" in present["metadata"]:
            raise NotReady(f"{name_of(claim)} is being deleted")
        return present

    # ---- snapshots --------------------------------------------------------------------------------------------------

    def _snapshot(self, volume: str, source: Object, method: Copying) -> Object:
        """The snapshot of which a volume is made, once it can be used."""
        kind = self.cluster.kind(SNAPSHOT_API, "VolumeSnapshot")
        desired = disk_objects.snapshot(self.service, volume, source, method.snapshot_class)
        present = self.cluster.get(kind, desired["metadata"]["name"])
        if present is None:
            with contextlib.suppress(Conflict):
                path = self.cluster.path_of(kind)
                self.cluster.ask(Request(f"make {name_of(desired)}", "POST", path, AS_GPUCTL, desired))
            raise NotReady(f"{name_of(desired)} is being taken")
        if not disk_objects.is_disk(present, self.service, volume):
            raise NotObeyed(f"{name_of(present)} was not made for the disk {volume} of these reservations")
        if "deletionTimestamp" in present["metadata"]:  # of an earlier disk of this name
            raise NotReady(f"{name_of(present)} is being deleted")
        if present["spec"].get("source") != desired["spec"]["source"]:
            raise NotObeyed(f"{name_of(present)} is of another disk: delete it")
        status = present.get("status") or {}
        if (error := status.get("error")) and not status.get("readyToUse"):
            raise NotObeyed(printable(f"{name_of(present)}: {error.get('message') or 'failed without a reason'}"))
        if status.get("readyToUse") is not True:
            raise NotReady(f"{name_of(present)} is being taken")
        return present

    def _end_snapshot(self, claim: Object) -> None:
        """Delete the snapshot of a volume that was made of it: nothing needs it any more."""
        origin = claim["spec"].get("dataSource") or {}
        if origin.get("kind") == "VolumeSnapshot" and (claim.get("status") or {}).get("phase") == "Bound":
            self._delete_snapshot(disk_objects.notes_of(claim)[disk_objects.DISK])

    def _delete_snapshot(self, volume: str) -> Object | None:
        """Delete the snapshot of which a volume was made; the one that is being deleted, None if there is none."""
        if not self.cluster.serves(SNAPSHOT_API, "VolumeSnapshot"):
            return None
        name = f"{disk_objects.claim_name(volume)}-source"
        snapshot = self.cluster.get(self.cluster.kind(SNAPSHOT_API, "VolumeSnapshot"), name)
        if snapshot is None or not disk_objects.is_disk(snapshot, self.service, volume):
            return None
        if "deletionTimestamp" not in snapshot["metadata"]:
            with contextlib.suppress(NotFound):
                self.cluster.delete(snapshot)
        return snapshot
