"""Stand-in for the volumes of a cluster."""

from __future__ import annotations

from gpuctl.reservations.agent import NotReady
from gpuctl.reservations.rules.disks import Volume


class StandinVolumes:
    """Stand-in for the volumes of a cluster: sizes in memory. `failure`: raised by each call. `slow`: steps last."""

    def __init__(self) -> None:
        self.sizes: dict[str, str] = {}
        self.failure: Exception | None = None
        self.slow = False

    def volumes(self) -> list[Volume]:
        self._fail()
        return [Volume(id_, id_.partition("/")[0], f"claim-of-{id_}", size) for id_, size in self.sizes.items()]

    def make(self, volume: str, person: str) -> None:
        self._fail()
        self.sizes.setdefault(volume, "1Gi")

    def copy(self, volume: str, person: str, source: str) -> None:
        self._fail()
        if self.slow:
            raise NotReady("the snapshot is being taken")
        self.sizes[volume] = self.sizes[source]

    def delete(self, volume: str) -> None:
        self._fail()
        self.sizes.pop(volume, None)

    def _fail(self) -> None:
        if self.failure:
            raise self.failure
