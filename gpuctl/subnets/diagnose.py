"""Findings of `subnets diagnose`: why interfaces, nodes or EFA traffic fail in a subnet."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from ipaddress import IPv4Network

from gpuctl.core.errors import GpuctlError
from gpuctl.core.text import named
from gpuctl.domain.eks_zones import NO_CONTROL_PLANE
from gpuctl.domain.findings import Finding, fail, ok, or_ok, unknown, unknown_because, warn
from gpuctl.subnets import judge
from gpuctl.subnets.blocks import PREFIX_SIZE, assigned_ranges, aws_ranges, merged, space
from gpuctl.subnets.forecast import NO_INTERFACE, Room
from gpuctl.subnets.model import Listing, Owner, Subnet
from gpuctl.subnets.network import ALL_PROTOCOLS, ANYWHERE, TCP, Acl, Endpoint, Network, RouteTable, Vpc, allowed_share
from gpuctl.subnets.owners import owners

# What nodes need without a way to the internet. Source: Amazon EKS user guide, private clusters.
NEEDED = ("ec2", "ecr.api", "ecr.dkr", "s3", "sts")
DOCKER = IPv4Network("172.17.0.0/16")
KUBELET, HTTPS, EVERY_PORT = (10250, 10250), (443, 443), (0, 65535)
EPHEMERAL = (32768, 60999)  # ports of a client, by the default of Linux
MOST = 0.5
AMAZON_DNS = "AmazonProvidedDNS"
WIDE = 8  # prefix length of a route to a large part of the internet
LOOSE_SHARE = 0.5  # of the free addresses, outside whole /28s


def diagnose(listing: Listing, network: Network) -> list[Finding]:
    """Findings of each subnet and each VPC; an OK where nothing is wrong."""
    owner_by_interface = owners(listing.subnets)
    findings = []
    for subnet in listing.subnets:
        findings += full(subnet)
        findings += fragmentation(subnet, owner_by_interface)
        findings += routes(subnet, listing.subnets, network)
        findings += endpoints(subnet, network)
        findings += acl(subnet, listing.subnets, network)
        findings += zone(subnet)
    for name, vpc in network.vpcs.items():
        findings += dns(name, vpc)
    return findings


def full(subnet: Subnet) -> list[Finding]:
    """EC2's three errors about a full subnet: for an address, a prefix, and an interface with a prefix."""
    room = space(subnet)
    if room is None:
        return [ok("free-addresses", subnet.name, "has IPv6 only")]
    found = [*judge.hidden(subnet, room), *judge.addresses(subnet, room), *judge.prefixes(subnet, room)]
    left = Room.of(room)
    if left.take_prefixes(1) and not left.take_addresses(1, worst=False):
        message = f"a /28 is free, and no address beside it: a new interface with a prefix gets {NO_INTERFACE}"
        found.append(warn("free-addresses", subnet.name, message, "add a subnet", free_addresses=room.free))
    message = f"{room.free} of {room.size} addresses and {room.free_prefixes} aligned /28 are free"
    return or_ok("free-addresses", subnet.name, found, message)


def fragmentation(subnet: Subnet, owner_by_interface: Mapping[str, Owner]) -> list[Finding]:
    """Free addresses in /28s that are used in part, and who uses them."""
    room = space(subnet)
    if room is None or subnet.block is None:
        return [ok("fragmentation", subnet.name, "has IPv6 only")]
    loose = Room.of(room).loose
    broken = _broken(subnet)
    numbers = {"loose_addresses": loose, "free_addresses": room.free, "broken_prefixes": len(broken)}
    message = f"{loose} of {room.free} free addresses lie in {len(broken)} /28s that are used in part"
    if loose < 2 * PREFIX_SIZE or loose <= LOOSE_SHARE * room.free:
        return [Finding("fragmentation", subnet.name, ok("", "").verdict, message, numbers)]
    base = int(subnet.block.network_address)
    holders = Counter(
        str(owner_by_interface[one.name].kind)
        for one in subnet.interfaces
        if {(int(address) - base) // PREFIX_SIZE for address in one.addresses} & broken
    )
    by = f", by {named(f'{count} {kind}' for kind, count in holders.most_common())}" if holders else ""
    return [warn("fragmentation", subnet.name, message + by, judge.RESERVE, **numbers)]


def _broken(subnet: Subnet) -> set[int]:
    """Numbers of the /28s that are used in part; what AWS reserves does not count."""
    size = subnet.block.num_addresses if subnet.block else 0
    used = Counter[int]()
    for first, end in merged(assigned_ranges(subnet), size):
        used.update(offset // PREFIX_SIZE for offset in range(first, end))
    of_aws = Counter(offset // PREFIX_SIZE for first, end in aws_ranges(size) for offset in range(first, end))
    return {number for number, count in used.items() if count + of_aws[number] < PREFIX_SIZE}


def default_route(table: RouteTable) -> str:
    """Target of the route to everywhere, which may be two halves; "" for none."""
    blocks = {one.block: one.target for one in table.routes if one.works}
    halves = [blocks.get(half, "") for half in ANYWHERE.subnets()]
    return blocks.get(ANYWHERE) or (halves[0] if all(halves) else "")


def _leads_out_in_part(table: RouteTable) -> bool:
    wide = [one.block for one in table.routes if one.works and one.block and one.block.prefixlen <= WIDE]
    return any(not block.is_private for block in wide)


def routes(
    subnet: Subnet, subnets: Sequence[Subnet], network: Network, *, several_interfaces: bool = True
) -> list[Finding]:
    """Routes to the internet and to AWS's services. `several_interfaces`: of some instances there."""
    if isinstance(network.tables, GpuctlError):
        return [unknown_because("routes", subnet.name, network.tables)]
    table = network.table(subnet.name, subnet.vpc)
    if table is None:
        message = "AWS lists no route table for it"
        return [unknown("routes", subnet.name, message, "list it with the account that owns its VPC")]
    found = list(_routes(subnet, table, subnets, network, several_interfaces))
    target = default_route(table)
    return or_ok("routes", subnet.name, found, f"{table.name}: {target or 'no default route'}")


def _routes(
    subnet: Subnet, table: RouteTable, subnets: Sequence[Subnet], network: Network, several_interfaces: bool
) -> Iterator[Finding]:
    for route in table.routes:
        if not route.works:
            message = (
                f"{table.name}: the route to {route.block or 'a prefix list'} leads to {route.target or 'nothing'}, "
            )
            yield fail("routes", subnet.name, f"{message}which is gone (blackhole)", "delete or replace the route")
    target = default_route(table)
    if target.startswith("igw-") and several_interfaces:
        message = (
            f"{table.name}: the default route is {target}; an instance with several interfaces gets no public address, "
            "and reaches nothing outside without an Elastic IP"
        )
        yield warn("routes", subnet.name, message, "place nodes with EFA in a subnet behind a NAT gateway")
    if target.startswith("nat-"):
        yield from _nat(subnet, target, subnets, network)


def _nat(subnet: Subnet, name: str, subnets: Sequence[Subnet], network: Network) -> Iterator[Finding]:
    if isinstance(network.nats, GpuctlError):
        yield unknown_because("routes", subnet.name, network.nats)
        return
    nat = next((one for one in network.nats if one.name == name), None)
    if nat is None and subnet.shared_by:
        yield unknown("routes", subnet.name, f"the default route is {name}, which is not listed", _ask_owner(subnet))
        return
    if nat is None or nat.state != "available":
        state = f"is {nat.state}" if nat else "does not exist"
        yield fail("routes", subnet.name, f"the default route is {name}, which {state}", "make another NAT gateway")
        return
    zone_id = next((one.zone_id for one in subnets if one.name == nat.subnet), "")
    if zone_id and zone_id != subnet.zone_id:
        message = (
            f"the default route is {name} in {zone_id}: traffic between zones costs, and a failure there counts here"
        )
        yield warn("routes", subnet.name, message, f"make a NAT gateway in {subnet.zone_id}")


def endpoints(subnet: Subnet, network: Network) -> list[Finding]:
    """Endpoints of AWS's services, which nodes need where no route leads to the internet."""
    table = network.table(subnet.name, subnet.vpc)
    if table is None:
        return [unknown("endpoints", subnet.name, "whether endpoints are needed is not known: its routes are not")]
    target = default_route(table)
    nats = () if isinstance(network.nats, GpuctlError) else network.nats
    works = {one.name for one in nats if one.state == "available" and one.public}
    if target.startswith("igw-") or target in works:
        return [ok("endpoints", subnet.name, f"AWS's services are reached through {target}")]
    if isinstance(network.endpoints, GpuctlError):
        return [unknown_because("endpoints", subnet.name, network.endpoints)]
    missing = missing_endpoints(subnet, table, network.endpoints)
    if not missing:
        return [ok("endpoints", subnet.name, f"has endpoints for {', '.join(NEEDED)}")]
    target = target or ("routes to parts of the internet" if _leads_out_in_part(table) else "")
    return [_without(subnet, target, missing, is_dead=target in {one.name for one in nats if one.state != "available"})]


def missing_endpoints(subnet: Subnet, table: RouteTable, present: Sequence[Endpoint]) -> list[str]:
    """Services that nodes need and that no endpoint serves in a subnet."""
    served = {one.service for one in present if one.vpc == subnet.vpc and _serves(one, table)}
    return [service for service in NEEDED if service not in served]


def _without(subnet: Subnet, target: str, missing: Sequence[str], *, is_dead: bool) -> Finding:
    """Finding on endpoints that are missing. `is_dead`: the default route leads to a NAT gateway that does not work."""
    lacking = ", ".join(missing)
    if subnet.shared_by:
        message = f"no endpoint for {lacking} is listed; those of the VPC's owner are hidden"
        return unknown("endpoints", subnet.name, message, _ask_owner(subnet))
    if target and not is_dead:
        message = f"AWS's services are reached through {target} or not at all; no endpoint serves {lacking}"
        return unknown("endpoints", subnet.name, message, "gpuctl does not see beyond it: add endpoints, or test it")
    message = f"no route leads to the internet, and no endpoint serves {lacking}: nodes do not join"
    hint = "add the endpoints (interface ones with private DNS; a gateway for s3), or a NAT gateway"
    return fail("endpoints", subnet.name, message, hint)


def _ask_owner(subnet: Subnet) -> str:
    return f"list it with the account that owns it ({subnet.shared_by})"


def _serves(endpoint: Endpoint, table: RouteTable) -> bool:
    """True if the service's own name leads to the endpoint from subnets with this route table."""
    reached = table.name in endpoint.route_tables if endpoint.gateway else endpoint.private_dns
    return endpoint.available and reached


def acl(subnet: Subnet, subnets: Sequence[Subnet], network: Network, *, efa: bool = True) -> list[Finding]:
    """Traffic that the network ACL denies: EFA between subnets of a zone, the control plane, the internet."""
    if isinstance(network.acls, GpuctlError):
        return [unknown_because("network-acl", subnet.name, network.acls)]
    own = network.acl(subnet.name)
    vpc = network.vpcs.get(subnet.vpc)
    if own is None or not isinstance(vpc, Vpc):
        return [unknown("network-acl", subnet.name, "its network ACL or its VPC is not listed")]
    table = network.table(subnet.name, subnet.vpc)
    found = [*(_efa(subnet, own, subnets) if efa else ()), *_control_plane(subnet, own, vpc, subnets)]
    if table is None or default_route(table):
        found += _internet(subnet, own)
    return or_ok("network-acl", subnet.name, found, f"{own.name} allows what nodes need")


def _efa(subnet: Subnet, own: Acl, subnets: Sequence[Subnet]) -> Iterator[Finding]:
    """EFA traffic inside a subnet passes no ACL."""
    beside = [
        one
        for one in subnets
        if one.name != subnet.name and one.block and (one.vpc, one.zone_id) == (subnet.vpc, subnet.zone_id)
    ]
    closed = [one.name for one in beside if one.block and not _both_ways(own, ALL_PROTOCOLS, one.block)]
    if closed:
        message = f"{own.name} does not allow all traffic with {named(closed)}: EFA does not work between nodes there"
        yield warn("network-acl", subnet.name, message, "allow all protocols both ways, or keep a job in one subnet")


def _both_ways(own: Acl, protocol: str, block: IPv4Network) -> bool:
    return all(
        allowed_share(own.rules, outbound=outbound, protocol=protocol, block=block, ports=EVERY_PORT) == 1
        for outbound in (False, True)
    )


def _control_plane(subnet: Subnet, own: Acl, vpc: Vpc, subnets: Sequence[Subnet]) -> Iterator[Finding]:
    """The control plane has its interfaces in subnets of the cluster; without others in the listing, anywhere."""
    others = [one.block for one in subnets if one.vpc == subnet.vpc and one.name != subnet.name and one.block]
    blocks = others or vpc.blocks
    for what, outbound, ports in (("port 10250 (kubelet)", False, KUBELET), ("port 443 (API server)", True, HTTPS)):
        shares = {str(block): _tcp_share(own, block, ports, outbound=outbound) for block in blocks}
        closed = [block for block, share in shares.items() if share < 1]
        if closed:
            direction, none = "to" if outbound else "from", not any(shares.values())
            message = f"{own.name} does not allow TCP {direction} {'' if none else 'all of '}{named(closed)}, {what}, "
            make, hint = (fail if none else warn), "allow it, and ports 32768 to 60999 for the answers"
            yield make("network-acl", subnet.name, f"{message}and the answers", hint)


def _tcp_share(own: Acl, block: IPv4Network, ports: tuple[int, int], *, outbound: bool) -> float:
    """Share of a block with which connections to these ports work: the way there, and the answers."""
    there = allowed_share(own.rules, outbound=outbound, protocol=TCP, block=block, ports=ports)
    back = allowed_share(own.rules, outbound=not outbound, protocol=TCP, block=block, ports=EPHEMERAL)
    return min(there, back)


def _internet(subnet: Subnet, own: Acl) -> Iterator[Finding]:
    """A list of denied addresses is no fault."""
    if _tcp_share(own, ANYWHERE, HTTPS, outbound=True) < MOST:
        message = f"{own.name} does not allow TCP to port 443 of the internet and the answers: images cannot be pulled"
        hint = "allow it, with ports 32768 to 60999 for the answers, or check that it allows the registries you use"
        yield warn("network-acl", subnet.name, message, hint)


def zone(subnet: Subnet) -> list[Finding]:
    """Zones where EKS places no control plane."""
    if subnet.zone_id in NO_CONTROL_PLANE:
        message = f"EKS takes no subnet of {subnet.zone_id} for a control plane; nodes may run there"
        return [warn("zone", subnet.name, message, "leave it out of the cluster's subnets")]
    if not subnet.zone_id:
        return [unknown("zone", subnet.name, "AWS does not say in which zone it is")]
    return [ok("zone", subnet.name, subnet.zone_id)]


def dns(name: str, vpc: Vpc | GpuctlError) -> list[Finding]:
    """DNS settings and range of a VPC."""
    if isinstance(vpc, GpuctlError):
        return [unknown_because("dns", name, vpc)]
    found = []
    off = [
        attribute
        for attribute, value in (("enableDnsSupport", vpc.dns_support), ("enableDnsHostnames", vpc.dns_hostnames))
        if not value
    ]
    if off:
        hint = f"aws ec2 modify-vpc-attribute --vpc-id {name} --{_dashed(off[0])}"
        found.append(fail("dns", name, f"{' and '.join(off)} off: EKS needs both, and nodes do not join", hint))
    if vpc.resolvers is None:
        found.append(unknown("dns", name, "its DHCP options are not listed", "list it with the account that owns it"))
    elif not vpc.resolvers:
        message = "its DHCP options give hosts no resolver"
        found.append(warn("dns", name, message, "associate options with AmazonProvidedDNS"))
    elif AMAZON_DNS not in vpc.resolvers:
        message = f"its hosts ask {', '.join(vpc.resolvers)}, not AWS's resolver"
        hint = "check that these forward the names of AWS's endpoints and of the cluster"
        found.append(warn("dns", name, message, hint))
    overlapping = [str(block) for block in vpc.blocks if block.overlaps(DOCKER)]
    if overlapping:
        message = f"{', '.join(overlapping)} overlaps {DOCKER}, the bridge of Docker: hosts with Docker cannot reach it"
        found.append(warn("dns", name, message, "use another block, or give Docker another bridge"))
    return or_ok("dns", name, found, "names of hosts and of AWS's endpoints are resolved")


def _dashed(attribute: str) -> str:
    return {"enableDnsSupport": "enable-dns-support", "enableDnsHostnames": "enable-dns-hostnames"}[attribute]
