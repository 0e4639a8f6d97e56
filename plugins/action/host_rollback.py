"""Say who asks, and run the module of the same name."""

from __future__ import annotations

from typing import Any

from ansible.plugins.action import ActionBase
from ansible_collections.gpuctl.fleet.plugins.plugin_utils.carrying import carry


class ActionModule(ActionBase):
    """Runs the module of the same name."""

    def run(self, tmp: None = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        super().run(tmp, task_vars)
        return carry(self._execute_module, self._task.args, task_vars)
