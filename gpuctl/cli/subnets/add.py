"""subnets add: write the text that makes a new subnet."""

from __future__ import annotations

import json

import click

from gpuctl.cli.shared import options
from gpuctl.cli.subnets.options import login
from gpuctl.core.errors import InvalidInput
from gpuctl.core.text import named
from gpuctl.subnets.request import AddRequest


@click.command()
@options.as_request(
    AddRequest,
    click.option("--vpc", metavar="ID", required=True, help="VPC of the subnet."),
    click.option("--cidr", metavar="CIDR|/N", required=True, help="Block, or a size: the first free block is chosen."),
    click.option("--az", metavar="NAME|ID", required=True, help="Zone; its id is written."),
    click.option("--name", metavar="NAME", default="gpu", show_default=True, help="Name of the subnet."),
    click.option("--prefixes", metavar="CIDR|half", default="", callback=options.not_empty,
                 help="Reserve this part for prefixes of the VPC CNI. (Terraform only.)"),
    click.option("--role", type=click.Choice(["cni", "internal-elb", "elb"]), multiple=True,
                 help="Tag it for new interfaces of the VPC CNI, or for load balancers. Repeatable."),
    click.option("--cluster", metavar="NAME", default="", callback=options.not_empty,
                 help="Tag it for this EKS cluster."),
    login,
)  # fmt: skip
@click.option("--output", "-o", "form", type=click.Choice(["terraform", "cloudformation"]), default="terraform",
              show_default=True, help="Output format.")  # fmt: skip
def add(request: AddRequest, form: str) -> None:
    """Write Terraform or CloudFormation text for a new subnet in a free block of a VPC; nothing is applied.

    The text goes to standard output. The subnet uses the main route table of the VPC until you associate another.
    """
    from gpuctl.subnets import flow, new_subnet

    room = flow.vpc_room(flow.connect(request.region, request.aws_profile), request.vpc)
    zone = room.zones.get(request.az, request.az)
    if zone not in room.zones.values():
        hint = f"the region has {named(sorted({*room.zones, *room.zones.values()}), 20)}"
        raise InvalidInput(new_subnet.DOING, f"no zone {request.az}", hint)
    block = new_subnet.choose(request.cidr, room.blocks, room.taken)
    tags = dict(new_subnet.ROLES[role] for role in request.role)
    if request.cluster:
        tags[f"kubernetes.io/cluster/{request.cluster}"] = "shared"
    reserved = new_subnet.reserve(block, request.prefixes)
    new = new_subnet.NewSubnet(request.vpc, block, zone, request.name, tags, reserved)
    if form == "terraform":
        click.echo(new_subnet.terraform(new), nl=False)
    else:
        click.echo(json.dumps(new_subnet.cloudformation(new), indent=2))
    click.echo(f"the text makes {block} in {zone}; nothing was changed", err=True)
