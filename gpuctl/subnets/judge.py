"""Findings on subnets: full, fragmented, leaked interfaces, and counts that cannot be trusted."""

from __future__ import annotations

from collections.abc import Iterator

from gpuctl.core.text import named, plural
from gpuctl.domain.findings import Finding, fail, ok, unknown, warn
from gpuctl.subnets.blocks import PREFIX_SIZE, Space, space
from gpuctl.subnets.model import Listing, Subnet
from gpuctl.subnets.owners import Leak, leaked

CONTROL_PLANE_FREE = 6  # that EKS needs in each subnet of a cluster
LOAD_BALANCER_FREE = 8  # below which the load balancer controller skips a subnet
RESERVE = "reserve a block with `aws ec2 create-subnet-cidr-reservation --reservation-type prefix`, or add a subnet"


def judge(listing: Listing) -> list[Finding]:
    """Findings of all subnets, each with an OK if nothing is wrong."""
    findings = []
    for subnet in listing.subnets:
        results = list(_subnet(subnet, listing))
        findings += results or [ok("subnet", subnet.name, _summary(subnet))]
    return findings


def _summary(subnet: Subnet) -> str:
    room = space(subnet)
    if room is None:
        return "has IPv6 only"
    return f"{room.free} of {room.size} addresses are free, and {room.free_prefixes} aligned /28"


def _subnet(subnet: Subnet, listing: Listing) -> Iterator[Finding]:
    room = space(subnet)
    if room is not None:
        yield from hidden(subnet, room)
        yield from addresses(subnet, room)
        yield from prefixes(subnet, room)
    yield from leaks(subnet, listing)


def hidden(subnet: Subnet, room: Space) -> Iterator[Finding]:
    """Addresses that AWS counts as used and that no listed interface has; refused reservations."""
    if max(subnet.aws_free) < room.free:
        missing = room.free - max(subnet.aws_free)
        reason = (
            f"; account {subnet.shared_by} shares this subnet, and hides its interfaces" if subnet.shared_by else ""
        )
        yield unknown(
            "free-counts",
            subnet.name,
            f"AWS counts {missing} fewer free addresses than its list of interfaces leaves{reason}: "
            "free blocks may be fewer than shown",
            "list it with the account that owns it" if subnet.shared_by else "run the command again",
            aws_free_addresses=max(subnet.aws_free),
            unused_addresses=room.unused,
        )
    if subnet.reservations is None:
        yield unknown(
            "reservations",
            subnet.name,
            f"CIDR reservations cannot be listed ({subnet.why}): free addresses and blocks may be fewer than shown",
            "have ec2:GetSubnetCidrReservations allowed",
        )


def addresses(subnet: Subnet, room: Space) -> Iterator[Finding]:
    """Few free addresses."""
    free = min(room.free, *subnet.aws_free)
    numbers = {"free_addresses": max(0, free), "size_addresses": room.size}
    if free <= 0:
        message = "no free address: EC2 refuses interfaces with InsufficientFreeAddressesInSubnet"
        yield fail("free-addresses", subnet.name, message, "delete unused interfaces, or add a subnet", **numbers)
    elif free < CONTROL_PLANE_FREE:
        message = f"{free} of {room.size} addresses are free; EKS needs {CONTROL_PLANE_FREE} for a control plane"
        yield warn("free-addresses", subnet.name, message, "add a subnet", **numbers)
    elif free < LOAD_BALANCER_FREE:
        message = f"{free} of {room.size} addresses are free; load balancers skip a subnet with fewer than 8"
        yield warn("free-addresses", subnet.name, message, "add a subnet", **numbers)


def prefixes(subnet: Subnet, room: Space) -> Iterator[Finding]:
    """Free addresses without a free /28: a failure where the CNI assigns prefixes."""
    if room.free_prefixes or room.free <= 0 or room.size < 2 * PREFIX_SIZE:
        return
    uses_prefixes = any(interface.prefixes for interface in subnet.interfaces)
    message = f"{room.free} addresses are free, and no aligned /28: EC2 refuses prefixes with InsufficientCidrBlocks"
    if uses_prefixes:
        yield fail("free-prefixes", subnet.name, message, RESERVE, free_addresses=room.free, free_prefixes=0)
    elif room.free >= PREFIX_SIZE:
        yield warn("free-prefixes", subnet.name, message, RESERVE, free_addresses=room.free, free_prefixes=0)


def leaks(subnet: Subnet, listing: Listing) -> Iterator[Finding]:
    """Interfaces that the VPC CNI left behind."""
    all_leaked = leaked(subnet, listing.now, listing.cluster)
    for state in (Leak.YES, Leak.UNSURE):
        interfaces = [one.interface for one in all_leaked if one.leak is state]
        if not interfaces:
            continue
        held = sum(len(one.addresses) + PREFIX_SIZE * len(one.prefixes) for one in interfaces)
        names, count = named(one.name for one in interfaces), plural(len(interfaces), "interface")
        if state is Leak.YES:
            message = f"the VPC CNI left {count} behind, which hold {held} addresses: {names}"
            hint = f"aws ec2 delete-network-interface --network-interface-id {interfaces[0].name}"
            yield warn("leaked", subnet.name, message, hint, interfaces=len(interfaces), addresses=held)
        else:
            message = f"the VPC CNI may have left {count} behind; their tags lack the time of creation: {names}"
            hint = "if they are listed an hour later, too, delete them"
            yield warn("leaked", subnet.name, message, hint, interfaces=len(interfaces), addresses=held)
