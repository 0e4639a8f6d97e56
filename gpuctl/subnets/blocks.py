"""Arithmetic of a subnet's range: free addresses, free aligned /28s, and the largest free block.

Offsets count from the first address of the subnet; ranges are half open: (first, first after it).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv4Network

from gpuctl.subnets.model import Subnet

Range = tuple[int, int]
PREFIX_SIZE = 16  # addresses of a /28, which the VPC CNI assigns with prefix delegation
RESERVED_FIRST, RESERVED_LAST = 4, 1  # in every subnet, by AWS


@dataclass(frozen=True)
class Space:
    """Free space of a subnet.

    `free`: addresses that AWS assigns by itself: outside reservations. `free_prefixes`: aligned /28s without a used
    address and outside explicit reservations, `reserved_prefixes` of them in prefix reservations. `largest`: prefix
    length of the largest free aligned block outside reservations, None if no address is free. `unused`: addresses that
    nobody has, reservations included. `assigned`: addresses of interfaces and their prefixes.
    """

    size: int
    assigned: int
    unused: int
    free: int
    free_prefixes: int
    reserved_prefixes: int
    largest: int | None


def space(subnet: Subnet) -> Space | None:
    """Free space by the interfaces and reservations that are listed; None for a subnet with IPv6 only."""
    if subnet.block is None:
        return None
    size = subnet.block.num_addresses
    assigned = merged(assigned_ranges(subnet), size)
    used = merged([*assigned, *aws_ranges(size)], size)
    explicit = reserved_ranges(subnet, prefixes=False)
    for_prefixes = merged(reserved_ranges(subnet, prefixes=True), size)
    free = gaps(merged([*used, *explicit, *for_prefixes], size), size)
    usable = gaps(merged([*used, *explicit], size), size)
    outside = sum(aligned(gap, PREFIX_SIZE) for gap in free)
    # A prefix reservation is a /28 or larger, so that no aligned /28 lies half in one.
    inside = sum(aligned(part, PREFIX_SIZE) for gap in usable for part in overlaps(gap, for_prefixes))
    largest = max((largest_block(gap) for gap in free), default=0)
    return Space(
        size=size,
        assigned=total(assigned),
        unused=size - total(used),
        free=total(free),
        free_prefixes=outside + inside,
        reserved_prefixes=inside,
        largest=33 - largest.bit_length() if largest else None,
    )


def aws_ranges(size: int) -> list[Range]:
    """Addresses that AWS reserves in every subnet."""
    return [(0, RESERVED_FIRST), (size - RESERVED_LAST, size)]


def assigned_ranges(subnet: Subnet) -> Iterator[Range]:
    """Addresses and prefixes of all interfaces."""
    if subnet.block is None:
        return
    base = int(subnet.block.network_address)
    for interface in subnet.interfaces:
        yield from (of_address(address, base) for address in interface.addresses)
        yield from (of_block(block, base) for block in interface.prefixes)


def reserved_ranges(subnet: Subnet, *, prefixes: bool) -> list[Range]:
    """Reservations of one type."""
    if subnet.block is None:
        return []
    base = int(subnet.block.network_address)
    return [of_block(one.block, base) for one in subnet.reservations or () if one.prefixes is prefixes]


def of_address(address: IPv4Address, base: int) -> Range:
    return int(address) - base, int(address) - base + 1


def of_block(block: IPv4Network, base: int) -> Range:
    first = int(block.network_address) - base
    return first, first + block.num_addresses


def merged(ranges: Iterable[Range], size: int) -> list[Range]:
    """Sorted ranges that neither touch nor overlap, cut to the subnet."""
    result: list[Range] = []
    inside = ((max(first, 0), min(end, size)) for first, end in ranges)
    for first, end in sorted(one for one in inside if one[0] < one[1]):
        if result and first <= result[-1][1]:
            result[-1] = result[-1][0], max(end, result[-1][1])
        else:
            result.append((first, end))
    return result


def gaps(used: Sequence[Range], size: int) -> list[Range]:
    """Ranges between merged ranges."""
    edges = [0, *(edge for one in used for edge in one), size]
    return [(first, end) for first, end in zip(edges[::2], edges[1::2], strict=True) if first < end]


def overlaps(gap: Range, ranges: Sequence[Range]) -> Iterator[Range]:
    """Parts of a range that lie in merged ranges."""
    for first, end in ranges:
        if max(first, gap[0]) < min(end, gap[1]):
            yield max(first, gap[0]), min(end, gap[1])


def total(ranges: Iterable[Range]) -> int:
    return sum(end - first for first, end in ranges)


def aligned(gap: Range, size: int) -> int:
    """Number of aligned blocks of this size in a range."""
    return max(0, gap[1] // size - -(-gap[0] // size))


def largest_block(gap: Range) -> int:
    """Size of the largest aligned block of a power of two in a range."""
    size = 1 << (gap[1] - gap[0]).bit_length() - 1
    while not aligned(gap, size):
        size //= 2
    return size
