"""The environment that a command works on, and the lines of its logs, as selected on the command line."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class EnvironmentSelection:
    """`name`: a cluster's name or file. `environment`: "" takes the file's name. `context`: "" is the current one."""

    name: str
    environment: str = ""
    single: bool = False
    context: str = ""


@dataclass(frozen=True)
class LogsRequest:
    """Lines of the pods' logs: the last `tail` of each pod, of the last `since` seconds, or from before a restart.

    `rank` None: all pods.
    """

    selection: EnvironmentSelection
    rank: int | None = None
    follow: bool = False
    previous: bool = False
    tail: int = 200
    since: float | None = None
