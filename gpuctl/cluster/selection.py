"""The environment that a command works on, as selected on the command line."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class EnvironmentSelection:
    """`name`: a cluster's name or file. `environment`: "" takes the file's name. `context`: "" is the current one."""

    name: str
    environment: str = ""
    single: bool = False
    context: str = ""
