"""Actions on a selected pod: shell, logs, describe, ports."""

from __future__ import annotations

from dataclasses import dataclass, replace

from gpuctl.core.errors import GpuctlError, InvalidInput
from gpuctl.edges.kube import config, kubectl
from gpuctl.edges.kube.kubectl import Kubectl
from gpuctl.kube import choose, model, selected_pod
from gpuctl.kube.selected_pod import Chosen

# bash if the container has it, else sh.
SHELL = ("sh", "-c", "if command -v bash >/dev/null 2>&1; then exec bash; else exec sh; fi")


@dataclass(frozen=True)
class Where:
    """The context and namespace to use; empty for the kubeconfig's current ones."""

    context: str = ""
    namespace: str = ""
    everywhere: bool = False


def kubectl_for(where: Where) -> Kubectl:
    """Return a kubectl with explicit context and namespace, unaffected by later switches."""
    paths = config.files()
    now = config.current(*paths)
    name = where.context or (now.name if now else "")
    known = {c.name: c for c in config.contexts(*paths)}
    if where.context and where.context not in known:
        raise InvalidInput(
            f"use the context {where.context}", "the kubeconfig has no context of that name", "`kctx` shows them"
        )
    return Kubectl(name, where.namespace or (known[name].namespace if name in known else "default"))


def current() -> str:
    """Return the name of the current context."""
    active = config.current(*config.files())
    return active.name if active else ""


def ask(where: Where) -> Chosen | None:
    """Let the user choose a pod and container, and remember them; None if they cancel."""
    kube = kubectl_for(where)
    chosen = choose.pod(kube, where.everywhere)
    container = choose.container(chosen) if chosen else None
    if chosen is None or container is None:
        return None
    return select(Chosen(kube.context, chosen.namespace, chosen.name, container))


def select(pod: Chosen) -> Chosen:
    """Remember a pod for the tmux keys."""
    known = replace(pod, current=current())
    selected_pod.remember(config.files(), known)
    return known


def last(where: Where) -> Chosen | None:
    """Return the selected pod if it still exists; else let the user choose."""
    remembered = selected_pod.recall(config.files(), current())
    if remembered is not None and _is_there(remembered):
        return remembered
    return ask(where)


def named(name: str, where: Where, container: str = "") -> Chosen:
    """Return the pod with this name, without looking it up."""
    kube = kubectl_for(where)
    return Chosen(kube.context, kube.namespace, name, container)


def _is_there(pod: Chosen) -> bool:
    code, _, err = _on(pod).try_to("get", "pod", pod.pod, "-o", "name", "--request-timeout=10s")
    if code and "NotFound" not in err:
        raise GpuctlError(f"look for the pod {pod.pod}", err.strip() or "kubectl failed")
    return code == 0


def _on(pod: Chosen) -> Kubectl:
    return Kubectl(pod.context, pod.namespace)


def _container(pod: Chosen) -> tuple[str, ...]:
    return ("--container", pod.container) if pod.container else ()


def shell(pod: Chosen) -> int:
    """Open a shell in the container."""
    argv = _on(pod).argv("exec", "--stdin", "--tty", pod.pod, *_container(pod), "--", *SHELL)
    return kubectl.show(argv)


def logs(pod: Chosen, follow: bool = True, lines: int = 200) -> int:
    """Show the last lines of the log and follow it."""
    more = ("--follow",) if follow else ()
    return kubectl.show(_on(pod).argv("logs", pod.pod, *_container(pod), f"--tail={lines}", *more))


def describe(pod: Chosen) -> int:
    """Show `kubectl describe` of the pod."""
    return kubectl.show(_on(pod).argv("describe", "pod", pod.pod))


def ports(pod: Chosen) -> list[int]:
    """List the ports that the pod declares."""
    target = model.pod(_on(pod).json(f"read the pod {pod.pod}", "get", "pod", pod.pod))
    return [port for container in target.containers for port in container.ports]


ACTIONS = {
    "exec: open a shell in it": shell,
    "logs: show and follow": logs,
    "describe: state and events": describe,
}
