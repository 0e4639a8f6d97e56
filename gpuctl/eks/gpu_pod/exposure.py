"""A Network Load Balancer in front of a GPU pod's sshd: who may connect, its Service, and the state of that Service.

Sources: AWS Load Balancer Controller (docs/guide/service/nlb.md, pkg/networking/subnet_resolver.go), ELB's API errors.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from ipaddress import IPv4Network, ip_network
from typing import Any

from gpuctl.core.errors import InvalidInput
from gpuctl.eks.gpu_pod import model, scripts
from gpuctl.eks.gpu_pod.objects import labels

Object = dict[str, Any]
NLB, NONE = "nlb", "none"
CLASS = "service.k8s.aws/nlb"
FINALIZER = "service.k8s.aws/resources"  # the controller's, once it has taken the Service
ANNOTATION = "service.beta.kubernetes.io/aws-load-balancer-"
SCHEME = f"{ANNOTATION}scheme"
INTERNAL, INTERNET = "internal", "internet-facing"
PRIVATE = tuple(IPv4Network(block) for block in ("10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16", "100.64.0.0/10"))
LARGEST = 8  # bits: a larger public range is a good part of the internet
MOST_RANGES = 60  # rules of a security group, by AWS
HOST = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9.-]{0,251}[A-Za-z0-9])?")
WHOLE_INTERNET = "--allow-from-whole-internet"
DOING = "expose the pod"
INSTALL = "install the AWS Load Balancer Controller, then run the command again; `--expose none` takes it back"


@dataclass(frozen=True)
class Exposure:
    """Ranges that may connect, in CIDR notation, sorted; all private or all public."""

    ranges: tuple[str, ...]

    @property
    def scheme(self) -> str:
        """Private ranges need no public address; only an internet-facing load balancer has one."""
        private = all(_is_private(IPv4Network(one)) for one in self.ranges)
        return INTERNAL if private else INTERNET


@dataclass(frozen=True)
class Trouble:
    """Cause for which a load balancer has no address. `lasting`: it does not go by itself."""

    cause: str
    hint: str
    lasting: bool = True


def read(choice: str | None, ranges: Sequence[str], whole_internet: bool) -> Exposure | None:
    """The desired exposure; None for none, or no choice. `InvalidInput` names every range that cannot be used."""
    if choice != NLB:
        if ranges or whole_internet:
            option = "--allow-from" if ranges else WHOLE_INTERNET
            raise InvalidInput(DOING, f"{option} belongs to --expose nlb", "add --expose nlb, or omit it")
        return None
    if whole_internet:
        if ranges:
            raise InvalidInput(DOING, f"--allow-from and {WHOLE_INTERNET} exclude each other", "choose one of them")
        return Exposure(("0.0.0.0/0",))
    if not ranges:
        hint = "add --allow-from CIDR, such as 203.0.113.7/32 for one address; without it everybody could connect"
        raise InvalidInput(DOING, "nothing says who may connect to its load balancer", hint)
    return _exposure(ranges)


def _exposure(ranges: Sequence[str]) -> Exposure:
    parsed = [_network(text) for text in ranges]
    if wrong := [one for one in parsed if isinstance(one, str)]:
        raise InvalidInput(DOING, "; ".join(wrong), "a range is ADDRESS/BITS, such as 203.0.113.0/24")
    networks = sorted({one for one in parsed if not isinstance(one, str)})
    if len(networks) > MOST_RANGES:
        wrong_count = f"{len(networks)} ranges are more than a security group holds ({MOST_RANGES})"
        raise InvalidInput(DOING, wrong_count, "name larger ranges, or fewer")
    if len({_is_private(one) for one in networks}) > 1:
        hint = "a load balancer is inside the VPC's network or on the internet: name ranges of one kind"
        raise InvalidInput(DOING, "some ranges are private and some are public", hint)
    return Exposure(tuple(map(str, networks)))


def _network(text: str) -> IPv4Network | str:
    """A range, or what is wrong with it."""
    try:
        network = ip_network(text)
    except ValueError:
        try:
            wider = ip_network(text, strict=False)
        except ValueError:
            return f"{text!r} is no range of addresses"
        return f"{text} is an address inside {wider}: name that range, or {text.partition('/')[0]}/32"
    if not isinstance(network, IPv4Network):
        return f"{text} is of IPv6, for which gpuctl makes no load balancer"
    if network.prefixlen < LARGEST:
        return f"{text} is a large part of the internet, which only {WHOLE_INTERNET} opens"
    return network


def _is_private(network: IPv4Network) -> bool:
    return any(network.subnet_of(block) for block in PRIVATE)


def service_name(pod: str) -> str:
    return f"{pod}-ssh"


def service(pod: str, exposure: Exposure) -> Object:
    """The Service. Its class leads to a Network Load Balancer, and no other controller takes it; pods are its targets,
    so that no port of a node opens."""
    meta = {
        "name": service_name(pod),
        "labels": labels(pod, "service"),
        "annotations": {SCHEME: exposure.scheme, f"{ANNOTATION}nlb-target-type": "ip"},
    }
    spec = {
        "type": "LoadBalancer",
        "loadBalancerClass": CLASS,
        "allocateLoadBalancerNodePorts": False,
        "loadBalancerSourceRanges": list(exposure.ranges),
        "selector": {model.POD_LABEL: pod, model.PART_LABEL: "pod"},
        "ports": [{"name": "ssh", "protocol": "TCP", "port": scripts.EXPOSED_AS, "targetPort": scripts.EXPOSED_PORT}],
    }
    return {"apiVersion": "v1", "kind": "Service", "metadata": meta, "spec": spec}


def of(live: Object) -> Exposure:
    """The exposure that a Service has; without ranges, everybody may connect."""
    return Exposure(tuple(sorted(live["spec"].get("loadBalancerSourceRanges") or ("0.0.0.0/0",))))


def address(live: Object | None) -> str:
    """Name or address of the load balancer; "" while it has none, or one that ssh could not be given."""
    ingress = ((live or {}).get("status") or {}).get("loadBalancer", {}).get("ingress") or [{}]
    text = str(ingress[0].get("hostname") or ingress[0].get("ip") or "")
    return text if HOST.fullmatch(text) else ""


# Words of the controller's events, what they mean, and what to do.
CAUSES: Sequence[tuple[tuple[str, ...], str, str]] = (
    (
        ("TooManyLoadBalancers", "TooManyTargetGroups", "TooManyListeners", "LimitExceeded"),
        "a quota of load balancers is used up",
        "remove one that is not used, or ask for more in Service Quotas (Elastic Load Balancing)",
    ),
    (
        ("AccessDenied", "UnauthorizedOperation", "not authorized", "WebIdentityErr", "NoCredentialProviders"),
        "the controller may not make load balancers",
        "give its service account the controller's IAM policy",
    ),
    (
        ("at least one subnet", "auto-discover subnets", "unable to discover", "least one matching"),
        "no subnet is marked for it",
        "tag subnets of the VPC with kubernetes.io/role/elb=1 (internet-facing) or kubernetes.io/role/internal-elb=1",
    ),
    (
        ("insufficient", "free IP", "available IP", "InvalidSubnet"),
        "its subnets have too few free addresses, or no route to the internet",
        "`gpuctl subnets` shows them; it needs eight free addresses in each",
    ),
)


def trouble(live: Object, events: Sequence[Object]) -> Trouble:
    """Reason why a Service has no load balancer yet. `events`: of the Service, the newest last."""
    warnings = [event for event in events if event.get("type") == "Warning"]
    if warnings:
        text = " ".join(str(warnings[-1].get("message") or warnings[-1].get("reason") or "no message").split())
        for parts, cause, hint in CAUSES:
            if any(part.lower() in text.lower() for part in parts):
                return Trouble(f"{cause}: {text}", hint)
        return Trouble(text, "`kubectl describe service` shows its events", lasting=False)
    if not events and FINALIZER not in (live["metadata"].get("finalizers") or ()):
        return Trouble("no controller has taken it", INSTALL, lasting=False)
    return Trouble("AWS makes it, which takes about three minutes", "", lasting=False)


def plain(live: Mapping[str, Any] | None) -> Object | None:
    """A load balancer for JSON; None for none."""
    if live is None:
        return None
    exposure = of(dict(live))
    return {"address": address(dict(live)) or None, "scheme": exposure.scheme, "allowed": list(exposure.ranges)}
