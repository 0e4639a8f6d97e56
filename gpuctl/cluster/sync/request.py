"""A requested sync, as given on the command line."""

from __future__ import annotations

from dataclasses import dataclass, field

from gpuctl.cluster.selection import EnvironmentSelection


@dataclass(frozen=True)
class FolderRequest:
    """`source`: the local folder; `target`: the pods' folder, "" is the workspace. `force`: overwrite changes there."""

    source: str = "."
    target: str = ""
    exclude: tuple[str, ...] = ()
    force: bool = False
    python: str = "python3"


@dataclass(frozen=True)
class PodsRequest:
    """An environment's pods or, if `pods` is not empty, pods by name in a namespace."""

    selection: EnvironmentSelection
    pods: str = ""
    container: str = ""
    namespace: str = ""

    @property
    def names(self) -> list[str]:
        return [name for name in self.pods.split(",") if name]


@dataclass(frozen=True)
class SyncCommand:
    targets: PodsRequest
    folder: FolderRequest = field(default_factory=FolderRequest)
    watch: bool = False
    check: bool = False
