"""Who may connect to a pod's load balancer, its Service, and why it has none yet."""

from __future__ import annotations

from typing import Any

import pytest

from gpuctl.core.errors import InvalidInput
from gpuctl.eks.gpu_pod import exposure
from gpuctl.eks.gpu_pod.exposure import Exposure


@pytest.mark.parametrize(
    ("ranges", "whole", "message"),
    [
        ((), False, "nothing says who may connect"),
        (("0.0.0.0/0",), False, "0.0.0.0/0 is a large part of the internet, which only --allow-from-whole-internet"),
        (("0.0.0.0/1", "128.0.0.0/1"), False, "128.0.0.0/1 is a large part of the internet"),
        (("203.0.113.7/24",), False, "an address inside 203.0.113.0/24: name that range, or 203.0.113.7/32"),
        (("office", "2001:db8::/32"), False, "'office' is no range of addresses; 2001:db8::/32 is of IPv6"),
        (("10.0.0.0/8", "203.0.113.0/24"), False, "some ranges are private and some are public"),
        (("203.0.113.0/24",), True, "exclude each other"),
        (tuple(f"203.0.113.{number}" for number in range(61)), False, "61 ranges are more than"),
    ],
)
def test_ranges_that_cannot_be_meant_are_refused(ranges: tuple[str, ...], whole: bool, message: str) -> None:
    with pytest.raises(InvalidInput, match=message.replace("(", r"\(")):
        exposure.read("nlb", ranges, whole)


@pytest.mark.parametrize("choice", [None, "none"])
def test_ranges_without_a_load_balancer_are_refused(choice: str | None) -> None:
    assert exposure.read(choice, (), False) is None
    with pytest.raises(InvalidInput, match="--allow-from belongs to --expose nlb"):
        exposure.read(choice, ("203.0.113.7",), False)
    with pytest.raises(InvalidInput, match="--allow-from-whole-internet belongs to --expose nlb"):
        exposure.read(choice, (), True)


@pytest.mark.parametrize(
    ("ranges", "whole", "exposed", "scheme"),
    [
        (("203.0.113.7", "198.51.100.0/24"), False, ("198.51.100.0/24", "203.0.113.7/32"), "internet-facing"),
        (("10.1.0.0/16", "100.64.0.0/10"), False, ("10.1.0.0/16", "100.64.0.0/10"), "internal"),
        ((), True, ("0.0.0.0/0",), "internet-facing"),
    ],
)
def test_private_ranges_get_no_public_address(
    ranges: tuple[str, ...], whole: bool, exposed: tuple[str, ...], scheme: str
) -> None:
    desired = exposure.read("nlb", ranges, whole)
    assert desired == Exposure(exposed)
    assert desired.scheme == scheme
    service = exposure.service("gpu", desired)
    assert exposure.of(service) == desired
    assert service["metadata"]["annotations"][exposure.SCHEME] == scheme


def test_only_the_pod_is_behind_the_service_and_no_port_of_a_node_opens() -> None:
    spec = exposure.service("gpu", Exposure(("203.0.113.7/32",)))["spec"]
    assert spec["selector"] == {"gpuctl.io/gpu-pod": "gpu", "gpuctl.io/part": "pod"}
    assert (spec["loadBalancerClass"], spec["allocateLoadBalancerNodePorts"]) == ("service.k8s.aws/nlb", False)
    assert [(port["port"], port["targetPort"]) for port in spec["ports"]] == [(22, 2223)]


def test_a_service_without_ranges_is_open_to_everybody() -> None:
    assert exposure.of({"spec": {}}).ranges == ("0.0.0.0/0",)


def test_ranges_that_somebody_else_wrote_are_shown_as_they_are() -> None:
    odd = {
        "metadata": {"annotations": {exposure.SCHEME: "internal"}},
        "spec": {"loadBalancerSourceRanges": ["any", "::/0"]},
    }
    assert exposure.plain(odd) == {"address": None, "scheme": "internal", "allowed": ["::/0", "any"]}


def test_the_ranges_count_for_the_clients_address() -> None:
    annotations = exposure.service("gpu", Exposure(("203.0.113.7/32",)))["metadata"]["annotations"]
    assert annotations["service.beta.kubernetes.io/aws-load-balancer-target-group-attributes"] == (
        "preserve_client_ip.enabled=true"
    )


@pytest.mark.parametrize(
    ("ingress", "address"),
    [
        ([{"hostname": "k8s-1.elb.us-west-2.amazonaws.com"}], "k8s-1.elb.us-west-2.amazonaws.com"),
        ([{"ip": "198.51.100.7"}], "198.51.100.7"),
        ([{"hostname": "a\nProxyCommand id"}], ""),
        ([{"hostname": "-oProxyCommand=id"}], ""),
        ([], ""),
        (None, ""),
    ],
)
def test_an_address_is_one_that_ssh_can_be_given(ingress: Any, address: str) -> None:
    assert exposure.address({"metadata": {}, "status": {"loadBalancer": {"ingress": ingress}}}) == address
    assert exposure.address(None) == ""


def service(*finalizers: str) -> dict[str, Any]:
    return {"metadata": {"finalizers": list(finalizers)}, "spec": {}}


@pytest.mark.parametrize(
    ("message", "cause", "lasting"),
    [
        ("Failed deploy model due to TooManyLoadBalancers: limit", "a quota of load balancers is used up", True),
        (
            "Failed build model due to unable to resolve at least one subnet (0 match VPC and tags)",
            "no subnet is marked for it",
            True,
        ),
        ("AccessDenied: User is not authorized to perform: ec2:CreateSecurityGroup", "may not make", True),
        ("Failed deploy model due to InvalidSubnet: Not enough IP space available", "too few free addresses", True),
        ("something else", "something else", False),
    ],
)
def test_the_controllers_events_are_the_cause(message: str, cause: str, lasting: bool) -> None:
    events = [{"metadata": {}, "type": "Warning", "message": text} for text in ("an older one", message)]
    trouble = exposure.trouble(service(exposure.FINALIZER), events)
    assert (cause in trouble.cause, trouble.lasting) == (True, lasting)
    assert message in trouble.cause


def test_a_service_that_no_controller_took_and_one_that_aws_makes() -> None:
    untaken = exposure.trouble(service(), [])
    assert (untaken.cause, untaken.hint) == ("no controller has taken it", exposure.INSTALL)
    assert "AWS makes it" in exposure.trouble(service(exposure.FINALIZER), []).cause
