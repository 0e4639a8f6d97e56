"""The filter `allocator_knobs`: turns services and their allocators into knobs of a profile."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

DOCUMENTATION = r"""
name: allocator_knobs
short_description: Turn services into knobs of a profile
description: Returns one knob of the kind C(allocator) per service.
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
    """One knob per service, by name."""
    return {
        f"allocator.{service['name']}": {
            "value": {
                "allocator": service.get("allocator", "jemalloc"),
                "restart": str(service.get("restart", False)).lower(),
                "conf": service.get("conf", ""),
            },
            "why": "returns memory that a long-running service frees to the host, and limits fragmentation",
            "source": "the variable allocator_services",
        }
        for service in services
    }


class FilterModule:
    """Ansible's entry point: the filters by name."""

    def filters(self) -> dict[str, Callable[..., Any]]:
        return {"allocator_knobs": allocator_knobs}
