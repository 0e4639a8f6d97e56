"""The filter `gpu_settings_knobs`: turns the variable `gpu_settings` into knobs of a profile."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ansible_collections.gpuctl.fleet.plugins.plugin_utils import gpu_settings, variable_knobs

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
    return variable_knobs.by_name(gpu_settings.from_variables, settings)


class FilterModule:
    """Ansible's entry point: the filters by name."""

    def filters(self) -> dict[str, Callable[..., Any]]:
        return {"gpu_settings_knobs": gpu_settings_knobs}
