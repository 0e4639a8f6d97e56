"""The contexts of the user's kubeconfig."""

from __future__ import annotations

from gpuctl.edges.kube import config


def names() -> list[str]:
    """Return the names of all contexts; `InvalidInput` if a kubeconfig cannot be read."""
    return [context.name for context in config.contexts(*config.files())]
