"""Values of subnets from the answers of EC2; GpuctlError names what an answer lacks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from ipaddress import IPv4Address, IPv4Network
from typing import Any

from gpuctl.core.errors import GpuctlError
from gpuctl.subnets.model import Interface, Reservation, Subnet

Answer = Mapping[str, Any]


def tags(answer: Answer) -> dict[str, str]:
    """Tags of an object; its list is named Tags or TagSet."""
    return {tag["Key"]: tag.get("Value", "") for tag in answer.get("Tags") or answer.get("TagSet") or ()}


def subnet(answer: Answer, account: str = "") -> Subnet:
    """A subnet without its interfaces; `account`: of the reader, to recognise a subnet that another one shares."""
    try:
        named, owner = tags(answer), answer.get("OwnerId") or account
        return Subnet(
            name=answer["SubnetId"],
            vpc=answer["VpcId"],
            block=IPv4Network(answer["CidrBlock"]) if answer.get("CidrBlock") else None,
            zone=answer.get("AvailabilityZone", ""),
            zone_id=answer.get("AvailabilityZoneId", ""),
            aws_free=(int(answer["AvailableIpAddressCount"]),),
            label=named.get("Name", ""),
            shared_by=owner if account and owner != account else "",
            tags=named,
            public_addresses=answer.get("MapPublicIpOnLaunch"),
        )
    except (KeyError, ValueError, TypeError) as error:
        raise _misfit("subnet", answer.get("SubnetId"), error) from error


def interface(answer: Answer) -> Interface:
    """A network interface with all its IPv4 addresses and prefixes."""
    try:
        attachment = answer.get("Attachment") or {}
        return Interface(
            name=answer["NetworkInterfaceId"],
            subnet=answer["SubnetId"],
            status=answer.get("Status", ""),
            description=answer.get("Description") or "",
            kind=answer.get("InterfaceType") or "",
            requester=answer.get("RequesterId") or "",
            managed=bool(answer.get("RequesterManaged")),
            instance=attachment.get("InstanceId") or "",
            attached=bool(attachment),
            device=attachment.get("DeviceIndex"),
            addresses=_addresses(answer),
            prefixes=tuple(IPv4Network(one["Ipv4Prefix"]) for one in answer.get("Ipv4Prefixes") or ()),
            tags=tags(answer),
        )
    except (KeyError, ValueError, TypeError) as error:
        raise _misfit("network interface", answer.get("NetworkInterfaceId"), error) from error


def _addresses(answer: Answer) -> Sequence[IPv4Address]:
    listed = answer.get("PrivateIpAddresses") or ()
    if not listed and answer.get("PrivateIpAddress"):
        return (IPv4Address(answer["PrivateIpAddress"]),)
    return tuple(IPv4Address(one["PrivateIpAddress"]) for one in listed)


def reservation(answer: Answer) -> Reservation:
    """A CIDR reservation of IPv4."""
    try:
        kind = answer["ReservationType"]
        return Reservation(answer["SubnetCidrReservationId"], IPv4Network(answer["Cidr"]), kind == "prefix")
    except (KeyError, ValueError, TypeError) as error:
        raise _misfit("CIDR reservation", answer.get("SubnetCidrReservationId"), error) from error


def _misfit(what: str, name: object, error: Exception) -> GpuctlError:
    wrong = f"{name or 'one without an id'}: {type(error).__name__.lower()} {error}"
    return GpuctlError(f"read a {what} in AWS's answer", wrong, "check AWS_ENDPOINT_URL: this is not what EC2 answers")
