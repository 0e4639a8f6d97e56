"""Turn the arguments of `gpuctl kube forward` into a request."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from gpuctl.core.errors import InvalidInput
from gpuctl.kube.forward import saved
from gpuctl.kube.forward.model import Request
from gpuctl.kube.forward.wizard import ask
from gpuctl.kube.pod import Where, kubectl_for

DOING = "forward"


@dataclass(frozen=True)
class Typed:
    """The arguments and options of `gpuctl kube forward`."""

    pod: str = ""
    ports: Sequence[str] = ()
    selector: str = ""
    first: int | None = None
    remote: Sequence[int] = ()
    kept: str = ""
    wizard: bool = False
    where: Where = field(default_factory=Where)


def request(typed: Typed) -> Request | None:
    """Build the request; None if the user cancelled the wizard."""
    if sum(map(bool, (typed.pod, typed.selector, typed.kept, typed.wizard))) != 1:
        hint = "see `gpuctl kube forward --help`"
        raise InvalidInput(DOING, "use exactly one of POD, -l, --set and --wizard", hint)
    if typed.kept:
        return _on_current(saved.load(typed.kept), typed.where)
    if typed.wizard:
        return ask(kubectl_for(typed.where))
    return _one(typed) if typed.pod else _many(typed)


def _one(typed: Typed) -> Request:
    if typed.first or typed.remote:
        raise InvalidInput(DOING, "--from and --to need -l", f"`gpuctl kube forward {typed.pod} 8081:8080`")
    kube = kubectl_for(typed.where)
    return of_pod(typed.pod, typed.ports, kube.context, kube.namespace)


def _many(typed: Typed) -> Request:
    if typed.first is None or not typed.remote:
        hint = f"`gpuctl kube forward -l {typed.selector} --from 8081 --to 8080`"
        raise InvalidInput(DOING, "-l needs --from and --to", hint)
    kube = kubectl_for(typed.where)
    ports = tuple(typed.remote)
    return Request(ports, typed.selector, first=typed.first, context=kube.context, namespace=kube.namespace)


def of_pod(pod: str, ports: Sequence[str], context: str, namespace: str) -> Request:
    """Build the request for one pod; each port is written as [LOCAL:]REMOTE."""
    if not ports:
        hint = f"`gpuctl kube forward {pod} 8081:8080`"
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
        raise InvalidInput(DOING, f"{text!r} is no port", "write 8080, or 8081:8080")
    return local, remote


def _on_current(known: Request, where: Where) -> Request:
    """Return a saved request for its own context and namespace, or for the ones given as options."""
    kube = kubectl_for(Where(where.context or known.context, where.namespace or known.namespace))
    return replace(known, context=kube.context, namespace=kube.namespace)
