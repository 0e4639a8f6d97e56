"""Isolations of small fleets in memory."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from random import Random

from gpuctl.nccl.isolate.flow import isolate
from gpuctl.nccl.isolate.model import Conclusion, Fleet, Policy
from gpuctl.nccl.model import LaunchResult
from tests.rig.nccl_fleet.faults import Fault
from tests.rig.nccl_fleet.network import Network
from tests.rig.nccl_fleet.runner import SimulatedFleet
from tests.rig.nccl_fleet.scatter import Scatter

CALM = Scatter("laplace", 0.003, 0.0)
RAILS = ("mlx5_0", "mlx5_1", "mlx5_2", "mlx5_3")


@dataclass(frozen=True)
class Played:
    """What an isolation came to, with everything behind it."""

    fleet: Fleet
    simulated: SimulatedFleet
    history: list[LaunchResult]
    end: Conclusion

    @property
    def named(self) -> list[str]:
        return [str(fault.cause) for fault in self.end.faults]

    @property
    def sizes(self) -> list[int]:
        """How many runs each round had."""
        return [len(launches) for launches in self.simulated.rounds]


def net(count: int, rack: int = 0, across: float = 1.0) -> Network:
    """So many nodes in racks of one size; 0: all in one."""
    nodes = tuple(f"node-{number}" for number in range(count))
    rack_of = {node: f"rack-{number // (rack or count)}" for number, node in enumerate(nodes)}
    return Network(nodes, rack_of, RAILS, dict.fromkeys(nodes, 370.0), across, dict.fromkeys(rack_of.values(), 4000.0))


def seeded(seed: int) -> Random:
    """The same random numbers each time."""
    return Random(seed)  # noqa: S311


def known(network: Network) -> Fleet:
    """A fleet of which the racks are known, and nothing else."""
    return Fleet(network.nodes, network.rack_of)


def play(network: Network, faults: Sequence[Fault] = (), policy: Policy | None = None, seed: int = 1) -> Played:
    """Isolate it, its racks known."""
    return play_fleet(known(network), SimulatedFleet(network, CALM, seeded(seed), faults), policy)


def play_rails(network: Network, fault: Fault) -> Played:
    """Isolate it, its adapters known too."""
    fleet = replace(known(network), rails=network.rails)
    return play_fleet(fleet, SimulatedFleet(network, CALM, seeded(1), [fault]))


def play_fleet(fleet: Fleet, simulated: SimulatedFleet, policy: Policy | None = None) -> Played:
    """Isolate what is known of a simulated fleet."""
    history, end = isolate(fleet, simulated, policy or Policy())
    assert end is not None
    return Played(fleet, simulated, history, end)


def slow(node: int, share: float = 0.2, chance: float = 1.0) -> Fault:
    """A node that loses a share of its speed."""
    return Fault("slow", "node", (f"node-{node}",), share, chance)
