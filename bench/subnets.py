"""python -m bench.subnets: from AWS's answers on 20,000 interfaces to the table, and 10,000 subnets against a model."""

from __future__ import annotations

import argparse
import json
import random
import resource
import sys
import time
from dataclasses import replace
from typing import Any

from gpuctl.cli.subnets import show
from gpuctl.subnets import picture, read
from gpuctl.subnets.blocks import space
from gpuctl.subnets.judge import judge
from gpuctl.subnets.model import Listing, Subnet
from gpuctl.subnets.owners import owners
from tests.rig.subnet_model import brute_force, counted, listing, random_subnet

SUBNETS, INTERFACES, ADDRESSES = 200, 20_000, 10
LIMIT_S, LIMIT_MIB = 5.0, 200


def answers(number: int) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """A subnet of /20 and its share of interfaces, as EC2 answers."""
    base = f"10.{number // 16}.{number % 16 * 16}.0/20"
    name = f"subnet-{number:017x}"
    interfaces = [_interface(name, number, k) for k in range(INTERFACES // SUBNETS)]
    free = 4096 - 5 - ADDRESSES * len(interfaces)
    zone = {"AvailabilityZone": "us-east-1a", "AvailabilityZoneId": "use1-az6"}
    return {"SubnetId": name, "VpcId": "vpc-0", "CidrBlock": base, "AvailableIpAddressCount": free, **zone}, interfaces


def _interface(subnet: str, number: int, k: int) -> dict[str, Any]:
    offsets = [4 + ADDRESSES * k + one for one in range(ADDRESSES)]
    addresses = [f"10.{number // 16}.{number % 16 * 16 + one // 256}.{one % 256}" for one in offsets]
    return {
        "NetworkInterfaceId": f"eni-{number * 1000 + k:017x}",
        "SubnetId": subnet,
        "Status": "in-use",
        "Description": f"aws-K8S-i-{number}{k // 4}",
        "Attachment": {"InstanceId": f"i-{number}{k // 4}", "DeviceIndex": k % 4},
        "PrivateIpAddresses": [{"PrivateIpAddress": address} for address in addresses],
    }


def listed() -> Listing:
    subnets: list[Subnet] = []
    for number in range(SUBNETS):
        subnet, interfaces = answers(number)
        subnets.append(counted(replace(read.subnet(subnet), interfaces=[read.interface(one) for one in interfaces])))
    return listing(*subnets)


def main() -> int:
    """Print the figures; exit code 1 if a limit is exceeded or a subnet differs from the model."""
    parser = argparse.ArgumentParser(prog="python -m bench.subnets", description=__doc__)
    parser.add_argument("--models", type=int, default=10_000)
    options = parser.parse_args()
    started = time.process_time()
    made = listed()
    by_interface = owners(made.subnets)
    rows = [show.row(subnet, by_interface) for subnet in made.subnets]
    findings, text = judge(made), json.dumps(show.as_dicts(made, by_interface))
    drawn = picture.svg(made.subnets, by_interface)
    seconds, peak_mib = time.process_time() - started, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    sys.stdout.write(
        f"{len(rows)} subnets, {len(by_interface)} interfaces, {INTERFACES * ADDRESSES} addresses, {len(findings)} "
        f"findings, {len(text) / 2**20:.1f} MiB of JSON, {len(drawn) / 2**20:.1f} MiB of SVG\n"
        f"processor time, without HTTP and XML: {seconds:.2f} s (aim: {LIMIT_S:g} s)\n"
        f"largest memory: {peak_mib:.0f} MiB (aim: {LIMIT_MIB} MiB)\n"
    )
    source = random.Random(1)  # noqa: S311
    different = sum(space(one) != brute_force(one) for one in (random_subnet(source) for _ in range(options.models)))
    sys.stdout.write(f"{options.models} random subnets: {different} differ from counting every address\n")
    return int(bool(different) or seconds > LIMIT_S or peak_mib > LIMIT_MIB)


if __name__ == "__main__":
    sys.exit(main())
