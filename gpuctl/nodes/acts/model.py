"""Acts on a node as frozen values."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from gpuctl.nodes.model import Process


class Means(StrEnum):
    """Path by which work is ended: its owner, or signals to its processes."""

    POD = "delete the pod"
    JOB = "scancel"
    SIGNALS = "TERM, then KILL"


@dataclass(frozen=True)
class Consent:
    """Rights that the user has claimed. `force` needs a `reason`; `bare_pods`: also pods without a controller."""

    force: bool = False
    reason: str = ""
    bare_pods: bool = False


@dataclass(frozen=True)
class End:
    """Work that one act ends. `label`: job or pod, or whose processes.

    `processes`: those on GPUs. `shown`: facts by which the node compares them again, of SIGNALS alone. `job`: number.
    `pod`: its uid; `namespace` and `name` as far as the node has them. `mine`: it is the one's who asks.
    """

    means: Means
    label: str
    who: str
    processes: tuple[Process, ...] = ()
    shown: tuple[Mapping[str, Any], ...] = ()
    job: str = ""
    pod: str = ""
    namespace: str = ""
    name: str = ""
    mine: bool = False
    notes: tuple[str, ...] = ()

    @property
    def gpus(self) -> tuple[int, ...]:
        """Indices of the GPUs that its processes use."""
        return tuple(sorted({gpu for process in self.processes for gpu in process.gpus}))


@dataclass(frozen=True)
class Plan:
    """Acts on a node, all of them or none. `refusals`: reasons not to act, each with a way out where one exists."""

    node: str
    ends: tuple[End, ...] = ()
    refusals: tuple[str, ...] = ()


@dataclass(frozen=True)
class Outcome:
    """Result of one act. `state`: "ended", "gone" (before), "left", "changed", "refused", "denied" or "unknown"."""

    label: str
    state: str
    reason: str = ""
    details: Mapping[str, Any] = field(default_factory=dict)

    @property
    def is_done(self) -> bool:
        return self.state in ("ended", "gone")
