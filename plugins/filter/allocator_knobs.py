"""The filter `allocator_knobs`: services and their allocators as the knobs of a profile."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

DOCUMENTATION = r"""
name: allocator_knobs
short_description: Turn a list of services into the knobs of a profile
description: Each service with its allocator becomes one knob of the kind C(allocator).
options:
  _input:
    description: Mappings of C(name), C(allocator), C(restart) and C(conf).
    type: list
    elements: dict
    required: true
"""

EXAMPLES = r"""
knobs: "{{ [{'name': 'trainer.service', 'allocator': 'jemalloc'}] | gpuctl.fleet.allocator_knobs }}"
"""

RETURN = r"""
_value:
  description: Knobs by name.
  type: dict
"""


def allocator_knobs(services: Sequence[Mapping[str, Any]]) -> dict[str, dict[str, Any]]:
    """One knob a service."""
    return {
        f"allocator.{service['name']}": {
            "value": {
                "allocator": service.get("allocator", "jemalloc"),
                "restart": str(service.get("restart", False)).lower(),
                "conf": service.get("conf", ""),
            },
            "why": "memory that a long-running service frees goes back to the host, and does not fragment",
            "source": "the variable allocator_services",
        }
        for service in services
    }


class FilterModule:
    """What Ansible looks for."""

    def filters(self) -> dict[str, Callable[..., Any]]:
        return {"allocator_knobs": allocator_knobs}
