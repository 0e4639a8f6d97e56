"""Actions on a selected pod: shell, logs, describe, ports."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass, replace

from gpuctl.core.errors import InvalidInput
from gpuctl.edges.kube import config, kubectl
from gpuctl.edges.kube.kubectl import Kubectl
from gpuctl.kube import choose, model, pod_logs, popup, selected_pod
from gpuctl.kube.selected_pod import SelectedPod

LINES = 200  # of a log, before it is followed
# bash if the container has it, else sh.
SHELL = ("sh", "-c", "if command -v bash >/dev/null 2>&1; then exec bash; else exec sh; fi")


@dataclass(frozen=True)
class Scope:
    """The context and namespace of a command; empty for the kubeconfig's current ones."""

    context: str = ""
    namespace: str = ""
    all_namespaces: bool = False


@dataclass(frozen=True)
class PodRequest:
    """The pod to act on: the named one, else the selected one; `choose` asks the user even if one is selected."""

    scope: Scope
    name: str = ""
    container: str = ""
    choose: bool = False


def kubectl_for(scope: Scope) -> Kubectl:
    """Return a kubectl with explicit context and namespace, unaffected by later switches."""
    paths = config.files()
    now = config.current(*paths)
    name = scope.context or (now.name if now else "")
    contexts = {c.name: c for c in config.contexts(*paths)}
    if scope.context and scope.context not in contexts:
        raise InvalidInput(
            f"use the context {scope.context}", "the kubeconfig has no context of that name", "`kctx` shows them"
        )
    return Kubectl(name, scope.namespace or (contexts[name].namespace if name in contexts else "default"))


def current() -> str:
    """Return the name of the current context."""
    active = config.current(*config.files())
    return active.name if active else ""


def choose_pod(scope: Scope) -> SelectedPod | None:
    """Let the user choose a pod and container, and remember them; None if they cancel."""
    kube = kubectl_for(scope)
    chosen = choose.pod(kube, scope.all_namespaces)
    container = choose.container(chosen) if chosen else None
    if chosen is None or container is None:
        return None
    return select(SelectedPod(kube.context, chosen.namespace, chosen.name, container))


def find(request: PodRequest) -> SelectedPod | None:
    """Return the requested pod; None if the user cancels the choice."""
    if request.name:
        return named(request.name, request.scope, request.container)
    return choose_pod(request.scope) if request.choose else _selected(request.scope)


def select(pod: SelectedPod) -> SelectedPod:
    """Remember a pod for the tmux keys."""
    selection = replace(pod, current=current())
    selected_pod.remember(config.files(), selection)
    return selection


def _selected(scope: Scope) -> SelectedPod | None:
    """Return the selected pod if it still exists; else let the user choose."""
    remembered = selected_pod.recall(config.files(), current())
    if remembered is not None and _exists(remembered):
        return remembered
    return choose_pod(scope)


def named(name: str, scope: Scope, container: str = "") -> SelectedPod:
    """Return the pod with this name, without looking it up."""
    kube = kubectl_for(scope)
    return SelectedPod(kube.context, kube.namespace, name, container)


def _exists(pod: SelectedPod) -> bool:
    code, _, err = _kubectl(pod).try_to("get", "pod", pod.pod, "-o", "name", "--request-timeout=10s")
    if code and "NotFound" not in err:
        raise kubectl.failure(f"look for the pod {pod.pod}", err, pod.context)
    return code == 0


def _kubectl(pod: SelectedPod) -> Kubectl:
    return Kubectl(pod.context, pod.namespace)


def _container(pod: SelectedPod) -> tuple[str, ...]:
    return ("--container", pod.container) if pod.container else ()


def shell(pod: SelectedPod) -> int:
    """Open a shell in the container."""
    argv = _kubectl(pod).argv("exec", "--stdin", "--tty", pod.pod, *_container(pod), "--", *SHELL)
    return kubectl.show(argv)


def logs(pod: SelectedPod) -> int:
    """Show the last lines of the log and follow it across restarts."""
    return pod_logs.follow(pod, LINES, lambda line: sys.stderr.write(f"\n-- {line}\n"))


def problems(scope: Scope) -> list[model.Pod]:
    """List pods that are neither ready nor finished, such as those in CrashLoopBackOff, whose phase is Running."""
    kube = kubectl_for(scope)
    where = ("--all-namespaces",) if scope.all_namespaces else ()
    return model.with_problems(model.pods(kube.json("list the pods", "get", "pods", *where)))


def describe(pod: SelectedPod) -> int:
    """Show `kubectl describe` of the pod; in a popup, until the user closes it."""
    show = popup.show if popup.is_popup() else kubectl.show
    return show(_kubectl(pod).argv("describe", "pod", pod.pod))


def ports(pod: SelectedPod) -> list[int]:
    """List the ports that the pod declares."""
    target = model.pod(_kubectl(pod).json(f"read the pod {pod.pod}", "get", "pod", pod.pod))
    return [port for container in target.containers for port in container.ports]


@dataclass(frozen=True)
class Action:
    """An action on a pod; `window`: the name of the command `gpuctl kube pod NAME`, if it is too long for a popup."""

    run: Callable[[SelectedPod], int]
    window: str = ""


ACTIONS = {
    "exec: open a shell in it": Action(shell, window="shell"),
    "logs: show and follow": Action(logs, window="logs"),
    "describe: state and events": Action(describe),
}


def act(action: Action, pod: SelectedPod) -> int:
    """Run an action; one that lasts leaves a popup for a window, as a popup blocks tmux."""
    options = [("--context", pod.context), ("--namespace", pod.namespace), ("--container", pod.container)]
    words = [word for option in options if option[1] for word in option]
    if action.window and popup.open_window(action.window, ["pod", action.window, pod.pod, *words]):
        return 0
    return action.run(pod)
