"""Put a host back to what it was before gpuctl."""

from __future__ import annotations

from ansible_collections.gpuctl.fleet.plugins.plugin_utils.action_base import Carrier


class ActionModule(Carrier):
    """Carries the request to the host."""

    action = "undo"
