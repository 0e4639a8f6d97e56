"""The filter `slurm_gres_knobs`: turns the variable `slurm_gres` into the knobs of a profile."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ansible_collections.gpuctl.fleet.plugins.plugin_utils import slurm_gres, variable_knobs

DOCUMENTATION = r"""
name: slurm_gres_knobs
short_description: Turn slurm_gres into knobs of a profile
description: Returns knobs of the kind C(slurm), and fails with all mistakes at once.
options:
  _input:
    description: Settings of gres.conf and cgroup.conf, by name.
    type: dict
    required: true
"""

EXAMPLES = r"""
knobs: "{{ {'autodetect': 'off', 'constrain_devices': true} | gpuctl.fleet.slurm_gres_knobs }}"
"""

RETURN = r"""
_value:
  description: Knobs by name.
  type: dict
"""


def slurm_gres_knobs(settings: object) -> dict[str, dict[str, Any]]:
    """Knobs by name."""
    return variable_knobs.by_name(slurm_gres.from_variables, settings)


class FilterModule:
    """Ansible's entry point: the filters by name."""

    def filters(self) -> dict[str, Callable[..., Any]]:
        return {"slurm_gres_knobs": slurm_gres_knobs}
