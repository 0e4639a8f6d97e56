"""Build a forward request interactively: pods, ports, first local port."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from gpuctl.core.errors import GpuctlError, InvalidInput
from gpuctl.edges.kube.kubectl import Kubectl, fzf
from gpuctl.kube import choose
from gpuctl.kube.forward import saved
from gpuctl.kube.forward.model import Request
from gpuctl.kube.model import Pod


def choose_request(kubectl: Kubectl) -> Request | None:
    """Return the request that the user chose; None if they cancelled."""
    pods = [pod for pod in choose.list_pods(kubectl) if pod.serves]
    if not pods and not saved.names():
        raise GpuctlError(
            "forward", f"no pod is running in the namespace {kubectl.namespace}", "`kns` switches the namespace"
        )
    picked = choose.pick(offers(pods, saved.names()), "forward", "--delimiter=\t")
    if picked is None:
        return None
    kind, name = picked.split("\t")[:2]
    if kind == "saved":
        return saved.load(name)
    chosen = [pod for pod in pods if (pod.name == name if kind == "pod" else _has(pod, name))]
    remote = _port("port of the pod", declared(chosen))
    local = _port("first local port", _near(remote)) if remote else None
    if remote is None or local is None:
        return None
    scope = {"context": kubectl.context, "namespace": kubectl.namespace}
    if kind == "pod":
        return Request((remote,), pod=name, local=(local,), **scope)  # type: ignore[arg-type]
    return Request((remote,), selector=name, first=local, **scope)  # type: ignore[arg-type]


def offers(pods: Sequence[Pod], saved_names: Sequence[str]) -> list[str]:
    """List the choices: saved requests, labels shared by several pods, and single pods."""
    labels = Counter(f"{name}={value}" for pod in pods for name, value in pod.shared_labels.items())
    shared = sorted(labels.items(), key=lambda item: (-item[1], item[0]))
    return [
        *(f"saved\t{name}\t" for name in saved_names),
        *(f"label\t{label}\tall {count} pods" for label, count in shared if count > 1),
        *(f"pod\t{pod.name}\tport {', '.join(map(str, declared([pod]))) or '?'}" for pod in pods),
    ]


def declared(pods: Sequence[Pod]) -> list[int]:
    """List the ports that these pods declare."""
    return sorted({port for pod in pods for container in pod.containers for port in container.ports})


def _has(pod: Pod, label: str) -> bool:
    name, _, value = label.partition("=")
    return pod.labels.get(name) == value


def _near(remote: int) -> list[int]:
    return (
        list(dict.fromkeys([remote + 1, remote, remote + 1000])) if remote >= 1024 else [remote + 8000, remote + 9000]
    )


def _port(what: str, offered: Sequence[int]) -> int | None:
    """Choose a port, or type one."""
    lines = [str(port) for port in offered]
    header = "Enter accepts the marked one; or type another and press Enter"
    options = ("--print-query", "--exact", "--reverse", f"--prompt={what}> ", f"--header={header}")
    output = [line for line in fzf(lines, *options) if line.strip()]
    if not output:
        return None
    if not output[-1].isdigit() or not 1 <= int(output[-1]) <= 65535:
        raise InvalidInput(f"forward the {what}", f"{output[-1]!r} is not a port")
    return int(output[-1])
