"""Resolve a profile on the controller, so that the host gets plain checked values and a mistake touches no host."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ansible.errors import AnsibleActionFail
from ansible.plugins.action import ActionBase
from ansible_collections.gpuctl.fleet.plugins.plugin_utils import profiles
from ansible_collections.gpuctl.fleet.plugins.plugin_utils.carrying import carry


class ActionModule(ActionBase):
    """Runs the module of the same name with the compiled profile."""

    def run(self, tmp: None = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        super().run(tmp, task_vars)
        arguments = dict(self._task.args)
        try:
            arguments["profile"] = _compiled(arguments.get("profile"))
        except profiles.ProfileError as error:
            raise AnsibleActionFail(str(error)) from error
        return carry(self._execute_module, arguments, task_vars)


def _compiled(asked: object) -> dict[str, Any]:
    """The profile in the engine's form. A file that `gpuctl` compiled and checked already is taken as it is."""
    if isinstance(asked, Mapping):
        return profiles.compiled(profiles.inline(asked))
    if str(asked).endswith(".compiled.json"):
        return dict(json.loads(Path(str(asked)).read_text()))
    return profiles.compiled(profiles.load(str(asked or "")))
