"""A Network Load Balancer in front of a GPU pod's sshd: who may connect, its Service, and the state of that Service.

Sources: AWS Load Balancer Controller (docs/guide/service/nlb.md, pkg/networking/subnet_resolver.go), ELB's API errors.
"""

from __future__ import annotations

import re
from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
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
# Over TCP, targets that are addresses see the load balancer's by default, and its ranges then count for nobody.
TARGETS = {
    f"{ANNOTATION}nlb-target-type": "ip",
    f"{ANNOTATION}target-group-attributes": "preserve_client_ip.enabled=true",
}
SUCCESS = "SuccessfullyReconciled"  # reason of the controller's event each time AWS has what the Service says
EVENTS_LAST_S = 3600  # Kubernetes drops events after an hour; a controller that fails repeats its Warning sooner
TO_THE_SECOND = len("2026-01-01T00:00:00")
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
    so that no port of a node opens, and see the client's address."""
    meta = {
        "name": service_name(pod),
        "labels": labels(pod, "service"),
        "annotations": {SCHEME: exposure.scheme, **TARGETS},
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


def scheme_of(live: Object) -> str:
    """The scheme that a Service asks for; the controller takes "internal" without one."""
    return str((live["metadata"].get("annotations") or {}).get(SCHEME) or INTERNAL)


def fits(live: Object, desired: Exposure) -> bool:
    """True if a Service asks for this exposure already."""
    annotations = live["metadata"].get("annotations") or {}
    same = of(live) == desired and scheme_of(live) == desired.scheme
    return same and not is_ending(live) and TARGETS.items() <= annotations.items()


def is_ending(live: Object) -> bool:
    """True for a Service that was deleted, and whose load balancer is being removed."""
    return "deletionTimestamp" in live["metadata"]


def address(live: Object | None) -> str:
    """Name or address of the load balancer; "" while it has none, or one that ssh could not be given, or it goes."""
    if live is not None and is_ending(live):
        return ""
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


def at(event: Object) -> str:
    """Time of an event, in UTC to the second, such as 2026-01-01T00:00:00; "" for none."""
    latest = (event.get("series") or {}).get("lastObservedTime") or event.get("lastTimestamp")
    return str(latest or event.get("eventTime") or "")[:TO_THE_SECOND]


def identity(event: Object) -> tuple[str, str, int]:
    """An event, and how often it has happened: one that happens again is another."""
    return str(event["metadata"].get("uid")), at(event), int(event.get("count") or 0)


def changed(live: Object) -> str:
    """Time at which the ranges or annotations of a Service were last changed, by Kubernetes' clock; "" if unknown."""
    meta = live["metadata"]
    written = [one for one in meta.get("managedFields") or () if not one.get("subresource")]
    fields = [(one.get("fieldsV1") or {}, str(one.get("time") or "")) for one in written]
    times = [time for names, time in fields if "f:spec" in names or "f:annotations" in names.get("f:metadata", {})]
    return max([*times, str(meta.get("creationTimestamp") or "")])[:TO_THE_SECOND]


def warning(events: Sequence[Object]) -> Object | None:
    """The newest Warning that no success of the controller follows. `events`: the newest last."""
    for event in reversed(events):
        if event.get("type") == "Warning":
            return event
        if event.get("reason") == SUCCESS:
            return None
    return None


def is_confirmed(live: Object, events: Sequence[Object], now: datetime) -> bool:
    """True if AWS has what the Service says: the controller has reported success since the last change.

    Without events, a change is confirmed once it is older than they last: a failure would have been repeated.
    """
    since, done = changed(live), [at(event) for event in events if event.get("reason") == SUCCESS]
    if warning(events) is not None or not since:
        return False
    if done:
        return max(done) >= since
    return since < (now.astimezone(UTC) - timedelta(seconds=EVENTS_LAST_S)).isoformat()


def trouble(live: Object, events: Sequence[Object], known: Container[tuple[str, str, int]] = ()) -> Trouble:
    """Reason why a Service has no load balancer yet, or not one with its ranges.

    `events`: of the Service, the newest last. `known`: those that are older than the command, whose causes may be gone.
    """
    latest = warning(events)
    if latest is not None:
        text = " ".join(str(latest.get("message") or latest.get("reason") or "no message").split())
        for parts, cause, hint in CAUSES:
            if any(part.lower() in text.lower() for part in parts):
                return Trouble(f"{cause}: {text}", hint, lasting=identity(latest) not in known)
        return Trouble(text, "`kubectl describe service` shows its events", lasting=False)
    if not events and FINALIZER not in (live["metadata"].get("finalizers") or ()):
        return Trouble("no controller has taken it", INSTALL, lasting=False)
    if address(live):
        return Trouble("the controller has not confirmed its ranges yet", "", lasting=False)
    return Trouble("AWS makes it, which takes about three minutes", "", lasting=False)


def plain(live: Mapping[str, Any] | None) -> Object | None:
    """A load balancer for JSON; None for none."""
    if live is None:
        return None
    one = dict(live)
    return {"address": address(one) or None, "scheme": scheme_of(one), "allowed": list(of(one).ranges)}
