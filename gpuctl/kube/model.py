"""Pods, reduced to what the workstation commands need, read from API objects."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from gpuctl.core.errors import GpuctlError
from gpuctl.domain.pod_status import INITIALIZING

# Labels of the individual pod: its replacement has other values.
CONTROLLER_LABELS = frozenset(
    {
        "pod-template-hash",
        "controller-revision-hash",
        "pod-template-generation",
        "statefulset.kubernetes.io/pod-name",
        "apps.kubernetes.io/pod-index",
    }
)


@dataclass(frozen=True)
class Container:
    """A container; `why` is the reason of its waiting or terminated state, empty while it runs."""

    name: str
    ports: Sequence[int] = ()
    restarts: int = 0
    why: str = ""
    exit_code: int | None = None
    last_why: str = ""  # reason of the previous termination


@dataclass(frozen=True)
class Pod:
    """A pod; `owner` is the kind of its controller, if any; `leaving` means that it is being deleted.

    `init_containers` run before `containers`, one after the other.
    """

    name: str
    namespace: str
    uid: str
    phase: str
    ready: bool
    leaving: bool = False
    owner: str = ""
    node: str = ""
    since: str = ""
    labels: Mapping[str, str] = field(default_factory=dict)
    containers: Sequence[Container] = ()
    init_containers: Sequence[Container] = ()

    @property
    def serves(self) -> bool:
        """True if its ports can be forwarded."""
        return self.phase == "Running" and not self.leaving

    @property
    def status(self) -> str:
        """Return the status as `kubectl get pods` shows it."""
        if self.leaving:
            return "Terminating"
        if self.failing_init is not None:
            return f"Init:{self.failing_init.why}"
        return next((c.why for c in self.containers if c.why), self.phase)

    @property
    def failing_init(self) -> Container | None:
        """Return the init container that keeps the others from starting, if one failed or waits for a reason."""
        reasons = ("", INITIALIZING, "Completed")
        return next((c for c in self.init_containers if c.why not in reasons), None)

    @property
    def restarts(self) -> int:
        return sum(c.restarts for c in (*self.init_containers, *self.containers))

    @property
    def shared_labels(self) -> Mapping[str, str]:
        """Return the labels that a replacement pod has as well."""
        return {name: value for name, value in self.labels.items() if name not in CONTROLLER_LABELS}


def pod(item: Mapping[str, Any]) -> Pod:
    """Parse a pod object; `GpuctlError` if it is malformed."""
    try:
        return _pod(item)
    except (KeyError, TypeError, AttributeError) as error:
        raise GpuctlError("read a pod", f"the cluster's answer is not a pod: {error!r}") from error


def _pod(item: Mapping[str, Any]) -> Pod:
    meta, spec, status = item["metadata"], item["spec"], item.get("status") or {}
    kinds = ("containerStatuses", "initContainerStatuses")
    statuses = {item["name"]: item for kind in kinds for item in status.get(kind) or ()}
    conditions = {item["type"]: item["status"] for item in status.get("conditions") or ()}
    return Pod(
        name=meta["name"],
        namespace=meta["namespace"],
        uid=meta["uid"],
        phase=status.get("phase", "Unknown"),
        ready=conditions.get("Ready") == "True",
        leaving="deletionTimestamp" in meta,
        owner=next((owner.get("kind", "") for owner in meta.get("ownerReferences") or ()), ""),
        node=spec.get("nodeName", ""),
        since=status.get("startTime") or meta.get("creationTimestamp", ""),
        labels=meta.get("labels") or {},
        containers=[_container(item, statuses.get(item["name"], {})) for item in spec["containers"]],
        init_containers=[_container(item, statuses.get(item["name"], {})) for item in spec.get("initContainers") or ()],
    )


def _container(spec: Mapping[str, Any], status: Mapping[str, Any]) -> Container:
    state = status.get("state") or {}
    terminated = state.get("terminated") or {}
    before = (status.get("lastState") or {}).get("terminated") or {}
    return Container(
        name=spec["name"],
        ports=[int(port["containerPort"]) for port in spec.get("ports") or () if port.get("protocol", "TCP") == "TCP"],
        restarts=int(status.get("restartCount", 0)),
        why=(state.get("waiting") or terminated).get("reason", ""),
        exit_code=terminated.get("exitCode"),
        last_why=before.get("reason", ""),
    )


def pods(pod_list: Mapping[str, Any]) -> list[Pod]:
    """Parse a pod list, sorted by namespace and name."""
    return sorted((pod(item) for item in pod_list.get("items") or ()), key=lambda p: (p.namespace, p.name))


def with_problems(pods: Sequence[Pod]) -> list[Pod]:
    """Return the pods that are neither ready nor finished."""
    return [pod for pod in pods if not pod.ready and pod.phase != "Succeeded"]
