"""Load balancers of a cluster that goes: removed through Kubernetes, while the controllers that made them run."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from gpuctl.core.errors import GpuctlError, Unreachable
from gpuctl.core.text import named
from gpuctl.domain.findings import Finding, warn
from gpuctl.edges.aws import Aws
from gpuctl.edges.kube import cluster as kube
from gpuctl.edges.kube.cluster import Cluster
from gpuctl.edges.kube.cluster import Kind as KubeKind
from gpuctl.eks.objects import Kind, State
from gpuctl.eks.objects import Object as AwsObject
from gpuctl.eks.removal import Belongings, belongs
from gpuctl.eks.wait import TimeUp, Wait, Waiter
from gpuctl.workflows import eks_access
from gpuctl.workflows.eks_access import AccessRequest

Object = dict[str, Any]
CHECK = "load-balancers"
ANSWER_S = 10.0  # of Kubernetes
GONE = Wait("the end of Services and Ingresses with their load balancers", "1 to 3 min", 10 * 60)
MOST_EXPLAINED = 3  # objects whose events are read at the limit
# Kinds whose controllers make load balancers. Source: AWS Load Balancer Controller, documentation.
KINDS = (("v1", "Service"), ("networking.k8s.io/v1", "Ingress"), ("gateway.networking.k8s.io/v1", "Gateway"))
LATER = "what is left is deleted by AWS's API"
HINT = "does the AWS Load Balancer Controller run? `kubectl get pods -A` shows it"
SLOW_HINT = "their objects in Kubernetes are gone: `aws elbv2 describe-load-balancers` shows their state"
REMADE_HINT = "stop what makes it, such as Argo CD or Flux, if the next run finds it again"
Look = Callable[[], Sequence[AwsObject]]  # load balancers that AWS lists near the cluster


@dataclass
class Withdrawal:
    """One removal. `uids`: objects of Kubernetes that were deleted. `hosts`: addresses of their load balancers.

    `known`: uids at the begin; `remade`: titles of objects that came later. `kinds`: those that can be listed.
    `hint`: what to try for what the last poll still found.
    """

    name: str
    cluster: Cluster
    look: Look
    waiter: Waiter
    uids: set[str] = field(default_factory=set)
    hosts: set[str] = field(default_factory=set)
    known: set[str] = field(default_factory=set)
    remade: dict[str, None] = field(default_factory=dict)
    kinds: list[KubeKind] = field(default_factory=list)
    hint: str = HINT

    def begin(self) -> GpuctlError | None:
        """Delete the objects; the first refusal, after which the others are still deleted."""
        objects, refused = self._find()
        self.known = {one["metadata"]["uid"] for one in objects}
        for one in objects:
            try:
                if "deletionTimestamp" not in one["metadata"]:
                    self.waiter.progress(f"deleting {title(one)} in Kubernetes, and with it its load balancer")
                    self.cluster.delete(one)
            except Unreachable as error:
                return refused or error
            except GpuctlError as error:
                refused = refused or error
                continue
            self.uids.add(one["metadata"]["uid"])
            self.hosts |= addresses(one)
        return refused

    def _find(self) -> tuple[list[Object], GpuctlError | None]:
        """Objects of the kinds that can be listed, and the first refusal of another kind."""
        refused: GpuctlError | None = None
        objects: list[Object] = []
        for version, name in KINDS:
            try:
                if self.cluster.serves(version, name):
                    kind = self.cluster.kind(version, name)
                    objects += listed(self.cluster, [kind])
                    self.kinds.append(kind)
            except Unreachable:
                raise
            except GpuctlError as error:
                refused = refused or error
        return objects, refused

    def left(self) -> list[Object]:
        """Objects that were deleted, and still exist: their controllers have not removed the load balancers."""
        objects = listed(self.cluster, self.kinds)
        self.remade |= {title(one): None for one in objects if one["metadata"]["uid"] not in self.known}
        return [one for one in objects if one["metadata"]["uid"] in self.uids]

    def poll(self) -> tuple[bool | None, str]:
        """True once the objects and their load balancers are gone."""
        try:
            names = [title(one) for one in self.left()]
        except Unreachable as error:
            return None, f"not known: {error}"
        self.hint = HINT
        if not names:
            self.hint = SLOW_HINT
            # An Ingress may name a load balancer that no controller of the cluster made, as that in front of nginx.
            balancers = [one for one in self.look() if belongs(one, self.name)]
            names = [str(one) for one in balancers if str(one.data.get("DNSName")).lower() in self.hosts]
        return (None, named(names)) if names else (True, "")

    def reason(self) -> str:
        """Newest warnings of the objects that are left, for people; "" for none, or without the right to read them."""
        with contextlib.suppress(GpuctlError):
            kind = self.cluster.kind("v1", "Event")
            warnings = []
            for one in self.left()[:MOST_EXPLAINED]:
                fields = f"involvedObject.uid={one['metadata']['uid']},type=Warning"
                several = sorted(self.cluster.find_everywhere(kind, fields), key=lambda event: str(_time(event)))
                warnings += [f"{title(one)}: {event.get('message')}" for event in several[-1:]]
            return "; ".join(warnings)
        return ""


def _time(event: Object) -> object:
    return event.get("lastTimestamp") or event.get("eventTime") or ""


def withdraw(aws: Aws, state: State, around: Belongings, look: Look, waiter: Waiter) -> list[Finding]:
    """Delete Services of type LoadBalancer, Ingresses and Gateways, and wait until their load balancers are gone.

    Bounded, and repeated by the next run. A failure is reported and stops nothing: what is left goes by AWS's API, once
    the control plane is gone.
    """
    if not any(one.state in ("ACTIVE", "UPDATING") for one in state.of(Kind.CLUSTER)):
        return []
    try:
        withdrawal = Withdrawal(state.cluster, connect(aws, state), look, waiter)
        refused = withdrawal.begin()
        if refused is not None and not withdrawal.kinds:
            raise refused
    except GpuctlError as error:
        message = f"Services and Ingresses were not removed through Kubernetes first: {error}"
        waiter.progress(f"{message}; {LATER}")
        known = [str(one) for one in around.of(Kind.LOAD_BALANCER) if belongs(one, state.cluster)]
        return [warn(CHECK, state.cluster, f"{message}; {LATER}: {named(known)}", error.hint)] if known else []
    findings = []
    if refused is not None:
        findings.append(warn(CHECK, state.cluster, f"{refused}; {LATER}", refused.hint))
    return [*findings, *_awaited(withdrawal)] if withdrawal.uids else findings


def _awaited(withdrawal: Withdrawal) -> list[Finding]:
    """Wait until what was deleted is gone; a finding on what is left, and on what was made meanwhile."""
    findings, name, waiter = list[Finding](), withdrawal.name, withdrawal.waiter
    try:
        waiter.until(GONE, withdrawal.poll)
    except TimeUp as error:
        reason = withdrawal.reason()
        message = f"{error.wrong}{f' ({reason})' if reason else ''}; {LATER}"
        waiter.progress(message)
        findings.append(warn(CHECK, name, message, withdrawal.hint))
    except GpuctlError as error:
        findings.append(warn(CHECK, name, f"{error}; {LATER}", error.hint))
    if withdrawal.remade:
        message = f"made while the others went: {named(withdrawal.remade)}; its load balancer is deleted by AWS's API"
        waiter.progress(message)
        findings.append(warn(CHECK, name, message, REMADE_HINT))
    return findings


def connect(aws: Aws, state: State) -> Cluster:
    """Kubernetes of a cluster, through a kubeconfig of gpuctl."""
    place = eks_access.place(AccessRequest(state.cluster, "gpu", "", "", state.region, aws.profile))
    return kube.connect(place.context, place.namespace, place.files, ANSWER_S)


def listed(cluster: Cluster, kinds: Sequence[KubeKind]) -> list[Object]:
    """Objects of all namespaces for which a controller makes a load balancer."""
    several = [item for kind in kinds for item in cluster.find_everywhere(kind, "")]
    return [one for one in several if one["kind"] != "Service" or one["spec"].get("type") == "LoadBalancer"]


def title(item: Object) -> str:
    """Kind, namespace and name, as in Service web/front."""
    return f"{item['kind']} {item['metadata'].get('namespace', '')}/{item['metadata']['name']}"


def addresses(item: Object) -> set[str]:
    """Names of the load balancer in DNS, in lower case."""
    status = item.get("status") or {}
    rows = (status.get("loadBalancer") or {}).get("ingress") or ()
    hosts = [one.get("hostname") for one in rows]
    hosts += [one.get("value") for one in status.get("addresses") or ()]  # of a Gateway
    return {str(one).lower() for one in hosts if one}
