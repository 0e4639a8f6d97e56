#!/usr/bin/python
"""Undo the changes of gpuctl on this host."""

from __future__ import annotations

DOCUMENTATION = r"""
module: host_rollback
short_description: Restore the settings that a GPU host had before gpuctl tuned it
description:
  - Restores every setting from the records on the host. A setting that somebody else has changed since is reported as
    a conflict and left alone, unless O(force) is set.
options:
  to:
    description: Restore the state right after this record, instead of the state before gpuctl.
    type: str
    default: ""
  only:
    description: Names or shell patterns of knobs to restore, such as C(sysctl.vm.*). Empty for all.
    type: list
    elements: str
    default: []
  force:
    description: Also restore settings that somebody else has changed since; the new record keeps their values.
    type: bool
    default: false
  scope:
    description: Restore only what was set in this scope. Empty for every scope.
    type: str
    default: ""
  allow_busy:
    description: Also apply changes that disturb running jobs if the host has GPU processes or jobs of a scheduler.
    type: bool
    default: false
  actor:
    description: User and machine for the record and the lock on the host. Empty for the user who runs Ansible.
    type: str
    default: ""
author: The gpuctl authors
attributes:
  check_mode:
    description: Reports what would be restored.
    support: full
  diff_mode:
    description: Shows each restored setting before and after.
    support: full
notes:
  - Needs root on the host (C(become)) and Python 3.9 or newer there.
"""

EXAMPLES = r"""
- name: Restore everything
  gpuctl.fleet.host_rollback:

- name: Restore the sysctls, also those that others have changed since
  gpuctl.fleet.host_rollback:
    only: ["sysctl.*"]
    force: true
"""

RETURN = r"""
knobs:
  description: One entry for each restored setting, with C(knob), C(state), C(reason) and C(changed).
  returned: success
  type: list
  elements: dict
record:
  description: Name of the record of this undo; empty if nothing changed.
  returned: success
  type: str
"""

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.gpuctl.fleet.plugins.module_utils.gpuhost.api import visit
from ansible_collections.gpuctl.fleet.plugins.module_utils.gpuhost.module import ARGUMENTS, result


def main() -> None:
    module = AnsibleModule(argument_spec=ARGUMENTS["undo"], supports_check_mode=True)
    answer = visit({**module.params, "action": "undo", "check": module.check_mode})
    strict = bool(module.params.get("strict"))
    outcome = result(answer, check=module.check_mode, strict=strict, with_diff=module._diff)  # noqa: SLF001 - it has no public name
    (module.fail_json if outcome.get("failed") else module.exit_json)(**outcome)


if __name__ == "__main__":
    main()
