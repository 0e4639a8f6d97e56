"""Records of a pod as values."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from gpuctl.core.text import plural
from gpuctl.domain.findings import Finding

Object = Mapping[str, Any]


@dataclass(frozen=True)
class Log:
    """Last lines of a container's log, without secrets. `before`: of the run that ended before its last restart.

    `why`: why it could not be read; "" if it was. `is_cut`: earlier lines may exist that were not read.
    """

    container: str
    lines: Sequence[str] = ()
    before: bool = False
    why: str = ""
    is_cut: bool = False

    @property
    def name(self) -> str:
        return f"{self.container} (the run that ended last)" if self.before else self.container

    @property
    def cut_note(self) -> str:
        """Say how much of a cut log was read; "" of a whole one."""
        return f"last {plural(len(self.lines), 'line')} read; an earlier failure may be above" if self.is_cut else ""


@dataclass(frozen=True)
class Events:
    """Events of one object, as the API has them. `why`: why they could not be read; "" if they were."""

    items: Sequence[Object] = ()
    why: str = ""


@dataclass(frozen=True)
class Records:
    """Everything that was read about one pod. `node`: None without a node, or if `node_why` says why not."""

    pod: Object
    logs: Sequence[Log] = ()
    events: Events = field(default_factory=Events)
    node: Object | None = None
    node_why: str = ""
    node_events: Events = field(default_factory=Events)

    @property
    def name(self) -> str:
        return name_of(self.pod)


@dataclass(frozen=True)
class Section:
    """Lines under a title. `ranks`: of each line, the lowest stay when there is room for few.

    `weight`: share of the room, in relation to other sections.
    """

    title: str
    lines: Sequence[str]
    ranks: Sequence[int]
    weight: int = 1


@dataclass(frozen=True)
class Bundle:
    """The text that is shown and sent. `secrets`: number of those removed; `notes`: what it lacks, and why."""

    text: str
    secrets: int
    findings: Sequence[Finding] = ()
    notes: Sequence[str] = ()


def name_of(pod: Object) -> str:
    """Return namespace/name."""
    return f"{pod['metadata']['namespace']}/{pod['metadata']['name']}"
