"""Assign local ports to pods, at the start and as pods come and go. Pure: the machine is not consulted."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from gpuctl.core.errors import InvalidInput
from gpuctl.kube.forward.model import Ports, Request, Slot
from gpuctl.kube.model import Pod

Free = Callable[[int], bool]
LAST = 65535


def local_ports(first: int, count: int, free: Free, taken: Sequence[int] = ()) -> list[int]:
    """Return the next `count` ports from `first` on that are free and not taken by another slot."""
    ports: list[int] = []
    for port in range(first, LAST + 1):
        if len(ports) == count:
            break
        if port not in taken and free(port):
            ports.append(port)
    if len(ports) < count:
        raise InvalidInput(
            "plan the local ports", f"from {first} on, fewer than {count} are free", "use a lower --from"
        )
    return ports


def slots(request: Request, pods: Sequence[Pod], free: Free) -> list[Slot]:
    """Return a slot for each pod that can be forwarded now."""
    if request.pod:
        return _of_one(request, pods, free)
    return follow(request, [], pods, free)


def _of_one(request: Request, pods: Sequence[Pod], free: Free) -> list[Slot]:
    """Return one slot, or one per port, so that restarting an unresponsive port interrupts no other."""
    requested = request.local or [0] * len(request.remote)
    for port in requested:
        if port and not free(port):
            raise InvalidInput(f"forward local port {port}", "it is already in use", "choose another port")
    ports: list[int] = []
    for local, remote in zip(requested, request.remote, strict=True):
        ports.append(
            local or local_ports(remote if remote >= 1024 else remote + 8000, 1, free, [*requested, *ports])[0]
        )
    pod = next((p for p in pods if p.name == request.pod and p.serves), None)
    pairs = tuple(zip(ports, request.remote, strict=True))
    groups: list[Ports] = [(pair,) for pair in pairs] if request.apart else [pairs]
    return [Slot(group, request.pod, pod.uid if pod else "") for group in groups]


def follow(request: Request, now: Sequence[Slot], pods: Sequence[Pod], free: Free) -> list[Slot]:
    """Update the slots: a replaced pod's slot goes to its successor, an additional pod gets new ports."""
    serving = [pod for pod in pods if pod.serves]
    by_uid = {pod.uid: pod for pod in serving}
    served = {slot.uid for slot in now if slot.uid in by_uid}
    waiting = [pod for pod in serving if pod.uid not in served]
    followed: list[Slot] = []
    for slot in now:
        if slot.uid in served:
            followed.append(slot)
            continue
        heir = _heir(slot, waiting, {other.pod for other in now})
        if heir is not None and not request.pod:  # all slots of one pod move together
            waiting.remove(heir)
        followed.append(replace(slot, pod=heir.name, uid=heir.uid) if heir else replace(slot, uid=""))
    return followed if request.pod else followed + _more(request, followed, waiting, free)


def heirs(pod: Pod) -> str:
    """Return the label selector of possible replacements for a named pod; empty if only the name identifies it.

    A StatefulSet pod returns under its own name; its siblings are different members.
    """
    if not pod.owner or pod.owner == "StatefulSet" or "statefulset.kubernetes.io/pod-name" in pod.labels:
        return ""
    return ",".join(f"{name}={value}" for name, value in sorted(pod.shared_labels.items()))


def _heir(slot: Slot, waiting: Sequence[Pod], names: set[str]) -> Pod | None:
    """Return the pod with the same name (StatefulSet), else a pod that no other slot names."""
    same = next((pod for pod in waiting if pod.name == slot.pod), None)
    ready_first = sorted(waiting, key=lambda pod: (not pod.ready, pod.name))
    return same or next((pod for pod in ready_first if pod.name not in names), None)


def _more(request: Request, known: Sequence[Slot], pods: Sequence[Pod], free: Free) -> list[Slot]:
    taken = [local for slot in known for local, _ in slot.ports]
    added = []
    for pod in pods:
        local = local_ports(request.first, len(request.remote), free, taken)
        taken += local
        ports: Ports = tuple(zip(local, request.remote, strict=True))
        added.append(Slot(ports, pod.name, pod.uid))
    return added
