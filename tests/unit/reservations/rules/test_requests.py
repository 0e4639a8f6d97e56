"""What is refused at once, in which words."""

from __future__ import annotations

import pytest

from gpuctl.core.errors import InvalidInput
from gpuctl.edges.ssh_keys import pair
from gpuctl.reservations.rules import requests
from gpuctl.reservations.rules.model import HOUR, Limits
from gpuctl.reservations.rules.requests import Catalogue, Offer, Request, Shape

KEY = pair()[1]
TABLE = Catalogue(
    {"h100": Offer("h100", 8, 2), "a10g": Offer("a10g", 4, 1)},
    Limits(gpus_per_person=24),
    {"Big Ones": "h100"},
)


@pytest.mark.parametrize(
    "name", ["h100", "H100", " NVIDIA H100 ", "h100_sxm", "h100-80gb", "p5.48xlarge", "P5", "big-ones"]
)
def test_a_type_has_many_names(name: str) -> None:
    assert requests.check(Request(16, name), TABLE) == Shape("h100", 2, 8)


@pytest.mark.parametrize(
    ("request_", "wrong", "hint"),
    [
        (Request(1, "h10"), "no GPU type 'h10'", "did you mean h100?"),
        (Request(1, "b200"), "no GPU type 'b200'", "it has h100, a10g"),
        (Request(1), "several GPU types", "h100, a10g"),
        (Request(0, "h100"), "0 GPUs", "at least one"),
        (Request(12, "h100"), "12 are not a number of whole nodes", "whole ones"),
        (Request(8, "a10g"), "8 GPUs need 2", "at most 4"),
        (Request(32, "h100"), "more than a person may use", "at most 24"),
        (Request(24, "h100"), "24 GPUs need 3", "at most 16"),
        (Request(1, "h100", length_s=25 * HOUR), "25 hours", "0.25 to 24 hours"),
        (Request(1, "h100", length_s=0), "0 hours", "0.25 to 24 hours"),
        (Request(1, "h100", name="a b"), "'a b' is not a valid name", "letters"),
        (Request(1, "h100", disk="../etc"), "is not a valid disk", "letters"),
    ],
)
def test_what_the_site_can_never_grant_is_refused(request_: Request, wrong: str, hint: str) -> None:
    with pytest.raises(InvalidInput) as error:
        requests.check(request_, TABLE)
    assert wrong in str(error.value)
    assert hint in error.value.hint


def test_a_site_with_one_type_needs_no_type() -> None:
    assert requests.check(Request(2), Catalogue({"l4": Offer("l4", 4, 1)})) == Shape("l4", 1, 2)


def test_a_site_without_nodes_says_so() -> None:
    with pytest.raises(InvalidInput, match="no GPUs"):
        requests.check(Request(1), Catalogue({}))


PODS = Catalogue({"l4": Offer("l4", 4, 1)}, pods=True)


def test_a_pod_needs_a_public_key_of_which_each_line_is_rebuilt() -> None:
    with pytest.raises(InvalidInput, match="there is no public key to log in with"):
        requests.check(Request(1), PODS)
    with pytest.raises(InvalidInput, match="line 1: it does not begin with a type that sshd takes"):
        requests.check(Request(1, keys=f'command="id" {KEY}'), PODS)
    with pytest.raises(InvalidInput, match="it holds a private key"):
        requests.check(Request(1, keys="-----BEGIN OPENSSH PRIVATE KEY-----"), PODS)
    with pytest.raises(InvalidInput, match="more than 20000 characters"):
        requests.check(Request(1, keys=f"{KEY}\n" * 300), PODS)
    assert requests.check(Request(1, keys=KEY), PODS) == Shape("l4", 1, 1)
    assert requests.authorized_keys(f"{KEY} some comment\n") == f"{KEY} reservation\n"


@pytest.mark.parametrize("image", ["a b", "-x", "x;y", "x" * 600])
def test_an_image_is_a_reference(image: str) -> None:
    with pytest.raises(InvalidInput, match="is not a valid image"):
        requests.check(Request(1, keys=KEY, image=image), PODS)


@pytest.mark.parametrize(("pods", "wrong"), [(True, "has no privileges"), (False, "is root there")])
def test_docker_is_refused_with_the_reason_and_what_to_use(pods: bool, wrong: str) -> None:
    table = Catalogue({"l4": Offer("l4", 4, 1)}, pods=pods)
    with pytest.raises(InvalidInput, match=wrong) as error:
        requests.check(Request(1, docker=True), table)
    assert ("--image" if pods else "rootless podman") in error.value.hint


def test_accounts_of_hosts_have_no_image_and_a_site_may_have_no_disks() -> None:
    with pytest.raises(InvalidInput, match="are accounts of hosts"):
        requests.check(Request(1, "h100", image="ml:1"), TABLE)
    with pytest.raises(InvalidInput, match="are accounts of hosts"):
        requests.check(Request(1, "h100", jupyter=True), TABLE)
    with pytest.raises(InvalidInput, match="have no disks"):
        requests.check(Request(1, disk="data"), Catalogue({"l4": Offer("l4", 4, 1)}, disks=False))
