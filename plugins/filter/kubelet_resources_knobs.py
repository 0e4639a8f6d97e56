"""The filter `kubelet_resources_knobs`: turns the variable `kubelet_resources` into the knob of a profile."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ansible_collections.gpuctl.fleet.plugins.plugin_utils import kubelet_resources, variable_knobs

DOCUMENTATION = r"""
name: kubelet_resources_knobs
short_description: Turn kubelet_resources into knobs of a profile
description: Returns one knob of the kind C(kubelet), and fails with all mistakes at once.
options:
  _input:
    description: The resources, by name.
    type: dict
    required: true
"""

EXAMPLES = r"""
knobs: "{{ {'cpu_manager_policy': 'static', 'reserved_cpus': '0-3'} | gpuctl.fleet.kubelet_resources_knobs }}"
"""

RETURN = r"""
_value:
  description: Knobs by name.
  type: dict
"""


def kubelet_resources_knobs(resources: object) -> dict[str, dict[str, Any]]:
    """One knob, by name."""
    return variable_knobs.by_name(kubelet_resources.from_variables, resources)


class FilterModule:
    """Ansible's entry point: the filters by name."""

    def filters(self) -> dict[str, Callable[..., Any]]:
        return {"kubelet_resources_knobs": kubelet_resources_knobs}
