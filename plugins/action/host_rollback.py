"""Undo the changes of gpuctl on a host."""

from __future__ import annotations

from ansible_collections.gpuctl.fleet.plugins.plugin_utils.action_base import HostVisitAction


class ActionModule(HostVisitAction):
    """Sends the request to the host."""

    action = "undo"
