"""Resolve and check a profile on the controller, so that a mistake in it touches no host."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ansible.errors import AnsibleActionFail
from ansible_collections.gpuctl.fleet.plugins.plugin_utils import profiles
from ansible_collections.gpuctl.fleet.plugins.plugin_utils.action_base import HostVisitAction


class ActionModule(HostVisitAction):
    """Sends the compiled profile to the host."""

    action = "tune"

    def arguments_of_task(self) -> dict[str, Any]:
        arguments = super().arguments_of_task()
        try:
            return {**arguments, "profile": _compiled(arguments["profile"])}
        except profiles.ProfileError as error:
            raise AnsibleActionFail(str(error)) from error


def _compiled(profile: object) -> dict[str, Any]:
    """The profile in the engine's form; a file that gpuctl has compiled is used unchanged."""
    if isinstance(profile, Mapping):
        return profiles.compiled(profiles.inline(profile))
    if str(profile).endswith(".compiled.json"):
        return dict(json.loads(Path(str(profile)).read_text()))
    return profiles.compiled(profiles.load(str(profile or "")))
