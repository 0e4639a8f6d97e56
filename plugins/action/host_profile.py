"""Resolve and check a profile on the controller, so that a mistake in it touches no host."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ansible.errors import AnsibleActionFail
from ansible_collections.gpuctl.fleet.plugins.plugin_utils import answers
from ansible_collections.gpuctl.fleet.plugins.plugin_utils.action_base import HostVisitAction

# Ansible compiles what it imports in every run. gpuctl has compiled its profiles itself; for others, this is imported
# before Ansible forks a worker for each host.
if answers.AS_TEXT not in os.environ:
    from ansible_collections.gpuctl.fleet.plugins.plugin_utils import profiles  # noqa: F401


class ActionModule(HostVisitAction):
    """Sends the compiled profile to the host."""

    action = "tune"

    def arguments_of_task(self) -> dict[str, Any]:
        arguments = super().arguments_of_task()
        return {**arguments, "profile": _compiled(arguments["profile"])}


def _compiled(profile: object) -> dict[str, Any]:
    """The profile in the engine's form; a file that gpuctl has compiled is used unchanged."""
    if not isinstance(profile, Mapping) and str(profile).endswith(".compiled.json"):
        return dict(json.loads(Path(str(profile)).read_text()))
    from ansible_collections.gpuctl.fleet.plugins.plugin_utils import profiles

    try:
        own = profiles.inline(profile) if isinstance(profile, Mapping) else profiles.load(str(profile or ""))
        return profiles.compiled(own)
    except profiles.ProfileError as error:
        raise AnsibleActionFail(str(error)) from error
