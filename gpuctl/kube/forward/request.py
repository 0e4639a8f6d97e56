"""Turn the arguments of `gpuctl kube forward` into a request."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from gpuctl.core.errors import InvalidInput
from gpuctl.kube.forward import saved
from gpuctl.kube.forward.model import Request
from gpuctl.kube.forward.wizard import choose_request
from gpuctl.kube.pod import Scope, kubectl_for

DOING = "forward"


@dataclass(frozen=True)
class ForwardArguments:
    """The arguments and options of `gpuctl kube forward`."""

    pod: str = ""
    ports: Sequence[str] = ()
    selector: str = ""
    first: int | None = None
    remote: Sequence[int] = ()
    saved_name: str = ""
    wizard: bool = False
    scope: Scope = field(default_factory=Scope)


def request(arguments: ForwardArguments) -> Request | None:
    """Build the request; None if the user cancelled the wizard."""
    if sum(map(bool, (arguments.pod, arguments.selector, arguments.saved_name, arguments.wizard))) != 1:
        hint = "see `gpuctl kube forward --help`"
        raise InvalidInput(DOING, "use exactly one of POD, -l, --set and --wizard", hint)
    if arguments.saved_name:
        return _in_scope(saved.load(arguments.saved_name), arguments.scope)
    if arguments.wizard:
        return choose_request(kubectl_for(arguments.scope))
    return _one(arguments) if arguments.pod else _many(arguments)


def _one(arguments: ForwardArguments) -> Request:
    if arguments.first or arguments.remote:
        raise InvalidInput(DOING, "--from and --to need -l", f"use `gpuctl kube forward {arguments.pod} 8081:8080`")
    kube = kubectl_for(arguments.scope)
    return of_pod(arguments.pod, arguments.ports, kube.context, kube.namespace)


def _many(arguments: ForwardArguments) -> Request:
    if arguments.first is None or not arguments.remote:
        hint = f"use `gpuctl kube forward -l {arguments.selector} --from 8081 --to 8080`"
        raise InvalidInput(DOING, "-l needs --from and --to", hint)
    kube = kubectl_for(arguments.scope)
    ports = tuple(arguments.remote)
    return Request(ports, arguments.selector, first=arguments.first, context=kube.context, namespace=kube.namespace)


def of_pod(pod: str, ports: Sequence[str], context: str, namespace: str) -> Request:
    """Build the request for one pod; each port is written as [LOCAL:]REMOTE."""
    if not ports:
        hint = f"use `gpuctl kube forward {pod} 8081:8080`"
        raise InvalidInput(f"forward the pod {pod}", "no ports given, and it declares none", hint)
    pairs = [_pair(text) for text in ports]
    locals_ = [local for local, _ in pairs if local]
    if len(set(locals_)) < len(locals_):
        raise InvalidInput(f"forward the pod {pod}", "a local port appears twice")
    remote, local = tuple(r for _, r in pairs), tuple(number for number, _ in pairs)
    return Request(remote, pod=pod, local=local, context=context, namespace=namespace)


def _pair(text: str) -> tuple[int, int]:
    match = re.fullmatch(r"(?:(\d{1,5}):)?(\d{1,5})", text)
    local, remote = (int(match[1] or 0), int(match[2])) if match else (0, 0)
    if not 1 <= remote <= 65535 or local > 65535:
        raise InvalidInput(DOING, f"{text!r} is not a port", "write 8080, or 8081:8080")
    return local, remote


def _in_scope(request: Request, scope: Scope) -> Request:
    """Return a saved request for its own context and namespace, or for the ones given as options."""
    kube = kubectl_for(Scope(scope.context or request.context, scope.namespace or request.namespace))
    return replace(request, context=kube.context, namespace=kube.namespace)
