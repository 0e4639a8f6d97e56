"""The confirmation that a command of kubectl, oc or helm needs, if any, given the context it acts in."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from gpuctl.core.errors import InvalidInput
from gpuctl.core.settings import Settings
from gpuctl.edges import terminal
from gpuctl.edges.kube import config
from gpuctl.kube import guard

# What the environment sets for helm, unless an option does.
HELM = {"HELM_KUBECONTEXT": "--kube-context", "HELM_NAMESPACE": "--namespace", "HELM_KUBEAPISERVER": "--kube-apiserver"}


def question(program: str, arguments: Sequence[str], settings: Settings) -> str:
    """Return the confirmation question for a command; empty if none is needed."""
    from_environment = {option: os.environ.get(name, "") for name, option in HELM.items() if program == "helm"}
    command = guard.read(program, arguments, {option: value for option, value in from_environment.items() if value})
    does = guard.destroys(program, command)
    if not does:
        return ""
    does = f"{program} {does}"
    if command.elsewhere:
        return f"{does}: the server is given directly, so its stage is unknown. Continue?"
    try:
        context = _context(command)
    except InvalidInput as error:
        return f"{does}: the context is unknown ({error.wrong}). Continue?"
    if context is None or settings.stage(context.name) != "production":
        return ""
    names = ("--all-namespaces", "-A")
    space = "all namespaces" if any(name in command.options for name in names) else _namespace(command, context)
    return f"{does} in the production context {context.name} ({space}). Continue?"


def _context(command: guard.Command) -> config.Context | None:
    paths = [Path(command.kubeconfig)] if command.kubeconfig else config.files()
    if not command.context:
        return config.current(*paths)
    return next((c for c in config.contexts(*paths) if c.name == command.context), None)


def _namespace(command: guard.Command, context: config.Context) -> str:
    named = command.options.get("-n") or command.options.get("--namespace") or context.namespace
    return f"namespace {named}"


def ask(question_text: str) -> bool | None:
    """Ask on the terminal, also if standard input is a pipe; None if nobody can answer there."""
    answer = terminal.ask(f"{question_text} [y/N] ")
    return None if answer is None else answer.strip().lower() in ("y", "yes")
