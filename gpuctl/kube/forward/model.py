"""Forward requests and slots: a slot keeps its local ports when its pod is replaced."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

Ports = tuple[tuple[int, int], ...]  # local, remote


@dataclass(frozen=True)
class Request:
    """All pods that match `selector`, from local port `first` on; or the single pod `pod`.

    `remote`: the ports of each pod. `local`: local ports for a single pod, 0 for any free one. `unprobed`: remote ports
    that must not be probed, because the server treats every connection as a client. `apart`: forward each port of the
    single pod with its own kubectl.
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
    """Local ports and the pod they lead to; `uid` is empty while no pod fills the slot."""

    ports: Ports
    pod: str
    uid: str = ""
