"""Resolve a profile on the controller, so that the host gets plain checked values and a mistake touches no host."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ansible.errors import AnsibleActionFail
from ansible_collections.gpuctl.fleet.plugins.plugin_utils import profiles
from ansible_collections.gpuctl.fleet.plugins.plugin_utils.action_base import Carrier


class ActionModule(Carrier):
    """Carries the compiled profile to the host."""

    action = "tune"

    def asked(self) -> dict[str, Any]:
        arguments = super().asked()
        try:
            return {**arguments, "profile": _compiled(arguments["profile"])}
        except profiles.ProfileError as error:
            raise AnsibleActionFail(str(error)) from error


def _compiled(asked: object) -> dict[str, Any]:
    """The profile in the engine's form. A file that `gpuctl` compiled and checked already is taken as it is."""
    if isinstance(asked, Mapping):
        return profiles.compiled(profiles.inline(asked))
    if str(asked).endswith(".compiled.json"):
        return dict(json.loads(Path(str(asked)).read_text()))
    return profiles.compiled(profiles.load(str(asked or "")))
