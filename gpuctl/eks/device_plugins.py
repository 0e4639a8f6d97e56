"""Device plugins of NVIDIA and AWS as DaemonSets for the nodes of a cluster's groups: pinned versions, no Helm."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from gpuctl.domain.kube_nodes import GPU

Object = dict[str, Any]
EFA = "vpc.amazonaws.com/efa"
GROUP_LABEL = "eks.amazonaws.com/nodegroup"
TYPE_LABEL = "node.kubernetes.io/instance-type"
NAMESPACE = "kube-system"
LABELS = {"app.kubernetes.io/managed-by": "gpuctl"}
PLUGINS_FOLDER = "/var/lib/kubelet/device-plugins"
# Accounts of EKS's registries in regions that have one of their own.
# Source: Amazon EKS user guide, "View Amazon container image registries for Amazon EKS add-ons".
REGISTRY = "602401143452"
REGISTRIES = {
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
# Bottlerocket's NVIDIA variants bring NVIDIA's device plugin in the image. Source: bottlerocket-os documentation.
WITH_NVIDIA_PLUGIN = "BOTTLEROCKET_"
WITH_DRIVER = ("NVIDIA", "CUSTOM")  # parts of types of images that have a driver, or may have one


@dataclass(frozen=True)
class Plugin:
    """A device plugin. `image_parts`: parts of the names of images that hold it, as mirrors rename registries."""

    title: str
    name: str
    resource: str
    image: str
    image_parts: tuple[str, ...]


# Source: NVIDIA/k8s-device-plugin v0.20.0 (deployments/static); the digest is that of its index of architectures.
NVIDIA = Plugin(
    "NVIDIA's device plugin",
    "gpuctl-nvidia-device-plugin",
    GPU,
    "nvcr.io/nvidia/k8s-device-plugin:v0.20.0@sha256:a61ba9fd8efb82f3a79f877f7580e02c1e8e7593f62473644bc9c79e315c3312",
    ("nvidia/k8s-device-plugin", "nvidia-device-plugin"),
)
# Source: aws/eks-charts, stable/aws-efa-k8s-device-plugin 0.5.30. Each region has its registry; AWS names no digest.
# Versions before 0.5.10 count two adapters of p6-b200's NVLink management as EFA.
AWS_EFA = Plugin(
    "AWS's EFA plugin",
    "gpuctl-efa-device-plugin",
    EFA,
    "{account}.dkr.ecr.{region}.{suffix}/eks/aws-efa-k8s-device-plugin:v0.5.20",
    ("aws-efa-k8s-device-plugin",),
)
PLUGINS = (NVIDIA, AWS_EFA)


@dataclass(frozen=True)
class GroupNodes:
    """Nodes of a group. `desired`: number of them; `gpus`, `efas`: of one node, `gpus` None if AWS does not tell."""

    group: str
    instance_type: str
    ami: str
    desired: int
    gpus: int | None
    efas: int = 0
    taints: Sequence[str] = ()

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
        return any(word in self.ami for word in WITH_DRIVER)


def targets(plugin: Plugin, groups: Sequence[GroupNodes]) -> list[GroupNodes]:
    """Groups whose nodes need the plugin, and do not bring it."""
    return [one for one in groups if plugin.resource in one.needs and not one.brings(plugin)]


def daemon_set(plugin: Plugin, groups: Sequence[GroupNodes], region: str) -> Object:
    """The plugin for the nodes of these groups: their taints are tolerated, and no other node is taken.

    EFA's plugin ends at once on a node that was launched without EFA: the groups, not their types alone, select nodes.
    """
    labels = {**LABELS, "app.kubernetes.io/name": plugin.name}
    spec = {
        "automountServiceAccountToken": False,
        "priorityClassName": "system-node-critical",
        "tolerations": tolerations(groups),
        "affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": _selection(groups)}},
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


def tolerations(groups: Sequence[GroupNodes]) -> list[Object]:
    """Tolerations of the taints of these groups, and of those that GPU nodes usually have."""
    usual: list[Object] = [
        {"key": "CriticalAddonsOnly", "operator": "Exists"},
        {"key": GPU, "operator": "Exists"},
    ]
    for text in sorted({text for one in groups for text in one.taints}):
        name, _, effect = text.rpartition(":")
        usual.append({"key": name.partition("=")[0], "operator": "Exists", "effect": effect})
    return usual


def _selection(groups: Sequence[GroupNodes]) -> Object:
    rules = {
        GROUP_LABEL: sorted({one.group for one in groups}),
        TYPE_LABEL: sorted({one.instance_type for one in groups}),
    }
    expressions = [{"key": key, "operator": "In", "values": values} for key, values in rules.items()]
    return {"nodeSelectorTerms": [{"matchExpressions": expressions}]}


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
    suffix = "amazonaws.com.cn" if region.startswith("cn-") else "amazonaws.com"
    image = plugin.image.format(account=REGISTRIES.get(region, REGISTRY), region=region, suffix=suffix)
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
    meta = item["metadata"]
    has_labels = LABELS.items() <= (meta.get("labels") or {}).items()
    return has_labels and (meta["namespace"], meta["name"]) == (NAMESPACE, plugin.name)


def of_others(plugin: Plugin, daemon_sets: Sequence[Object]) -> list[Object]:
    """DaemonSets of others with the plugin, by the names of their images."""
    return [one for one in daemon_sets if not is_ours(plugin, one) and _holds(plugin, one)]


def _holds(plugin: Plugin, item: Object) -> bool:
    if (item["metadata"]["namespace"], item["metadata"]["name"]) == (NAMESPACE, plugin.name):
        return True  # of our name, without our label
    images = [str(one.get("image")) for one in item["spec"]["template"]["spec"].get("containers") or ()]
    return any(word in image for image in images for word in plugin.image_parts)


def title(item: Object) -> str:
    """Name of a DaemonSet with its namespace and the tags of its images, for people."""
    containers = item["spec"]["template"]["spec"].get("containers") or ()
    tags = [str(one.get("image")).partition("@")[0].rpartition("/")[2] for one in containers]
    return f"DaemonSet {item['metadata']['namespace']}/{item['metadata']['name']} ({', '.join(tags)})"


def offered(node: Mapping[str, Any], resource: str) -> int:
    """Number that a node offers to pods; 0 if it offers none."""
    text = str(((node.get("status") or {}).get("allocatable") or {}).get(resource, "0"))
    return int(text) if text.isdigit() else 0
