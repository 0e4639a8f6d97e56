"""The fleet of an isolation: nodes rack by rack, and the adapters that are tested one at a time."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from gpuctl.core.errors import GpuctlError, InvalidInput
from gpuctl.nccl.baselines import load
from gpuctl.nccl.context import RunContext
from gpuctl.nccl.isolate import rail_selection, record
from gpuctl.nccl.isolate.model import Fleet
from gpuctl.nccl.model import LaunchResult, Sweep
from gpuctl.workflows import nccl_preflight
from gpuctl.workflows.nccl_preflight import Layout
from gpuctl.workflows.nccl_targets.model import NodeAccess, Notify


def fleet(access: NodeAccess, path: Path | None, rails: str, notify: Notify) -> Fleet:
    """Nodes, rack by rack if racks are known: from the inventory or cluster, else from the record, else from the
    nodes themselves.

    `path`: record of the isolation. `rails`: adapters separated by commas, "none" for none, "" for NCCL's choice.
    """
    if len(access.nodes) < 2:
        raise InvalidInput("isolate", "there is only one node, and none to compare it with", "select more nodes")
    requested = tuple(name.strip() for name in rails.split(",") if name.strip())
    chosen = () if requested == ("none",) else requested
    recorded = path is not None and path.exists()
    racks = record.read(path).fleet.racks if path and recorded and not access.racks else access.racks
    layout = _layout(access) if chosen or not (racks or recorded) else None
    for warning in rail_selection.check(chosen, layout.devices if layout else {}):
        notify(f"--rails: {warning}")
    if layout and layout.racks and not racks:
        notify(f"racks are {layout.racks_are}")
        racks = layout.racks
    nodes = sorted(access.nodes, key=lambda name: racks.get(name, ""))
    return Fleet(tuple(nodes), racks, chosen if requested else None)


def with_expectation(
    known: Fleet, sweep: Sweep, instance: str | None, network: str | None, expect_gbs: float | None = None
) -> Fleet:
    """Add the network and bandwidth to expect: the given ones, else by machine type, else those of the fleet."""
    if instance is not None:
        book, gpus = load.book(), sweep.gpus_per_node  # one process per GPU
        two = RunContext(instance, 2, gpus, gpus, algorithm="Ring", collective=sweep.collective)
        system, row = book.systems.get(instance), book.row_for(two, sweep.end_bytes)
        network = network or (system.network if system else None)
        expect_gbs = expect_gbs or (row.expect if row else None)
    return replace(known, expected_gbs=expect_gbs or known.expected_gbs, network=network or known.network)


def save(path: Path, tested: Fleet, history: Sequence[LaunchResult]) -> None:
    """Write the runs of an isolation; `GpuctlError` if the disk does not take them."""
    try:
        record.write(path, tested, history)
    except OSError as error:
        raise GpuctlError(f"save the runs in {path}", error.strerror or str(error)) from error


def _layout(access: NodeAccess) -> Layout:
    """Fabric as the nodes report it; nodes that cannot be queried have no known adapters."""
    layout = access.layout() if access.layout else nccl_preflight.layout([])
    return layout._replace(devices=dict.fromkeys(access.nodes) | layout.devices)
