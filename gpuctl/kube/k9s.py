"""Command line of k9s for a context and namespace; read-only in production, and unless the settings allow changes."""

from __future__ import annotations

from gpuctl.core.settings import Settings
from gpuctl.edges.programs import need

ALL = "all"  # namespaces, as k9s names them


def command(context: str, namespace: str, settings: Settings) -> list[str]:
    """Return the command that shows the pods of a namespace, "" for all; `InvalidInput` if k9s is not installed."""
    need("k9s")
    mode = ["--readonly"] if settings.k9s_is_readonly(context) else []  # --write would override the user's readOnly
    return ["k9s", "--context", context, "--namespace", namespace or ALL, "--command", "pods", *mode]
