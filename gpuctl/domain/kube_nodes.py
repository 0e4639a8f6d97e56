"""States of Kubernetes nodes as the API has them: conditions of kubelet and monitors, cordons, offered GPUs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from gpuctl.core.text import plural
from gpuctl.domain.findings import Finding, fail, warn

CHECK = "kubernetes-state"
# Labels by which device plugins, feature discovery and clouds mark a node with NVIDIA's GPUs, and their values.
GPU_LABELS = {
    "nvidia.com/gpu.present": ("true",),
    "feature.node.kubernetes.io/pci-10de.present": ("true",),
    "feature.node.kubernetes.io/pci-0300_10de.present": ("true",),
    "feature.node.kubernetes.io/pci-0302_10de.present": ("true",),
    "nvidia.com/gpu.product": (),
    "cloud.google.com/gke-accelerator": (),
    "k8s.amazonaws.com/accelerator": (),
}
EFA, HUGE_PAGES = "vpc.amazonaws.com/efa", "hugepages-2Mi"
GPU, SHARED, MIG = "nvidia.com/gpu", "nvidia.com/gpu.shared", "nvidia.com/mig-"
# The kubelet's condition. Names with this end, as AcceleratedHardwareReady of EKS, are good when True.
READY = "Ready"
NONE_OFFERED = "its labels name GPUs, and it offers none to pods"
PLUGIN_HINT = "kubectl get pods -A -o wide --field-selector spec.nodeName={node}: does the GPU device plugin run there?"


def gpus(resources: Mapping[str, Any] | None) -> int:
    """Whole GPUs, time slices and MIG devices among a node's or container's resources."""
    listed = (resources or {}).items()
    return sum(_whole(value) for name, value in listed if name in (GPU, SHARED) or name.startswith(MIG))


def _whole(value: object) -> int:
    text = str(value)
    return int(text) if text.isdigit() else 0


def adapters(resources: Mapping[str, Any] | None) -> int:
    """EFA adapters among a node's resources."""
    return _whole((resources or {}).get(EFA, 0))


def gpus_of_pod(pod: Mapping[str, Any]) -> int:
    """GPUs and MIG devices of a pod: of its containers and sidecars, or of an init container if it has more."""
    spec = pod["spec"]
    init = spec.get("initContainers") or []
    sidecars = sum(_requested(one) for one in init if one.get("restartPolicy") == "Always")
    main = sum(_requested(one) for one in spec.get("containers") or [])
    return max([main + sidecars, *(_requested(one) for one in init)])


def _requested(container: Mapping[str, Any]) -> int:
    resources = container.get("resources") or {}
    return gpus({**(resources.get("limits") or {}), **(resources.get("requests") or {})})


def has_gpus(node: Mapping[str, Any]) -> bool:
    """True if a node offers GPUs, or has a label of a node with NVIDIA's GPUs: its device plugin may be down."""
    status, labels = node.get("status") or {}, node["metadata"].get("labels") or {}
    if gpus(status.get("capacity")) or gpus(status.get("allocatable")):
        return True
    return any(name in labels and (not values or labels[name] in values) for name, values in GPU_LABELS.items())


def findings(node: Mapping[str, Any]) -> Iterator[Finding]:
    """FAIL for a node that does not serve or withholds GPUs, WARN for pressure, monitors and cordons."""
    name, status = node["metadata"]["name"], node.get("status") or {}
    conditions = {str(one.get("type")): one for one in status.get("conditions") or ()}
    ready = conditions.pop(READY, {})
    if ready.get("status") != "True":
        message = f"its kubelet is not ready: {reason(ready)}"
        yield fail(CHECK, name, message, "is the node up, and does its kubelet run? journalctl -u kubelet there")
    for kind, one in sorted(conditions.items()):
        if one.get("status") not in ("True", "False"):
            yield warn(CHECK, name, f"{kind} is unknown: {reason(one)}")
        elif (one["status"] == "True") != kind.endswith(READY):
            yield warn(CHECK, name, f"{kind} is {one['status']}: {reason(one)}", f"kubectl describe node {name}")
    if (node.get("spec") or {}).get("unschedulable"):
        yield warn(
            CHECK, name, "it is cordoned: no further pod starts there", f"kubectl uncordon {name}, once repaired"
        )
    present, offered = gpus(status.get("capacity")), gpus(status.get("allocatable"))
    if not present:
        yield fail(CHECK, name, NONE_OFFERED, PLUGIN_HINT.format(node=name))
    elif offered < present:
        message = f"the device plugin has withdrawn {present - offered} of {plural(present, 'GPU')} as unhealthy"
        yield fail(
            CHECK, name, message, "the other findings of the node tell which, and why", withdrawn=present - offered
        )


def reason(condition: Mapping[str, Any]) -> str:
    """Text for people of a condition that is not as it should be."""
    return str(condition.get("message") or condition.get("reason") or "no reason was given")
