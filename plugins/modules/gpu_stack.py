#!/usr/bin/python
"""Bring parts of a GPU host's software stack to what the site wants; the action plugin of the same name does it."""

from __future__ import annotations

DOCUMENTATION = r"""
module: gpu_stack
short_description: Install the driver, fabric services, toolkit, DCGM, EFA, GPUDirect RDMA or nccl-tests as planned
description:
  - Reads the host, decides on the controller as C(gpuctl gpu-node plan) does, lets apt resolve exactly these packages,
    and changes only what differs. Nothing is changed on a host that the plan refuses; the reason is the message.
  - Packages, holds, pins, repositories, files and services are recorded on the host before they are changed, so that
    C(gpuctl rollback --only gpu_stack) restores them.
  - An installation that was interrupted earlier is completed first.
options:
  stack:
    description: What the site wants, with the fields of C(gpu_stack) in docs/gpu-node.md.
    type: dict
    required: true
  parts:
    description: The parts that this task may change; the others stay as they are.
    type: list
    elements: str
    choices: [driver, fabric, toolkit, dcgm, efa, rdma, nccl_tests]
    required: true
  actor:
    description: User and machine for the record and the lock on the host. Empty for the user who runs Ansible.
    type: str
    default: ""
author: The gpuctl authors
attributes:
  check_mode:
    description: Reports what would be changed.
    support: full
  diff_mode:
    description: Shows each changed setting before and after.
    support: full
notes:
  - Needs root on the host (C(become)), Python 3.9 or newer there, apt, and pipelining.
  - Needs the Python package gpuctl where Ansible runs.
"""

EXAMPLES = r"""
- name: Install the driver's set in one version
  gpuctl.fleet.gpu_stack:
    stack: {driver: 580.178.04}
    parts: [driver]
"""

RETURN = r"""
knobs:
  description: One entry per part, with C(knob), C(desired), C(now), C(state), C(reason) and C(changed).
  returned: success
  type: list
  elements: dict
record:
  description: Name of the record on the host with the state before the run; empty if nothing changed.
  returned: success
  type: str
reboot_required:
  description: Whether another driver runs until a reboot.
  returned: success
  type: bool
"""

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.gpuctl.fleet.plugins.module_utils.gpuhost.module import ARGUMENTS


def main() -> None:
    module = AnsibleModule(argument_spec=ARGUMENTS["gpu_stack"], supports_check_mode=True)
    module.fail_json(msg="this module is carried out by its action plugin: call it as gpuctl.fleet.gpu_stack")


if __name__ == "__main__":
    main()
