"""Nodes, racks and adapters of a simulated fleet, and the speed of a ring over them without a fault."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from random import Random


@dataclass(frozen=True)
class Network:
    """`own`: the speed of each node with all adapters (GB/s); `across`: the share of it that remains between racks.

    A rack's uplink carries `uplinks` GB/s each way for all rings that leave it at the same time.
    """

    nodes: tuple[str, ...]
    rack_of: dict[str, str]
    rails: tuple[str, ...]
    own: dict[str, float]
    across: float
    uplinks: dict[str, float]
    place: dict[str, int] = field(default_factory=dict)

    def racks(self, nodes: Sequence[str]) -> set[str]:
        return {self.rack_of[node] for node in nodes}


def network(random: Random, count: int, *, rails: int = 8, gbs: float = 370.0, flat: bool = False) -> Network:
    """Racks of mixed sizes, uplinks that are not, twice or four times oversubscribed; no two nodes quite alike."""
    nodes = tuple(f"node-{number}" for number in range(count))
    rack_of: dict[str, str] = {}
    sizes: dict[str, int] = {}
    usual = random.choice((8, 12, 16, 32))
    while len(rack_of) < count:
        name, size = f"rack-{len(sizes)}", count if flat else max(2, usual - random.choice((0, 0, 0, 1, 2, 3)))
        members = nodes[len(rack_of) : len(rack_of) + size]
        sizes[name] = len(members)
        rack_of |= dict.fromkeys(members, name)
    over = random.choice((1, 2, 4))
    return Network(
        nodes,
        rack_of,
        tuple(f"mlx5_{number}" for number in range(rails)),
        {node: gbs * random.gauss(1.0, 0.002) for node in nodes},
        random.choice((1.0, 0.95, 0.85)),
        {name: gbs * max(2.0, size / over) for name, size in sizes.items()},
        {node: number for number, node in enumerate(nodes)},
    )
