"""Registries of EKS's images: each region has one, and some regions have an account of their own."""

from __future__ import annotations

# Source: awslabs/amazon-eks-ami, the script that finds the registry of a region; Amazon EKS user guide, "View Amazon
# container image registries for Amazon EKS add-ons".
COMMON = "602401143452"
WITH_COMMON = (
    *("ap-northeast-1", "ap-northeast-2", "ap-northeast-3", "ap-south-1", "ap-southeast-1", "ap-southeast-2"),
    *("ca-central-1", "eu-central-1", "eu-north-1", "eu-west-1", "eu-west-2", "eu-west-3", "sa-east-1"),
    *("us-east-1", "us-east-2", "us-west-1", "us-west-2"),
)
ACCOUNTS = {
    **dict.fromkeys(WITH_COMMON, COMMON),
    "af-south-1": "877085696533",
    "ap-east-1": "800184023465",
    "ap-east-2": "533267051163",
    "ap-south-2": "900889452093",
    "ap-southeast-3": "296578399912",
    "ap-southeast-4": "491585149902",
    "ap-southeast-5": "151610086707",
    "ap-southeast-6": "333609536671",
    "ap-southeast-7": "121268973566",
    "ca-west-1": "761377655185",
    "cn-north-1": "918309763551",
    "cn-northwest-1": "961992271922",
    "eu-central-2": "900612956339",
    "eu-south-1": "590381155156",
    "eu-south-2": "455263428931",
    "il-central-1": "066635153087",
    "me-central-1": "759879836304",
    "me-south-1": "558608220178",
    "mx-central-1": "730335286997",
    "us-gov-east-1": "151742754352",
    "us-gov-west-1": "013241004608",
}
# Isolated and sovereign partitions have accounts and domains of their own, which are not in the list.
OTHER_PARTITIONS = ("us-iso", "eu-iso", "eusc-")


def registry(region: str) -> str:
    """Address of the registry of a region; "" if it is not known.

    A region that is younger than this list gets the registry of us-west-2, as EKS's own images do.
    """
    if region.startswith(OTHER_PARTITIONS):
        return ""
    if region not in ACCOUNTS and region.startswith(("cn-", "us-gov-")):
        return ""
    place = region if region in ACCOUNTS else "us-west-2"
    suffix = "amazonaws.com.cn" if place.startswith("cn-") else "amazonaws.com"
    return f"{ACCOUNTS[place]}.dkr.ecr.{place}.{suffix}"
