"""A requested development session."""

from __future__ import annotations

from dataclasses import dataclass, field

from gpuctl.cluster.selection import EnvironmentSelection
from gpuctl.cluster.sync.request import FolderRequest


@dataclass(frozen=True)
class DevRequest:
    """`script`: a local path in the synced folder. `wait`: start once a debugger is attached, which implies `debug`.

    `rank` None is the first pod.
    """

    selection: EnvironmentSelection
    script: str
    args: tuple[str, ...] = ()
    folder: FolderRequest = field(default_factory=FolderRequest)
    rank: int | None = None
    debug: bool = False
    wait: bool = False
    no_restart: bool = False
