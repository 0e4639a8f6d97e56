"""The filter `gpu_settings_knobs`: turns the variable `gpu_settings` into knobs of a profile."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ansible.errors import AnsibleFilterError
from ansible_collections.gpuctl.fleet.plugins.plugin_utils import gpu_settings
from ansible_collections.gpuctl.fleet.plugins.plugin_utils.strict_yaml import Mistake

DOCUMENTATION = r"""
name: gpu_settings_knobs
short_description: Turn gpu_settings into knobs of a profile
description: Returns one knob of the kind C(gpu) per setting, and fails with all mistakes at once.
options:
  _input:
    description: The settings, by name.
    type: dict
    required: true
"""

EXAMPLES = r"""
knobs: "{{ {'persistence': true, 'power_limit': 500} | gpuctl.fleet.gpu_settings_knobs }}"
"""

RETURN = r"""
_value:
  description: Knobs by name.
  type: dict
"""


def gpu_settings_knobs(settings: object) -> dict[str, dict[str, Any]]:
    """One knob per setting, by name."""
    mistakes: list[Mistake] = []
    rows = gpu_settings.from_variables(settings, mistakes)
    if mistakes:
        raise AnsibleFilterError("\n".join(map(str, mistakes)))
    return {row["name"]: {name: row[name] for name in ("value", "why", "source")} for row in rows}


class FilterModule:
    """Ansible's entry point: the filters by name."""

    def filters(self) -> dict[str, Callable[..., Any]]:
        return {"gpu_settings_knobs": gpu_settings_knobs}
