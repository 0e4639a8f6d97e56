"""Options that the commands of `gpuctl subnets` share."""

from __future__ import annotations

import click

from gpuctl.cli.shared import options

login = options.together(
    click.option("--region", metavar="NAME", default="", callback=options.not_empty,
                 help="AWS region.  [default: that of the AWS configuration]"),
    options.aws_profile,
)  # fmt: skip
selection = options.together(
    click.option("--vpc", metavar="ID", default="", callback=options.not_empty, help="Only subnets of this VPC."),
    click.option("--cluster", metavar="NAME", default="", callback=options.not_empty,
                 help="Only subnets of this EKS cluster: of its control plane and node groups, and those that are "
                 "tagged for its pods."),
    click.option("--subnet", metavar="ID", multiple=True, help="Only this subnet. Repeatable."),
    login,
)  # fmt: skip
