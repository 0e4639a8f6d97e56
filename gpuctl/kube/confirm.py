"""The confirmation that a kubectl command needs, if any, given the context it acts in."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from gpuctl.core.errors import InvalidInput
from gpuctl.core.settings import Settings
from gpuctl.edges.kube import config
from gpuctl.kube import guard


def question(arguments: Sequence[str], settings: Settings) -> str:
    """Return the confirmation question for these kubectl arguments; empty if none is needed."""
    command = guard.read(arguments)
    does = guard.destroys(command)
    if not does:
        return ""
    if command.elsewhere:
        return f"kubectl {does}: the server is given on the command line, so its stage is unknown. Continue?"
    try:
        context = _context(command)
    except InvalidInput as error:
        return f"kubectl {does}: the context is unknown ({error.wrong}). Continue?"
    if context is None or settings.stage(context.name) != "production":
        return ""
    names = ("--all-namespaces", "-A")
    space = "all namespaces" if any(name in command.options for name in names) else _namespace(command, context)
    return f"kubectl {does} in the production context {context.name} ({space}). Continue?"


def _context(command: guard.Command) -> config.Context | None:
    paths = [Path(command.kubeconfig)] if command.kubeconfig else config.files()
    if not command.context:
        return config.current(*paths)
    return next((c for c in config.contexts(*paths) if c.name == command.context), None)


def _namespace(command: guard.Command, context: config.Context) -> str:
    named = command.options.get("--namespace") or command.options.get("-n") or context.namespace
    return f"namespace {named}"
