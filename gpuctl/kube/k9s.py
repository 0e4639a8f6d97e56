"""Command line of k9s for a context and namespace; read-only in production, and unless the settings allow changes."""

from __future__ import annotations

from gpuctl.core.settings import Settings
from gpuctl.edges.programs import need

PRODUCTION = "production"
ALL = "all"  # namespaces, as k9s names them


def is_read_only(context: str, settings: Settings) -> bool:
    """Return True if k9s must not change objects of a context."""
    return settings.k9s_readonly or settings.stage(context) == PRODUCTION


def command(context: str, namespace: str, settings: Settings) -> list[str]:
    """Return the command that shows the pods of a namespace, "" for all; `InvalidInput` if k9s is not installed."""
    need("k9s")
    mode = "--readonly" if is_read_only(context, settings) else "--write"
    return ["k9s", "--context", context, "--namespace", namespace or ALL, "--command", "pods", mode]
