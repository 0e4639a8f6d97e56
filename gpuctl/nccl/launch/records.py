"""Ended launches as plain data, both ways: for the history, for a broken-off isolation, for reports."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from gpuctl.nccl import serialize
from gpuctl.nccl.model import Ended, Launch, Sweep


def of(ended: Ended) -> dict[str, Any]:
    """One ended launch: nodes, sweep, rail, seconds, lost, waiting, left, and the run in its documented form."""
    return {
        "nodes": list(ended.launch.nodes),
        "rail": ended.launch.rail,
        "sweep": asdict(ended.launch.sweep),
        "seconds": ended.seconds,
        "lost": list(ended.lost),
        "waiting": dict(ended.waiting),
        "left": ended.left,
        "run": serialize.of(ended.run),
    }


def read(value: Mapping[str, Any]) -> Ended:
    """The same back; KeyError or TypeError where it is not of this form."""
    launch = Launch(tuple(value["nodes"]), Sweep(**value["sweep"]), value["rail"])
    run = serialize.read(value["run"])
    return Ended(launch, run, value["seconds"], tuple(value["lost"]), dict(value["waiting"]), value.get("left", ""))
