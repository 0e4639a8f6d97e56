"""The fleet of an isolation: nodes rack by rack, and the adapters that are tested one at a time."""

from __future__ import annotations

from pathlib import Path

from gpuctl.core.errors import InvalidInput
from gpuctl.nccl.isolate import rail_selection, record
from gpuctl.nccl.isolate.model import Fleet
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


def _layout(access: NodeAccess) -> Layout:
    """Fabric as the nodes report it; nodes that cannot be queried have no known adapters."""
    layout = access.layout() if access.layout else nccl_preflight.layout([])
    return layout._replace(devices=dict.fromkeys(access.nodes) | layout.devices)
