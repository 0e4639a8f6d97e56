"""GPU pods of a cluster: state with its cause, image, name for ssh, and keys that may log in."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from gpuctl.cluster.deploy.pod_progress import PodProgress
from gpuctl.core.errors import GpuctlError, InvalidInput
from gpuctl.domain.findings import Finding, fail, ok, or_ok, unknown, unknown_because, warn
from gpuctl.domain.kube_errors import Forbidden
from gpuctl.edges.kube import cluster as kube
from gpuctl.edges.kube.cluster import Cluster
from gpuctl.eks.gpu_pod import exposure, model
from gpuctl.workflows import eks_access, eks_expose, eks_ssh
from gpuctl.workflows.eks_access import AccessRequest, Place
from gpuctl.workflows.eks_pod import LOGS, lacks_sshd, progress_of
from gpuctl.workflows.eks_pod_keys import keys_of

ANSWER_S = 10.0
DEFAULT = "default"
ACCESS = "have an access entry of the cluster for this login, or add --no-pods"


@dataclass(frozen=True)
class Balancer:
    """A load balancer of `eks pod`. `pod`: "" if none is known. `details`: for JSON; None if it is not known."""

    pod: str
    finding: Finding
    details: dict[str, Any] | None


@dataclass(frozen=True)
class GpuPod:
    """A GPU pod. `keys`: number of keys that may log in; None if it is not known, `why` says why. `has_entry`: its name
    for ssh is written on this machine. `balancer`: None for none; if that is not known, `balancer_unknown` says why."""

    place: Place
    image: str
    progress: PodProgress
    keys: int | None
    why: str = ""
    has_sshd: bool = True
    has_entry: bool = False
    balancer: Balancer | None = None
    balancer_unknown: str = ""

    @property
    def host(self) -> str | None:
        """Name for ssh; None while nothing has written it."""
        return eks_ssh.host_name(self.place) if self.has_entry else None


@dataclass(frozen=True)
class Skipped:
    """Kubernetes was not asked for GPU pods."""

    why: str


Pods = Sequence[GpuPod | Balancer] | GpuctlError | Skipped


def read(cluster: str, region: str, aws_profile: str, namespace: str) -> list[GpuPod | Balancer] | GpuctlError:
    """GPU pods of a cluster of AWS in one namespace, "" for `default`; the error if Kubernetes does not list them."""
    try:
        place = eks_access.place(AccessRequest(cluster, "gpu", "", namespace, region, aws_profile))
        api = kube.connect(place.context, place.namespace, place.files, ANSWER_S)
        return pods(api, place)
    except GpuctlError as error:
        return error


def pods(cluster: Cluster, place: Place) -> list[GpuPod | Balancer]:
    """GPU pods in the namespace of a cluster, and load balancers without a pod; InvalidInput without the namespace."""
    labels = {"app.kubernetes.io/managed-by": "gpuctl", model.PART_LABEL: "pod"}
    several = cluster.find(cluster.kind("v1", "Pod"), labels)
    if not several:
        _check_namespace(cluster, place.namespace)
    balancers = {one.pod: one for one in _balancers(cluster)}
    why = next((one.finding.message for one in balancers.values() if one.details is None), "")
    made = [_pod(cluster, place, one) for one in several]
    with_balancers = [replace(one, balancer=balancers.pop(one.place.pod, None), balancer_unknown=why) for one in made]
    return [*with_balancers, *map(_without_pod, balancers.values())]


def _balancers(cluster: Cluster) -> list[Balancer]:
    labels = {"app.kubernetes.io/managed-by": "gpuctl", model.PART_LABEL: "service"}
    try:
        services = cluster.find(cluster.kind("v1", "Service"), labels)
    except Forbidden as error:
        hint = "have list of services allowed"
        return [Balancer("", unknown("expose", "load balancers", error.wrong, hint), None)]
    return [
        Balancer(
            service["metadata"]["labels"].get(model.POD_LABEL, ""),
            eks_expose.judge(service, eks_expose.events(cluster, service)),
            exposure.plain(service),
        )
        for service in services
    ]


def _without_pod(one: Balancer) -> Balancer:
    """A load balancer that costs, and leads to no pod."""
    if one.details is None:
        return one
    message = f"no pod {one.pod} exists, and its load balancer costs on; {one.finding.message}"
    hint = f"`kubectl delete service {exposure.service_name(one.pod)}`, or `gpuctl eks pod` makes the pod again"
    return replace(one, finding=warn("expose", one.finding.subject, message, hint))


def _check_namespace(cluster: Cluster, namespace: str) -> None:
    try:
        exists = cluster.get(cluster.kind("v1", "Namespace"), namespace) is not None
    except Forbidden:  # a right to list pods is often of one namespace alone, which then exists
        return
    if not exists:
        raise InvalidInput("list GPU pods", f"the namespace {namespace} does not exist", "name another: `--namespace`")


def _pod(cluster: Cluster, any_place: Place, pod: dict[str, Any]) -> GpuPod:
    plain = {**vars(any_place), "pod": str(pod["metadata"]["name"])}
    place, image = Place(**plain), str(pod["spec"]["containers"][0].get("image", ""))
    progress, has_sshd, has_entry = progress_of(cluster, pod), not lacks_sshd(pod), eks_ssh.has_entry(cluster, place)
    try:
        authorized = keys_of(cluster, place)
    except Forbidden as error:
        return GpuPod(place, image, progress, None, error.wrong, has_sshd, has_entry)
    if authorized.unknown:
        why = f"{len(authorized.keys)} keys and {len(authorized.unknown)} lines that may be keys"
        return GpuPod(place, image, progress, None, why, has_sshd, has_entry)
    return GpuPod(place, image, progress, len(authorized.keys), "", has_sshd, has_entry)


def judge(cluster: str, several: Pods, namespace: str) -> list[Finding]:
    """Findings on the pods of a cluster; none if Kubernetes was not asked. `namespace`: "" for `default`."""
    if isinstance(several, Skipped):
        return []
    if isinstance(several, GpuctlError):
        finding = unknown_because("pod", cluster, several)
        return [unknown("pod", cluster, finding.message, several.hint or ACCESS)]
    message = f"no GPU pod in namespace {namespace or DEFAULT}"
    pods = [_judge(one) for one in several if isinstance(one, GpuPod)]
    balancers = [one.balancer if isinstance(one, GpuPod) else one for one in several]
    return [*or_ok("pod", cluster, pods, message), *(one.finding for one in balancers if one is not None)]


def _judge(one: GpuPod) -> Finding:
    subject, state = f"Pod {one.place.pod}", one.progress
    count = "UNKNOWN keys" if one.keys is None else f"{one.keys} key" + "s" * (one.keys != 1)
    keys = f"{count} ({one.why})" if one.why else count
    through = "by its load balancer" if one.balancer else "without a load balancer"
    through = "load balancer UNKNOWN" if one.balancer_unknown else through
    ssh = f"ssh {one.host}, {through}" if one.host else "`gpuctl eks connect` writes its name for ssh"
    facts = f"image {one.image}; {ssh}; {keys}"
    if not one.has_sshd:
        message = f"the image has no sshd: ssh cannot reach the pod; {facts}"
        return fail("pod", subject, message, "`gpuctl eks pod --replace --image` with one that has openssh-server")
    if state.hopeless:
        return fail("pod", subject, f"it {state.summary}: {state.trouble}; {facts}", LOGS)
    if state.trouble or not state.ready:
        trouble = f": {state.trouble}" if state.trouble else ""
        return warn("pod", subject, f"it {state.summary}{trouble}; {facts}", LOGS)
    if one.keys is None:
        return unknown("pod", subject, f"it {state.summary}; {facts}", "`gpuctl eks keys` shows them")
    if one.keys == 0:
        return warn("pod", subject, f"it {state.summary}, and nobody can log in; {facts}", "`gpuctl eks keys --key`")
    return ok("pod", subject, f"{state.summary}; {facts}")


def plain(one: GpuPod) -> dict[str, Any]:
    """A pod for JSON."""
    return {
        "pod": one.place.pod,
        "namespace": one.place.namespace,
        "state": one.progress.summary,
        "ready": one.progress.ready,
        "trouble": one.progress.trouble,
        "image": one.image,
        "ssh": one.host,
        "keys": one.keys,
        "load_balancer": one.balancer.details if one.balancer else None,
        "load_balancer_unknown": one.balancer_unknown or None,
    }


def details(several: Pods) -> dict[str, Any]:
    """Pods, and load balancers without one, for JSON; null with the reason if they are not known."""
    if isinstance(several, Skipped):
        why = f"Kubernetes was not asked: {several.why}"
        return {"pods": None, "pods_unknown": why, "load_balancers_without_pod": None}
    if isinstance(several, GpuctlError):
        return {"pods": None, "pods_unknown": str(several), "load_balancers_without_pod": None}
    alone = [one for one in several if isinstance(one, Balancer)]
    known = all(one.details is not None for one in alone)
    return {
        "pods": [plain(one) for one in several if isinstance(one, GpuPod)],
        "pods_unknown": None,
        "load_balancers_without_pod": [{"pod": one.pod, **(one.details or {})} for one in alone] if known else None,
    }
