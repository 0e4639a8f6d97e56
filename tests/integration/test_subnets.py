"""`gpuctl subnets` against an AWS endpoint over HTTP (moto), and against errors that a proxy injects."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from gpuctl.cli.app import app
from gpuctl.core.errors import GpuctlError
from gpuctl.subnets.owners import CREATED_TAG, INSTANCE_TAG
from tests.rig.aws_endpoint import LOGIN, client, error_for, error_injecting_proxy, moto_endpoint, vpc_with_subnets


@dataclass(frozen=True)
class Cloud:
    url: str
    vpc: str
    small: str
    large: str


@pytest.fixture(scope="module")
def cloud() -> Iterator[Cloud]:
    """A VPC with a subnet that has a leaked interface and one with 30 interfaces of a load balancer."""
    with moto_endpoint() as url:
        ec2 = client(url)
        vpc, subnets = vpc_with_subnets(ec2, "10.0.1.0/28", "10.0.2.0/24")
        tags = [{"Key": INSTANCE_TAG, "Value": "i-0abc"}, {"Key": CREATED_TAG, "Value": "2026-01-01T00:00:00Z"}]
        specification = [{"ResourceType": "network-interface", "Tags": tags}]
        ec2.create_network_interface(SubnetId=subnets[1], Description="aws-K8S-i-0abc", TagSpecifications=specification)
        ec2.create_subnet_cidr_reservation(SubnetId=subnets[1], Cidr="10.0.2.128/25", ReservationType="prefix")
        for _ in range(3):
            ec2.create_network_interface(SubnetId=subnets[0], Description="ELB net/web/0123")
        yield Cloud(url, vpc, *subnets)


def run(url: str, *words: str, **environment: str) -> Result:
    variables = {**LOGIN, "AWS_ENDPOINT_URL": url, "AWS_MAX_ATTEMPTS": "1", **environment}
    return CliRunner().invoke(app, ["subnets", *words], env={**variables})


def document(result: Result) -> dict[str, Any]:
    plain: dict[str, Any] = json.loads(result.stdout)
    return plain


def test_subnets_are_listed_with_owners_reservations_and_leaks(cloud: Cloud, tmp_path: Path) -> None:
    picture = tmp_path / "range.svg"
    result = run(cloud.url, "--vpc", cloud.vpc, "--output", "json", "--svg", str(picture))
    subnets = {one["subnet"]: one for one in document(result)["subnets"]}
    assert subnets[cloud.large]["reservations"] == [{"cidr": "10.0.2.128/25", "type": "prefix"}]
    assert subnets[cloud.large]["addresses_by_owner"] == {"CNI": 1}
    assert subnets[cloud.small]["addresses_by_owner"] == {"load balancer": 3}
    assert subnets[cloud.small]["zone_id"].startswith("use1-az")
    checks = {(one["check"], one["subject"]) for one in document(result)["findings"]}
    assert ("leaked", cloud.large) in checks
    assert cloud.small in picture.read_text()


def test_the_table_has_a_line_for_each_subnet_and_its_picture(cloud: Cloud) -> None:
    result = run(cloud.url, "--subnet", cloud.large)
    lines = result.stdout.splitlines()
    assert lines[0].split() == ["SUBNET", "NAME", "AZ", "CIDR", "FREE", "FREE", "/28", "LARGEST", "USED", "BY"]
    assert "10.0.2.0/24, one cell for each /28" in result.stdout
    assert "C CNI" in result.stdout


@pytest.mark.parametrize(
    ("words", "wrong"),
    [
        (("--vpc", "vpc-0"), "the VPC vpc-0 has no subnets here"),
        (("--subnet", "subnet-0"), "no subnet subnet-0"),
        (("--cluster", "nobody"), "No cluster found"),
    ],
)
def test_an_unknown_name_is_invalid_input(cloud: Cloud, words: tuple[str, ...], wrong: str) -> None:
    error = run(cloud.url, *words).exception
    assert isinstance(error, GpuctlError)
    assert error.exit_code == 2
    assert wrong in error.wrong


@pytest.mark.parametrize(
    ("operation", "code", "wrong"),
    [
        ("DescribeSubnets", "ExpiredToken", "the credentials have expired"),
        ("DescribeNetworkInterfaces", "RequestLimitExceeded", "AWS still throttles ec2:DescribeNetworkInterfaces"),
        ("DescribeNetworkInterfaces", "UnauthorizedOperation", "no permission for ec2:DescribeNetworkInterfaces"),
    ],
)
def test_a_refused_list_is_told_in_words(cloud: Cloud, operation: str, code: str, wrong: str) -> None:
    with error_injecting_proxy(cloud.url, error_for(operation, code)) as (url, _):
        error = run(url, "--vpc", cloud.vpc).exception
    assert isinstance(error, GpuctlError)
    assert error.exit_code == 3
    assert wrong in error.wrong
    assert error.hint


def test_reservations_that_are_refused_make_the_subnet_unknown_and_leave_the_rest(cloud: Cloud) -> None:
    inject = error_for("GetSubnetCidrReservations", "UnauthorizedOperation", status=403)
    with error_injecting_proxy(cloud.url, inject) as (url, _):
        result = run(url, "--subnet", cloud.large, "--output", "json")
    [finding] = [one for one in document(result)["findings"] if one["check"] == "reservations"]
    assert (finding["verdict"], result.exit_code) == ("UNKNOWN", 1)
    assert document(result)["subnets"][0]["reservations"] is None


def test_throttled_requests_are_repeated_until_they_succeed(cloud: Cloud) -> None:
    left = [2]

    def twice(operation: str) -> tuple[int, str] | None:
        if operation == "DescribeSubnets" and left[0]:
            left[0] -= 1
            return error_for(operation, "RequestLimitExceeded", status=503)(operation)
        return None

    with error_injecting_proxy(cloud.url, twice) as (url, received):
        result = run(url, "--subnet", cloud.large, AWS_MAX_ATTEMPTS="4")
    assert cloud.large in result.stdout
    assert received.count("DescribeSubnets") == 4  # two throttled, one before and one after the interfaces


ADD = ("--cidr", "/24", "--az", "us-east-1a", "--role", "cni", "--cluster", "learning")


def test_terraform_for_a_free_block_parses(cloud: Cloud) -> None:
    import pygohcl

    result = run(cloud.url, "add", "--vpc", cloud.vpc, *ADD, "--prefixes", "half")
    text = json.dumps(pygohcl.loads(result.stdout))
    with pytest.raises(pygohcl.HCLParseError):
        pygohcl.loads(result.stdout.replace("}", "", 1))
    assert "10.0.0.0/24" in text
    assert "10.0.0.128/25" in text
    assert "aws_ec2_subnet_cidr_reservation" in text
    assert "use1-az6" in text
    assert "10.0.0.0/24 in use1-az6; nothing was changed" in result.stderr


def test_cloudformation_for_it_has_no_error_or_warning_of_cfn_lint(cloud: Cloud) -> None:
    from cfnlint.api import lint_all

    def complaints(text: str) -> list[str]:
        return [str(match) for match in lint_all(text) if match.rule.id[0] in "EW"]

    text = run(cloud.url, "add", "--vpc", cloud.vpc, *ADD, "--output", "cloudformation").stdout
    assert complaints(text) == []
    assert complaints(text.replace('"CidrBlock": {', '"CidrBlok": {')) != []


@pytest.mark.parametrize(
    ("words", "wrong"),
    [
        (("--cidr", "10.0.2.128/25", "--az", "us-east-1a"), "overlaps the subnet 10.0.2.0/24"),
        (("--cidr", "/24", "--az", "eu-central-1a"), "no zone eu-central-1a"),
    ],
)
def test_a_subnet_that_cannot_be_is_invalid_input(cloud: Cloud, words: tuple[str, ...], wrong: str) -> None:
    error = run(cloud.url, "add", "--vpc", cloud.vpc, *words).exception
    assert isinstance(error, GpuctlError)
    assert error.exit_code == 2
    assert wrong in error.wrong


# ---- forecast and diagnose -------------------------------------------------------------------------------------------


FORECAST = ("forecast", "--type", "p5.48xlarge", "--output", "json")


def test_a_forecast_names_the_subnet_that_holds_the_nodes(cloud: Cloud) -> None:
    result = run(cloud.url, *FORECAST, "--nodes", "2", "--vpc", cloud.vpc)
    [finding] = document(result)["findings"]
    assert (finding["subject"], finding["verdict"], result.exit_code) == ("2 p5.48xlarge", "OK", 0)
    assert cloud.large in finding["message"]
    counts = {one["subnet"]: one["certain_nodes"] for one in document(result)["subnets"]}
    assert counts == {cloud.small: 0, cloud.large: 2}  # half of the large one is reserved for prefixes


def test_a_forecast_names_the_setting_with_which_they_would_fit(cloud: Cloud) -> None:
    result = run(cloud.url, *FORECAST, "--nodes", "8", "--subnet", cloud.large)
    [finding] = document(result)["findings"]
    assert (finding["verdict"], result.exit_code) == ("FAIL", 1)
    assert finding["hint"].startswith("with WARM_IP_TARGET=2 and MINIMUM_IP_TARGET=10 they fit")
    again = run(
        *(cloud.url, *FORECAST, "--nodes", "8", "--subnet", cloud.large),
        *("--cni", "WARM_IP_TARGET=2", "--cni", "MINIMUM_IP_TARGET=10"),
    )
    assert again.exit_code == 0


@pytest.mark.parametrize(
    ("words", "wrong"),
    [
        (("--type", "p9.huge", "--nodes", "1"), "p9.huge"),
        (("--type", "p5.48xlarge", "--nodes", "1", "--cni", "WARM=1"), "WARM is not among those that count here"),
        (("--type", "p5.48xlarge", "--nodes", "1", "--subnet", "subnet-0"), "no subnet subnet-0"),
    ],
)
def test_a_forecast_of_what_does_not_exist_is_invalid_input(cloud: Cloud, words: tuple[str, ...], wrong: str) -> None:
    error = run(cloud.url, "forecast", *words).exception
    assert isinstance(error, GpuctlError)
    assert error.exit_code == 2
    assert wrong in error.wrong


def test_diagnosis_of_subnets_without_a_way_out_and_without_dns_hostnames(cloud: Cloud) -> None:
    result = run(cloud.url, "diagnose", "--vpc", cloud.vpc, "--output", "json")
    found = {(one["check"], one["subject"]): one for one in document(result)["findings"]}
    closed = found["endpoints", cloud.large]
    assert (closed["verdict"], result.exit_code) == ("FAIL", 1)
    assert "no route leads to the internet, and no endpoint serves ec2, ecr.api" in closed["message"]
    of_dns = [one["message"] for one in document(result)["findings"] if one["check"] == "dns"]
    assert any("enableDnsHostnames off" in message for message in of_dns)
    assert found["network-acl", cloud.large]["verdict"] == "OK"
    for one in document(result)["subnets"]:
        assert one["route_table"].startswith("rtb-")
        assert one["network_acl"].startswith("acl-")
        assert one["default_route"] is None
    lines = run(cloud.url, "diagnose", "--vpc", cloud.vpc).stdout.splitlines()
    assert lines[0].split()[-4:] == ["DEFAULT", "ROUTE", "NETWORK", "ACL"]


@pytest.mark.parametrize(
    ("operation", "check"),
    [("DescribeRouteTables", "routes"), ("DescribeNetworkAcls", "network-acl"), ("DescribeVpcAttribute", "dns")],
)
def test_what_aws_refuses_to_list_is_unknown_and_the_rest_is_judged(cloud: Cloud, operation: str, check: str) -> None:
    with error_injecting_proxy(cloud.url, error_for(operation, "UnauthorizedOperation", status=403)) as (url, _):
        result = run(url, "diagnose", "--subnet", cloud.large, "--output", "json")
    found = {one["check"]: one for one in document(result)["findings"]}
    assert found[check]["verdict"] == "UNKNOWN"
    assert found["zone"]["verdict"] == "OK"
