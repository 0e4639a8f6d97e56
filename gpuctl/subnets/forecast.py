"""Nodes that fit into a subnet: placed one by one, each with the addresses and prefixes that it takes.

EC2 chooses the place of a single address, and does not document how. So there are two counts: `certain`, where each
single address breaks a whole /28 while there is one, and `possible`, where it goes into a broken one if it can.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from gpuctl.subnets.blocks import PREFIX_SIZE, Space, space
from gpuctl.subnets.demand import Demand
from gpuctl.subnets.model import Subnet

CNI_TAG = "kubernetes.io/role/cni"
MOST_NODES = 5000  # that a forecast counts to
NO_ADDRESS, NO_PREFIX = "InsufficientFreeAddressesInSubnet", "InsufficientCidrBlocks"
NO_INTERFACE = "InvalidParameterValue (not sufficient free addresses or prefixes)"


@dataclass
class Room:
    """Free space of a subnet while nodes are placed. `loose`: free addresses outside whole /28s; `whole`: free /28s
    outside reservations; `reserved`: free /28s in reservations for prefixes."""

    loose: int
    whole: int
    reserved: int

    @classmethod
    def of(cls, room: Space) -> Room:
        whole = room.free_prefixes - room.reserved_prefixes
        return cls(room.free - PREFIX_SIZE * whole, whole, room.reserved_prefixes)

    @property
    def total(self) -> int:
        return self.loose + PREFIX_SIZE * (self.whole + self.reserved)

    def take_addresses(self, count: int, *, worst: bool) -> bool:
        """False if there are fewer; `worst`: each out of a whole /28 if there is one."""
        for _ in range(count):
            if self.whole and (worst or not self.loose):
                self.whole -= 1
                self.loose += PREFIX_SIZE
            if not self.loose:
                return False
            self.loose -= 1
        return True

    def take_prefixes(self, count: int) -> bool:
        """False if there are fewer. EC2 tries reservations first."""
        of_reservations = min(count, self.reserved)
        self.reserved -= of_reservations
        self.whole -= count - of_reservations
        return self.whole >= 0


@dataclass(frozen=True)
class Break:
    """The first thing that a node does not get. `launches`: False if the node itself does not start; else its pods get
    no addresses. `error`: EC2's."""

    subnet: str
    launches: bool
    error: str


@dataclass(frozen=True)
class Fit:
    """Nodes that fit in one subnet, or in several together, up to `MOST_NODES`, and what the next one does not get.

    `breaks`: at the first node beyond `certain`; None if that is `MOST_NODES`.
    """

    certain: int
    possible: int
    breaks: Break | None


def fit(subnets: Sequence[Subnet], pools: Sequence[Subnet], demand: Demand) -> Fit:
    """Nodes that fit into `subnets` together, each in the one with the most free addresses then.

    `pools`: subnets where the CNI may also put the interfaces that it adds; without IPv4 they do not count.
    """
    names = [subnet.name for subnet in subnets]
    of = {one.name: (room, hidden(one, room)) for one in (*subnets, *pools) if (room := space(one)) is not None}
    if not any(name in of for name in names):
        return Fit(0, 0, None)
    home, tagged = [name for name in names if name in of], [one.name for one in pools if one.name in of]
    certain, breaks = _count(of, home, tagged, demand, worst=True)
    possible, _ = _count(of, home, tagged, demand, worst=False)
    return Fit(certain, possible, breaks)


@dataclass(frozen=True)
class Batch:
    """Nodes of one kind, to be placed in the subnets `homes`; the CNI also uses those of `pools`."""

    nodes: int
    demand: Demand
    homes: Sequence[str]
    pools: Sequence[str] = ()


def first_shortage(
    subnets: Sequence[Subnet], batches: Sequence[Batch], *, worst: bool = True
) -> tuple[int, int, Break] | None:
    """Place batches one after the other, with bad luck or (not `worst`) with good.

    The number of the batch that does not fit, its nodes that do, and what the next one does not get; None if all fit.
    """
    of = {one.name: (room, hidden(one, room)) for one in subnets if (room := space(one)) is not None}
    rooms = _rooms(of, worst=worst)
    for number, batch in enumerate(batches):
        homes = [name for name in batch.homes if name in rooms]
        for count in range(batch.nodes):
            if not homes:
                return number, 0, Break(", ".join(batch.homes), launches=False, error=NO_ADDRESS)
            home = max(homes, key=lambda name: rooms[name].total)
            candidates = [home, *(name for name in batch.pools if name in rooms and name != home)]
            breaks = _place(rooms, candidates, batch.demand, worst=worst)
            if breaks is not None:
                return number, count, breaks
    return None


def hidden(subnet: Subnet, room: Space) -> int:
    """Addresses that AWS counts as used and that no listed interface has."""
    return max(0, room.free - min(subnet.aws_free))


def _count(
    of: Mapping[str, tuple[Space, int]], homes: Sequence[str], pools: Sequence[str], demand: Demand, *, worst: bool
) -> tuple[int, Break | None]:
    rooms = _rooms(of, worst=worst)
    for count in range(MOST_NODES):
        home = max(homes, key=lambda name: rooms[name].total)
        breaks = _place(rooms, [home, *pools], demand, worst=worst)
        if breaks is not None:
            return count, breaks
    return MOST_NODES, None


def _rooms(of: Mapping[str, tuple[Space, int]], *, worst: bool) -> dict[str, Room]:
    rooms = {name: Room.of(room) for name, (room, _) in of.items()}
    for name, (_, unseen) in of.items():
        rooms[name].take_addresses(unseen, worst=worst)
    return rooms


def _place(rooms: Mapping[str, Room], candidates: Sequence[str], demand: Demand, *, worst: bool) -> Break | None:
    home = candidates[0]
    if not rooms[home].take_addresses(demand.launched, worst=worst):
        return Break(home, launches=False, error=NO_ADDRESS)
    for number, pool in enumerate(demand.pools):
        name = max(candidates, key=lambda name: rooms[name].total) if number else home
        room, added = rooms[name], min(number, 1)
        if not room.take_addresses(added, worst=worst):
            return Break(name, launches=True, error=NO_ADDRESS)
        if not room.take_prefixes(pool.prefixes):
            refused = NO_INTERFACE if added else NO_PREFIX
            return Break(name, launches=True, error=refused if room.loose else NO_ADDRESS)
        if not room.take_addresses(pool.addresses, worst=worst):
            return Break(name, launches=True, error=NO_ADDRESS)
    return None


def shared_pools(subnet: Subnet, subnets: Sequence[Subnet]) -> list[Subnet]:
    """Subnets of the VPC and zone that are tagged for the CNI's own interfaces (ENABLE_SUBNET_DISCOVERY)."""
    return [
        other
        for other in subnets
        if other.name != subnet.name
        and (other.vpc, other.zone_id) == (subnet.vpc, subnet.zone_id)
        and CNI_TAG in other.tags
    ]
