"""What to forward, and the slots that pods take: a local port stays with its slot when the pod is replaced."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

Ports = tuple[tuple[int, int], ...]  # local, remote


@dataclass(frozen=True)
class Request:
    """Every pod that `selector` names, from local port `first` on; or the pod `pod` alone.

    `remote`: the ports of each pod. `local`: the local ports for one pod, 0 where any free one will do.
    `unprobed`: those of `remote` that no probe is to connect to: what listens there takes a connection for a client.
    `apart`: each port of the one pod is forwarded by itself.
    """

    remote: Sequence[int]
    selector: str = ""
    pod: str = ""
    first: int = 0
    local: Sequence[int] = ()
    context: str = ""
    namespace: str = ""
    unprobed: Sequence[int] = ()
    apart: bool = False


@dataclass(frozen=True)
class Slot:
    """Local ports and the pod they lead to; `uid` is empty while no pod is there to take it."""

    ports: Ports
    pod: str
    uid: str = ""
