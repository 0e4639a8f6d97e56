"""Subnets of a cluster: an answer of AWS that lacks something is named."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from gpuctl.core.errors import GpuctlError
from gpuctl.edges.aws import Aws, Request
from gpuctl.subnets import flow


class StandInAws(Aws):
    """A cluster without node groups, with this network."""

    def __init__(self, network: Mapping[str, Any] | None) -> None:
        self.region, self.network = "us-east-1", network

    def read_all(self, requests: Mapping[Any, Request], _: Any) -> dict[Any, Any]:
        answers = {"cluster": [{"cluster": {"resourcesVpcConfig": self.network}}], "groups": []}
        return {key: answers[key] for key in requests}


@pytest.mark.parametrize("network", [None, {}, {"subnetIds": ["subnet-1"]}])
def test_a_cluster_whose_vpc_aws_does_not_name_is_no_fault_of_gpuctl(network: Mapping[str, Any] | None) -> None:
    with pytest.raises(GpuctlError, match="names no VPC") as caught:
        flow._cluster(StandInAws(network), "lab")
    assert "--vpc" in caught.value.hint


def test_the_subnets_of_a_cluster_are_those_of_its_control_plane() -> None:
    assert flow._cluster(StandInAws({"vpcId": "vpc-1", "subnetIds": ["subnet-1"]}), "lab").subnets == {"subnet-1"}
