"""Subnets for tests, and their space by looking at every address."""

from __future__ import annotations

import random
from collections.abc import Sequence
from datetime import UTC, datetime
from ipaddress import IPv4Address, IPv4Network
from itertools import count

from gpuctl.subnets.blocks import Space, space
from gpuctl.subnets.demand import Demand
from gpuctl.subnets.model import Interface, Listing, Reservation, Subnet

NOW = datetime(2026, 11, 28, 12, tzinfo=UTC)


def subnet(  # noqa: PLR0913 - a subnet has that many parts
    cidr: str,
    *,
    addresses: Sequence[str] = (),
    prefixes: Sequence[str] = (),
    prefix_reservations: Sequence[str] = (),
    explicit_reservations: Sequence[str] = (),
    interfaces: Sequence[Interface] = (),
) -> Subnet:
    """A subnet with one interface that holds these, and further ones. AWS counts as many free as there are."""
    holder = Interface(
        "eni-0",
        "subnet-0",
        "in-use",
        addresses=[IPv4Address(one) for one in addresses],
        prefixes=[IPv4Network(one) for one in prefixes],
    )
    reservations = [Reservation(f"scr-p{one}", IPv4Network(one), True) for one in prefix_reservations]
    reservations += [Reservation(f"scr-e{one}", IPv4Network(one), False) for one in explicit_reservations]
    made = Subnet(
        name="subnet-0",
        vpc="vpc-0",
        block=IPv4Network(cidr) if cidr else None,
        zone="us-east-1a",
        zone_id="use1-az6",
        aws_free=(),
        interfaces=[holder, *interfaces] if addresses or prefixes else list(interfaces),
        reservations=reservations,
    )
    return counted(made)


def counted(made: Subnet, hidden: int = 0) -> Subnet:
    """The subnet with the counts that AWS gives: `hidden` addresses are of interfaces that are not listed."""
    room = space(made)
    free = room.unused - hidden if room else 0
    return Subnet(**{**made.__dict__, "aws_free": (free, free)})


def listing(*subnets: Subnet, cluster: str = "") -> Listing:
    return Listing("us-east-1", NOW, subnets, cluster, "123456789012")


def random_subnet(source: random.Random) -> Subnet:
    """A subnet of /22 to /28 somewhere, with addresses, prefixes and reservations. Reservations do not overlap."""
    length = source.randint(22, 28)
    base = source.randrange(0, 1 << length) << (32 - length)
    block = IPv4Network((base, length))
    size = block.num_addresses
    filling = source.random() ** 2
    taken = source.sample(range(4, size - 1), int(filling * (size - 5)))
    blocks = [IPv4Network((base + first, 28)) for first in range(0, size, 16)]
    chosen = [one for one in blocks if source.random() < 0.15]
    cut = [source.random() for _ in chosen]
    used = {base + offset for offset in taken}
    prefixes = [one for one, draw in zip(chosen, cut, strict=True) if draw < 0.5]
    reserved = [one for one, draw in zip(chosen, cut, strict=True) if draw >= 0.25]
    covered = {int(address) for one in prefixes for address in one}
    return subnet(
        str(block),
        addresses=[str(IPv4Address(address)) for address in sorted(used - covered)],
        prefixes=[str(one) for one in prefixes],
        prefix_reservations=[str(one) for one in reserved[::2]],
        explicit_reservations=[str(_part(one, source)) for one in reserved[1::2]],
    )


def _part(block: IPv4Network, source: random.Random) -> IPv4Network:
    """An explicit reservation may be as small as one address."""
    return source.choice(list(block.subnets(new_prefix=source.randint(28, 32))))


def brute_force(made: Subnet) -> Space | None:
    """Space by the definitions, one address at a time."""
    if made.block is None:
        return None
    base, size = int(made.block.network_address), made.block.num_addresses
    held = {int(address) - base for one in made.interfaces for address in one.addresses}
    held |= {int(address) - base for one in made.interfaces for block in one.prefixes for address in block}
    used = held | {0, 1, 2, 3, size - 1}
    explicit = {int(address) - base for one in made.reservations or () if not one.prefixes for address in one.block}
    for_prefixes = {int(address) - base for one in made.reservations or () if one.prefixes for address in one.block}
    unused = set(range(size)) - used
    free = unused - explicit - for_prefixes
    blocks = [set(range(first, first + 16)) for first in range(0, size, 16)]
    usable = [one for one in blocks if one <= unused - explicit]
    lengths = [
        length
        for length in range(32, 15, -1)
        for first in range(0, size, 1 << (32 - length))
        if 1 << (32 - length) <= size and set(range(first, first + (1 << (32 - length)))) <= free
    ]
    return Space(
        size=size,
        assigned=len(held),
        unused=len(unused),
        free=len(free),
        free_prefixes=len(usable),
        reserved_prefixes=sum(one <= for_prefixes for one in usable),
        largest=min(lengths, default=None),
    )


def first_nodes_that_do_not_fit(made: Subnet, need: Demand, source: random.Random) -> int:
    """Nodes that fit when every address and prefix is placed by itself at random, as EC2 might."""
    assert made.block is not None
    base, size = int(made.block.network_address), made.block.num_addresses
    taken = {*range(4), size - 1}
    for one in made.interfaces:
        taken |= {int(address) - base for address in one.addresses}
        taken |= {int(address) - base for block in one.prefixes for address in block}
    reserved: dict[bool, set[int]] = {True: set(), False: set()}
    for reservation in made.reservations or ():
        reserved[reservation.prefixes] |= {int(address) - base for address in reservation.block}
    for number in count():
        pools = [(pool.addresses + (index > 0), pool.prefixes) for index, pool in enumerate(need.pools)]
        pools[0] = pools[0][0] + need.launched, pools[0][1]
        for addresses, prefixes in pools:
            blocks = [range(first, first + 16) for first in range(0, size, 16)]
            whole = [block for block in blocks if not taken & set(block) and not reserved[False] & set(block)]
            inside = [block for block in whole if reserved[True] >= set(block)]
            outside = [block for block in whole if block not in inside]
            source.shuffle(outside)
            chosen = [*inside, *outside][:prefixes]
            if len(chosen) < prefixes:
                return number
            taken |= {offset for block in chosen for offset in block}
            single = sorted(set(range(size)) - taken - reserved[True] - reserved[False])
            if len(single) < addresses:
                return number
            taken |= set(source.sample(single, addresses))
    raise AssertionError
