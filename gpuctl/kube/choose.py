"""Choose a context, namespace, pod or container with fzf."""

from __future__ import annotations

import os
import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path

from gpuctl.core.errors import GpuctlError, InvalidInput
from gpuctl.core.settings import Settings
from gpuctl.edges.kube import config
from gpuctl.edges.kube.kubectl import Kubectl, fzf
from gpuctl.kube.model import Pod, pods

COLOURS = {"production": "\x1b[1;31m", "staging": "\x1b[1;33m", "development": "\x1b[1;32m", "": ""}
STYLE = ("--ansi", "--reverse", "--cycle", "--no-multi")


def pick(lines: Sequence[str], prompt: str, *more: str, preview: str = "", style: Sequence[str] = STYLE) -> str | None:
    """Return the chosen line, or None if the user cancelled; fzf matches and returns text without colours."""
    shown = ("--preview", preview, "--preview-window", "right:60%:wrap") if preview else ()
    selection = fzf(lines, *style, f"--prompt={prompt}> ", *shown, *more)
    return selection[0] if selection else None


def context(settings: Settings) -> str | None:
    """Choose one of the kubeconfig's contexts, coloured by stage."""
    paths = config.files()
    contexts = config.contexts(*paths)
    if not contexts:
        raise InvalidInput("choose a context", "the kubeconfig has none", "`kubectl config get-contexts` shows them")
    now = config.current(*paths)
    lines = [_context_line(c, c == now, settings) for c in contexts]
    line = pick(lines, "context", "--delimiter=\t", preview=_context_preview())
    return line.split("\t")[1] if line else None


def _context_line(entry: config.Context, current: bool, settings: Settings) -> str:
    stage = settings.stage(entry.name)
    colour, end = (COLOURS[stage], "\x1b[0m") if stage else ("", "")
    return f"{'*' if current else ' '}\t{colour}{entry.name}{end}\t{entry.namespace}\t{stage}"


def _context_preview() -> str:
    return (
        "kubectl config view --minify --context={2}; echo; "
        "kubectl --context={2} --request-timeout=3s get nodes 2>&1 | head -20"
    )


def namespace() -> str | None:
    """Choose one of the cluster's namespaces."""
    output = Kubectl().ask("list the namespaces", "get", "namespaces", "-o", "name", "--request-timeout=10s")
    names = [line.removeprefix("namespace/") for line in output.split()]
    return pick(names, "namespace", preview="kubectl --namespace={1} --request-timeout=5s get pods,services 2>&1")


def pod(kubectl: Kubectl, all_namespaces: bool = False) -> Pod | None:
    """Choose one of the namespace's pods."""
    candidates = list_pods(kubectl, all_namespaces)
    if not candidates:
        where = "in the cluster" if all_namespaces else f"in the namespace {kubectl.namespace}"
        raise GpuctlError("choose a pod", f"there is none {where}", "`kns` switches the namespace")
    by_line = dict(zip(pod_lines(candidates), candidates, strict=True))
    line = pick(list(by_line), "pod", "--delimiter= +", preview=_pod_preview(kubectl))
    return by_line[line] if line else None


def list_pods(kubectl: Kubectl, all_namespaces: bool = False, selector: str = "") -> list[Pod]:
    """List the pods of the namespace, or of all namespaces, that match a label selector."""
    options = (*(("--all-namespaces",) if all_namespaces else ()), *((f"--selector={selector}",) if selector else ()))
    return pods(kubectl.json("list the pods", "get", "pods", *options, "--request-timeout=15s"))


def pod_lines(candidates: Sequence[Pod]) -> list[str]:
    """Format pods in columns: namespace, name, status, restarts, node."""
    rows = [(p.namespace, p.name, p.status, f"{p.restarts} restarts" if p.restarts else "", p.node) for p in candidates]
    widths = [max(len(row[i]) for row in rows) for i in range(5)]
    return ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]


def _pod_preview(kubectl: Kubectl) -> str:
    on = f"--context={shlex.quote(kubectl.context)} " if kubectl.context else ""
    kube = f"kubectl {on}--namespace={{1}} --request-timeout=5s"
    return f"{kube} describe pod {{2}} 2>&1; echo; {kube} logs {{2}} --all-containers --tail=20 2>&1"


def container(chosen_pod: Pod) -> str | None:
    """Choose a container of the pod if it has several; None if the user cancelled."""
    if len(chosen_pod.containers) == 1:
        return chosen_pod.containers[0].name
    return pick([c.name for c in chosen_pod.containers], "container")


def folder_of_pane() -> str | None:
    """Return the current directory of the tmux pane that started us; None outside tmux or if it is gone."""
    from gpuctl.edges.kube.kubectl import tmux

    pane = os.environ.get("GPUCTL_PANE")
    output = tmux("display-message", "-p", "-t", pane, "#{pane_current_path}") if pane else None
    folder = (output or "").removesuffix("\n")
    return folder if folder and Path(folder).is_dir() else None


def entry(entries: Mapping[str, object], prompt: str) -> str | None:
    """Choose an entry by its name."""
    return pick(list(entries), prompt)
