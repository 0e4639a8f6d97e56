"""Forward ports of an environment's pod: from the ports of the cluster file to a request for gpuctl.kube."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace

from gpuctl.cluster import pod_selection
from gpuctl.cluster.access import PodAccess
from gpuctl.cluster.clusterfile.model import Ports
from gpuctl.core.errors import InvalidInput
from gpuctl.domain.kube_errors import Forbidden
from gpuctl.kube.forward.model import Request
from gpuctl.kube.forward.state_machine import Line

BROWSED = ("vscode", "jupyter", "tensorboard")
NAMED = (*BROWSED, "debug")
# debugpy takes one client at a time, and a probe would be one.
UNPROBED = ("debug",)
DOING = "forward"


@dataclass(frozen=True)
class PortRequest:
    """A port of the pod; `local` 0: the same number here, or the next free one. `name` "": not in the cluster file."""

    remote: int
    local: int = 0
    name: str = ""


def parse_ports(args: Sequence[str], ports: Ports) -> list[PortRequest]:
    """Parse NAME, PORT, LOCAL:PORT or LOCAL:NAME; without arguments the browser tools. All mistakes at once."""
    requests, wrong = [], []
    for arg in args or BROWSED:
        port = _parse(arg, ports)
        if isinstance(port, str):
            wrong.append(port)
        else:
            requests.append(port)
    twice = [str(port.local) for number, port in enumerate(requests) if _taken(port, requests[:number])]
    wrong += [f"the local port {port} is given twice" for port in twice]
    if wrong:
        hint = f"write one of {', '.join(NAMED)}, or a port such as 8080 or 9090:8080"
        raise InvalidInput(DOING, "; ".join(wrong), hint)
    return list(dict.fromkeys(requests))


def _taken(port: PortRequest, before: Sequence[PortRequest]) -> bool:
    return bool(port.local) and any(other.local == port.local and other != port for other in before)


def _parse(arg: str, ports: Ports) -> PortRequest | str:
    """Parse one argument; return the error as a text."""
    local, _, remote = arg.rpartition(":")
    if local and not _is_port(local):
        return f"{local!r} is not a port"
    if remote in NAMED:
        return PortRequest(getattr(ports, remote), int(local or 0), remote)
    if not _is_port(remote):
        return f"{remote!r} is neither a port nor the name of one"
    named = next((candidate for candidate in NAMED if getattr(ports, candidate) == int(remote)), "")
    return PortRequest(int(remote), int(local or 0), named)


def _is_port(text: str) -> bool:
    return bool(re.fullmatch(r"\d{1,5}", text)) and 1 <= int(text) <= 65535


def request(access: PodAccess, ports: Sequence[PortRequest], rank: int = 0) -> Request:
    """Build the request for one pod. It must exist; it may start later, and may be replaced."""
    doing = f"{DOING} ports of {access.env.name}"
    pod = pod_selection.pod_of_rank(access.cluster, access.env, doing, rank)
    forward_kind = replace(access.cluster.kind("v1", "Pod"), plural="pods/portforward")
    # kubectl uses POST, newer versions GET over a WebSocket.
    if not any(access.cluster.may(verb, forward_kind) for verb in ("create", "get")):
        wrong = f"not allowed to forward ports of pods in the namespace {access.env.namespace}"
        raise Forbidden(doing, wrong, "ask for a role that allows get and create of pods/portforward")
    return Request(
        tuple(port.remote for port in ports),
        pod=pod_selection.name_of(pod),
        local=tuple(port.local for port in ports),
        context=access.context,
        namespace=access.env.namespace,
        unprobed=tuple(port.remote for port in ports if port.name in UNPROBED),
        apart=True,
    )


def addresses(lines: Sequence[Line], ports: Sequence[PortRequest]) -> list[str]:
    """Describe the local address of each port."""
    texts = []
    local_of = [local for line in lines for local, _ in line.slot.ports]
    for port, local in zip(ports, local_of, strict=False):
        at = f"http://127.0.0.1:{local}" if port.name in BROWSED else f"127.0.0.1:{local}"
        moved = f" (the local port {port.remote} is taken)" if not port.local and local != port.remote >= 1024 else ""
        texts.append(f"{port.name or port.remote}: {at}{moved}")
    return texts
