"""Forwards to a pod of an environment: from the ports of the cluster file to what gpuctl.kube forwards."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace

from gpuctl.cluster import pod_selection
from gpuctl.cluster.clusterfile.model import Ports
from gpuctl.cluster.shell.flow import Door
from gpuctl.core.errors import InvalidInput
from gpuctl.edges.kube.errors import Forbidden
from gpuctl.kube.forward.model import Request
from gpuctl.kube.forward.state_machine import Line

BROWSED = ("vscode", "jupyter", "tensorboard")
NAMED = (*BROWSED, "debug")
# debugpy takes one client at a time, and a probe would be one.
UNPROBED = ("debug",)
DOING = "forward"


@dataclass(frozen=True)
class Wish:
    """A port of the pod; `local` 0: the same here, or the next that is free. `name` "" where the file has none."""

    remote: int
    local: int = 0
    name: str = ""


def wishes(words: Sequence[str], ports: Ports) -> list[Wish]:
    """From NAME, PORT, LOCAL:PORT or LOCAL:NAME; without words what is reached by a browser. All mistakes at once."""
    found, wrong = [], []
    for word in words or BROWSED:
        wish = _wish(word, ports)
        if isinstance(wish, str):
            wrong.append(wish)
        else:
            found.append(wish)
    twice = [str(each.local) for number, each in enumerate(found) if _taken(each, found[:number])]
    wrong += [f"the local port {port} is given twice" for port in twice]
    if wrong:
        hint = f"write one of {', '.join(NAMED)}, or a port such as 8080 or 9090:8080"
        raise InvalidInput(DOING, "; ".join(wrong), hint)
    return list(dict.fromkeys(found))


def _taken(wish: Wish, before: Sequence[Wish]) -> bool:
    return bool(wish.local) and any(each.local == wish.local and each != wish for each in before)


def _wish(word: str, ports: Ports) -> Wish | str:
    """What a word asks for, or what is wrong with it."""
    local, _, what = word.rpartition(":")
    if local and not _is_port(local):
        return f"{local!r} is no port"
    if what in NAMED:
        return Wish(getattr(ports, what), int(local or 0), what)
    if not _is_port(what):
        return f"{what!r} is neither a port nor the name of one"
    named = next((each for each in NAMED if getattr(ports, each) == int(what)), "")
    return Wish(int(what), int(local or 0), named)


def _is_port(text: str) -> bool:
    return bool(re.fullmatch(r"\d{1,5}", text)) and 1 <= int(text) <= 65535


def request(door: Door, asked: Sequence[Wish], rank: int = 0) -> Request:
    """The same as a request for one pod, which has to be there; it may not run yet, or be replaced meanwhile."""
    doing = f"{DOING} ports of {door.env.name}"
    pod = pod_selection.pod_of_rank(door.cluster, door.env, doing, rank)
    ports = replace(door.cluster.kind("v1", "Pod"), plural="pods/portforward")
    # kubectl asks by POST, or newer ones by GET over a WebSocket.
    if not any(door.cluster.may(verb, ports) for verb in ("create", "get")):
        wrong = f"you may not forward ports of pods in the namespace {door.env.namespace}"
        raise Forbidden(doing, wrong, "ask for a role that allows get and create of pods/portforward")
    return Request(
        tuple(each.remote for each in asked),
        pod=pod_selection.name_of(pod),
        local=tuple(each.local for each in asked),
        context=door.context,
        namespace=door.env.namespace,
        unprobed=tuple(each.remote for each in asked if each.name in UNPROBED),
        apart=True,
    )


def addresses(lines: Sequence[Line], asked: Sequence[Wish]) -> list[str]:
    """Where each is reached here, by its name."""
    found = []
    local_of = [local for line in lines for local, _ in line.slot.ports]
    for each, local in zip(asked, local_of, strict=False):
        at = f"http://127.0.0.1:{local}" if each.name in BROWSED else f"127.0.0.1:{local}"
        moved = f" (the local port {each.remote} is taken)" if not each.local and local != each.remote >= 1024 else ""
        found.append(f"{each.name or each.remote}: {at}{moved}")
    return found
