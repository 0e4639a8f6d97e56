"""Steps on volumes of disks, and the list of a person's disks. The cluster is asked without the lock of decisions."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from functools import partial
from typing import Any

from gpuctl.reservations.agent import DiskAgent, NotObeyed, NotReady
from gpuctl.reservations.calls import nothing_left
from gpuctl.reservations.rules import disks
from gpuctl.reservations.rules.decision import Draft
from gpuctl.reservations.rules.disks import Volume
from gpuctl.reservations.rules.model import Book, Caller, Disk, DiskState

SOON_S = 300  # a step that lasts longer is no reason for passes that follow each other closely
Decide = Callable[[str, Callable[[Draft], object]], object]


class DiskWork:
    """Carries out what the states of disks demand. `agent`: None where sessions have no disks.

    `load`: a snapshot. `decide`: commits a decision of an actor. One thread at a time works; others return at once, and
    their work is done in the next pass. `clock`: seconds.
    """

    def __init__(
        self,
        agent: DiskAgent | None,
        load: Callable[[], Book],
        decide: Decide,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._agent, self._load, self._decide, self._clock = agent, load, decide, clock
        self._working = threading.Lock()
        self._volumes: dict[str, Volume] | None = None  # by their ids, as they were read last
        self.silence = ""  # why the volumes could not be read the last time
        self._lasts_since: dict[tuple[str, DiskState], float] = {}  # steps that last
        self.waiting = False  # a step lasts, and may end soon

    def step(self) -> None:
        """Compare disks with volumes, then take one step for each volume that has to change."""
        if self._agent is None or not self._working.acquire(blocking=False):
            return
        try:
            self._compare(self._agent)
            self._change(self._agent)
        finally:
            self._working.release()

    def _compare(self, agent: DiskAgent) -> None:
        """Without an answer the volumes are unknown, and no disk is lost."""
        try:
            volumes = agent.volumes()
        except (OSError, NotObeyed) as error:
            self.silence, self._volumes = str(error), None
            return
        self.silence, self._volumes = "", {volume.id: volume for volume in volumes}
        self._decide("reconciler", partial(disks.compare, volumes=volumes))

    def _change(self, agent: DiskAgent) -> None:
        lasts_since, self._lasts_since = self._lasts_since, {}
        for disk in [one for one in self._load().disks.values() if one.state in disks.WORK]:
            waits = ""
            try:
                if disk.state is DiskState.MAKING:
                    agent.make(disk.volume_id, disk.person)
                elif disk.state is DiskState.COPYING:
                    agent.copy(disk.volume_id, disk.person, disk.source)
                else:
                    agent.delete(disk.volume_id)
            except NotReady as error:
                waits, step = str(error), (disk.volume_id, disk.state)
                self._lasts_since[step] = lasts_since.get(step, self._clock())
            except (OSError, NotObeyed) as error:
                waits = str(error) or "no answer"
            self._decide("disks", partial(disks.report, name=disk.name, volume=disk.volume_id, waits=waits))
        now = self._clock()
        self.waiting = any(now - since < SOON_S for since in self._lasts_since.values())

    def rows(self, caller: Caller, content: dict[str, Any]) -> dict[str, Any]:
        """Answer to the call for the caller's disks; sizes and claims are null while the volumes are unknown."""
        nothing_left(content)
        book = self._load()
        disks.check_site(book, "list disks")
        mine = sorted((disk for disk in book.disks.values() if disk.person == caller.person), key=lambda one: one.name)
        return {"disks": [self._as_dict(book, disk) for disk in mine], "unknown": self.silence}

    def _as_dict(self, book: Book, disk: Disk) -> dict[str, Any]:
        volume = (self._volumes or {}).get(disk.volume_id)
        return {
            "id": disk.name,
            "name": disk.name.rpartition("/")[2],
            "state": str(disk.state),
            "reason": disk.reason,
            "attached": disk.attached,
            "promised": [id_ for id_ in disks.holders(book, disk) if id_ != disk.attached],
            "size": volume.size if volume else None,
            "claim": volume.claim if volume else None,
        }
