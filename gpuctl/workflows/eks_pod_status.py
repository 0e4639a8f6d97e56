"""GPU pods of a cluster: state with its cause, image, name for ssh, and keys that may log in."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from gpuctl.cluster.deploy.pod_progress import PodProgress
from gpuctl.core.errors import GpuctlError
from gpuctl.domain.findings import Finding, fail, ok, unknown, unknown_because, warn
from gpuctl.domain.kube_errors import Forbidden
from gpuctl.edges.kube import cluster as kube
from gpuctl.edges.kube.cluster import Cluster
from gpuctl.eks.gpu_pod import model
from gpuctl.workflows import eks_access, eks_ssh
from gpuctl.workflows.eks_access import AccessRequest, Place
from gpuctl.workflows.eks_pod import LOGS, lacks_sshd, progress_of
from gpuctl.workflows.eks_pod_keys import keys_of

ANSWER_S = 10.0
ACCESS = "have an access entry of the cluster for this login, or add --no-pods"


@dataclass(frozen=True)
class GpuPod:
    """A GPU pod. `keys`: number of keys that may log in; None if it is not known, `why` says why."""

    place: Place
    image: str
    progress: PodProgress
    keys: int | None
    why: str = ""
    has_sshd: bool = True

    @property
    def host(self) -> str:
        """Name for ssh."""
        return eks_ssh.host_name(self.place)


def read(cluster: str, region: str, aws_profile: str, namespace: str) -> list[GpuPod] | GpuctlError:
    """GPU pods of a cluster of AWS in one namespace, "" for `default`; the error if Kubernetes does not list them."""
    try:
        place = eks_access.place(AccessRequest(cluster, "gpu", "", namespace, region, aws_profile))
        api = kube.connect(place.context, place.namespace, place.files, ANSWER_S)
        return pods(api, place)
    except GpuctlError as error:
        return error


def pods(cluster: Cluster, place: Place) -> list[GpuPod]:
    """GPU pods in the namespace of a cluster."""
    labels = {"app.kubernetes.io/managed-by": "gpuctl", model.PART_LABEL: "pod"}
    return [_pod(cluster, place, one) for one in cluster.find(cluster.kind("v1", "Pod"), labels)]


def _pod(cluster: Cluster, any_place: Place, pod: dict[str, Any]) -> GpuPod:
    plain = {**vars(any_place), "pod": str(pod["metadata"]["name"])}
    place, image = Place(**plain), str(pod["spec"]["containers"][0].get("image", ""))
    progress, has_sshd = progress_of(cluster, pod), not lacks_sshd(pod)
    try:
        authorized = keys_of(cluster, place)
    except Forbidden as error:
        return GpuPod(place, image, progress, None, error.wrong, has_sshd)
    if authorized.unknown:
        why = f"{len(authorized.keys)} keys and {len(authorized.unknown)} lines that may be keys"
        return GpuPod(place, image, progress, None, why, has_sshd)
    return GpuPod(place, image, progress, len(authorized.keys), "", has_sshd)


def judge(cluster: str, several: Sequence[GpuPod] | GpuctlError) -> list[Finding]:
    """Findings on the pods of a cluster; none for a cluster without one."""
    if isinstance(several, GpuctlError):
        finding = unknown_because("pod", cluster, several)
        return [unknown("pod", cluster, finding.message, several.hint or ACCESS)]
    return [_judge(one) for one in several]


def _judge(one: GpuPod) -> Finding:
    subject, state = f"Pod {one.place.pod}", one.progress
    count = "UNKNOWN keys" if one.keys is None else f"{one.keys} key" + "s" * (one.keys != 1)
    keys = f"{count} ({one.why})" if one.why else count
    facts = f"image {one.image}; ssh {one.host}, without a load balancer; {keys}"
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
    }
