"""Device plugins of NVIDIA and AWS as DaemonSets for the nodes of a cluster's groups: pinned versions, no Helm."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from gpuctl.core.errors import GpuctlError
from gpuctl.domain.kube_nodes import GPU
from gpuctl.eks import registries

Object = dict[str, Any]
EFA = "vpc.amazonaws.com/efa"
GROUP_LABEL = "eks.amazonaws.com/nodegroup"
NAMESPACE = "kube-system"
LABELS = {"app.kubernetes.io/managed-by": "gpuctl"}
PLUGINS_FOLDER = "/var/lib/kubelet/device-plugins"
# Bottlerocket's NVIDIA variants bring NVIDIA's device plugin in the image. Source: bottlerocket-os documentation.
WITH_NVIDIA_PLUGIN = "BOTTLEROCKET_"
# Programs of NVIDIA's image beside its device plugin. Source: NVIDIA/k8s-device-plugin, deployments/helm.
OTHER_PROGRAMS = ("gpu-feature-discovery", "mps-control-daemon", "config-manager")
WITH_DRIVER = ("NVIDIA", "CUSTOM")  # parts of types of images that have a driver, or may have one


@dataclass(frozen=True)
class Plugin:
    """A device plugin. `image_parts`: parts of the repositories of images that hold it, as mirrors rename registries.

    They are compared with /REPOSITORY/; `other_parts`: those of other vendors' plugins of the same name.
    """

    title: str
    name: str
    resource: str
    image: str
    image_parts: tuple[str, ...]
    other_parts: tuple[str, ...] = ()


# Source: NVIDIA/k8s-device-plugin v0.20.0 (deployments/static); the digest is that of its index of architectures.
NVIDIA = Plugin(
    "NVIDIA's device plugin",
    "gpuctl-nvidia-device-plugin",
    GPU,
    "nvcr.io/nvidia/k8s-device-plugin:v0.20.0@sha256:a61ba9fd8efb82f3a79f877f7580e02c1e8e7593f62473644bc9c79e315c3312",
    ("/k8s-device-plugin/", "nvidia-k8s-device-plugin", "nvidia-device-plugin"),
    ("/rocm/", "/amd"),
)
# Source: aws/eks-charts, stable/aws-efa-k8s-device-plugin 0.5.30. Each region has its registry; AWS names no digest.
# Versions before 0.5.10 count two adapters of p6-b200's NVLink management as EFA.
AWS_EFA = Plugin(
    "AWS's EFA plugin",
    "gpuctl-efa-device-plugin",
    EFA,
    "{registry}/eks/aws-efa-k8s-device-plugin:v0.5.20",
    ("aws-efa-k8s-device-plugin",),
)
PLUGINS = (NVIDIA, AWS_EFA)


@dataclass(frozen=True)
class GroupNodes:
    """Nodes of a group. `desired`: number of them; `gpus`, `efas`: of one node, `gpus` None if AWS does not tell.

    `active`: False for a group that plugins serve and that is not judged, such as a DEGRADED one.
    """

    group: str
    instance_type: str
    ami: str
    desired: int
    gpus: int | None
    efas: int = 0
    taints: Sequence[str] = ()
    active: bool = True

    @property
    def needs(self) -> dict[str, int]:
        """Resource -> least number that each node offers; one GPU if the number is not known."""
        needed = {GPU: 1 if self.gpus is None else self.gpus, EFA: self.efas}
        return {name: number for name, number in needed.items() if number}

    def brings(self, plugin: Plugin) -> bool:
        """True if the image of the nodes has the plugin."""
        return plugin is NVIDIA and self.ami.startswith(WITH_NVIDIA_PLUGIN) and "NVIDIA" in self.ami

    @property
    def has_driver(self) -> bool:
        """True if the image has NVIDIA's driver, or may have it; EFA does not need it."""
        return any(word in self.ami for word in WITH_DRIVER)

    @property
    def awaited(self) -> dict[str, int]:
        """Part of `needs` that the nodes will offer: no GPU without a driver."""
        return {name: number for name, number in self.needs.items() if name != GPU or self.has_driver}


def targets(plugin: Plugin, groups: Sequence[GroupNodes]) -> list[GroupNodes]:
    """Groups whose nodes need the plugin, and do not bring it."""
    return [one for one in groups if plugin.resource in one.needs and not one.brings(plugin)]


def daemon_set(plugin: Plugin, groups: Sequence[GroupNodes], region: str, live: Object | None = None) -> Object:
    """The plugin for the nodes of these groups: their taints are tolerated, and no other node is taken.

    EFA's plugin ends at once on a node that was launched without EFA: groups, not instance types, select nodes. Groups
    and tolerations of the `live` DaemonSet stay, as nodes of an earlier file may still run. GpuctlError for a region
    whose registry is not known.
    """
    labels = {**LABELS, "app.kubernetes.io/name": plugin.name}
    spec = {
        "automountServiceAccountToken": False,
        "priorityClassName": "system-node-critical",
        "tolerations": tolerations(groups, live),
        "affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": _selection(groups, live)}},
        **(_efa(plugin, region) if plugin is AWS_EFA else _nvidia(plugin)),
    }
    selector = {"app.kubernetes.io/name": plugin.name}
    return {
        "apiVersion": "apps/v1",
        "kind": "DaemonSet",
        "metadata": {"name": plugin.name, "namespace": NAMESPACE, "labels": labels},
        "spec": {
            "selector": {"matchLabels": selector},
            "updateStrategy": {"type": "RollingUpdate"},
            "template": {"metadata": {"labels": labels}, "spec": spec},
        },
    }


def tolerations(groups: Sequence[GroupNodes], live: Object | None = None) -> list[Object]:
    """Tolerations of the taints of these groups, of those that GPU nodes usually have, and of the live DaemonSet."""
    several: list[Object] = [
        {"key": "CriticalAddonsOnly", "operator": "Exists"},
        {"key": GPU, "operator": "Exists"},
    ]
    for text in sorted({text for one in groups for text in one.taints}):
        name, _, effect = text.rpartition(":")
        several.append({"key": name.partition("=")[0], "operator": "Exists", "effect": effect})
    several += _pod_spec(live).get("tolerations") or ()
    return [one for number, one in enumerate(several) if one not in several[:number]]


def _selection(groups: Sequence[GroupNodes], live: Object | None) -> Object:
    names = {one.group for one in groups} | selected_groups(live)
    return {"nodeSelectorTerms": [{"matchExpressions": [_in(GROUP_LABEL, names)]}]}


def _in(key: str, values: set[str]) -> Object:
    return {"key": key, "operator": "In", "values": sorted(values)}


def selected_groups(live: Object | None) -> set[str]:
    """Node groups whose nodes a DaemonSet of gpuctl selects."""
    affinity = (_pod_spec(live).get("affinity") or {}).get("nodeAffinity") or {}
    terms = (affinity.get("requiredDuringSchedulingIgnoredDuringExecution") or {}).get("nodeSelectorTerms") or ()
    rules = [rule for term in terms for rule in term.get("matchExpressions") or ()]
    chosen = [one for one in rules if (one.get("key"), one.get("operator")) == (GROUP_LABEL, "In")]
    return {str(value) for one in chosen for value in one.get("values") or ()}


def _pod_spec(item: Object | None) -> Object:
    return dict(item["spec"]["template"]["spec"]) if item is not None else {}


def _nvidia(plugin: Plugin) -> Object:
    folder = {"name": "device-plugins", "hostPath": {"path": PLUGINS_FOLDER, "type": "Directory"}}
    container = {
        "name": "nvidia-device-plugin",
        "image": plugin.image,
        "securityContext": {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}},
        "volumeMounts": [{"name": "device-plugins", "mountPath": PLUGINS_FOLDER}],
    }
    return {"containers": [container], "volumes": [folder]}


def _efa(plugin: Plugin, region: str) -> Object:
    registry = registries.registry(region)
    if not registry:
        wrong = f"the registry of EKS's images in {region} is not known"
        raise GpuctlError(f"apply {plugin.title}", wrong, "install its Helm chart: aws/eks-charts")
    image = plugin.image.format(registry=registry)
    paths = {"device-plugins": PLUGINS_FOLDER, "infiniband": "/dev/infiniband"}
    container = {
        "name": "efa-device-plugin",
        "image": image,
        "securityContext": {"privileged": True},
        "resources": {"requests": {"cpu": "10m", "memory": "20Mi"}},
        "volumeMounts": [{"name": name, "mountPath": path} for name, path in paths.items()],
    }
    volumes = [{"name": name, "hostPath": {"path": path}} for name, path in paths.items()]
    return {"hostNetwork": True, "containers": [container], "volumes": volumes}


# ---- plugins that exist ----------------------------------------------------------------------------------------------


def is_ours(plugin: Plugin, item: Object) -> bool:
    """True for the DaemonSet that gpuctl made."""
    return has_name(plugin, item) and LABELS.items() <= (item["metadata"].get("labels") or {}).items()


def has_name(plugin: Plugin, item: Object) -> bool:
    """True for a DaemonSet of the name that gpuctl's has, whoever made it."""
    return (item["metadata"]["namespace"], item["metadata"]["name"]) == (NAMESPACE, plugin.name)


def of_others(plugin: Plugin, daemon_sets: Sequence[Object]) -> list[Object]:
    """DaemonSets of others that run the plugin."""
    return [one for one in daemon_sets if not is_ours(plugin, one) and _holds(plugin, one)]


def _holds(plugin: Plugin, item: Object) -> bool:
    if has_name(plugin, item):
        return True  # of our name, without our label
    spec = _pod_spec(item)
    folders = {str(one.get("name")) for one in spec.get("volumes") or () if _path(one) == PLUGINS_FOLDER}
    return any(_runs(plugin, one, folders) for one in spec.get("containers") or ())


def _path(volume: Mapping[str, Any]) -> str:
    return str((volume.get("hostPath") or {}).get("path") or "").rstrip("/")


def _runs(plugin: Plugin, container: Mapping[str, Any], folders: set[str]) -> bool:
    """True if a container is the plugin: it registers with kubelet through the folder of device plugins.

    `folders`: volumes with this folder. NVIDIA's image also holds programs that are no device plugin.
    """
    path, _, last = str(container.get("image")).partition("@")[0].rpartition("/")
    repository = f"/{path}/{last.partition(':')[0]}/"
    if not any(part in repository for part in plugin.image_parts) or any(
        part in repository for part in plugin.other_parts
    ):
        return False
    words = [str(one) for one in (*(container.get("command") or ()), *(container.get("args") or ()))]
    if any(name in word for name in OTHER_PROGRAMS for word in words):
        return False
    return any(str(one.get("name")) in folders for one in container.get("volumeMounts") or ())


def title(item: Object) -> str:
    """Name of a DaemonSet with its namespace and the tags of its images, for people."""
    containers = item["spec"]["template"]["spec"].get("containers") or ()
    tags = [str(one.get("image")).partition("@")[0].rpartition("/")[2] for one in containers]
    return f"DaemonSet {item['metadata']['namespace']}/{item['metadata']['name']} ({', '.join(tags)})"


def is_gpuctls(item: Object) -> bool:
    """True for a DaemonSet of any plugin that gpuctl made."""
    return any(is_ours(plugin, item) for plugin in PLUGINS)


def node_of(pod: Object) -> str:
    """Node of a DaemonSet's pod, also of one that does not fit on its node; "" for none."""
    spec = pod.get("spec") or {}
    affinity = (spec.get("affinity") or {}).get("nodeAffinity") or {}
    terms = (affinity.get("requiredDuringSchedulingIgnoredDuringExecution") or {}).get("nodeSelectorTerms") or ()
    fields = [rule for term in terms for rule in term.get("matchFields") or () if rule.get("key") == "metadata.name"]
    return str(spec.get("nodeName") or next((value for rule in fields for value in rule.get("values") or ()), ""))
