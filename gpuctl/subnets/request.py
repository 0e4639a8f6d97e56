"""Which subnets a command is about; apart, so that `--help` loads nothing else."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class SubnetsRequest:
    """Subnets to list: of one `vpc`, of one EKS `cluster`, those with the ids `subnet`, or all of the region.

    `region` and `aws_profile`: "" for those of the AWS configuration.
    """

    vpc: str
    cluster: str
    subnet: tuple[str, ...]
    region: str
    aws_profile: str
