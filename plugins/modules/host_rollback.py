#!/usr/bin/python
"""Put this host back to what it was before gpuctl changed it."""

from __future__ import annotations

DOCUMENTATION = r"""
module: host_rollback
short_description: Put a host back to what it was before gpuctl tuned it
description:
  - Restores every setting from the host's own record. What somebody else has changed since is reported as a conflict
    and left alone, unless O(force) is set.
options:
  to:
    description: Go back only to the state right after this record, instead of to the state before gpuctl.
    type: str
    default: ""
  only:
    description: Names or shell patterns of the knobs to restore, such as C(sysctl.vm.*). Empty for all.
    type: list
    elements: str
    default: []
  force:
    description: Take back settings too that somebody else has changed since; what they held is kept in the new record.
    type: bool
    default: false
  scope:
    description: Restore only what was set in this scope. Empty for every scope.
    type: str
    default: ""
  allow_busy:
    description: Carry out changes that disturb running jobs even where GPU processes or a scheduler's jobs are found.
    type: bool
    default: false
  by:
    description: Who asks, for the record and the lock on the host. Empty for the user who runs Ansible.
    type: str
    default: ""
author: The gpuctl authors
attributes:
  check_mode:
    description: Reports truthfully what would be restored.
    support: full
  diff_mode:
    description: Shows each restored setting before and after.
    support: full
notes:
  - Needs root on the host (C(become)) and Python 3.9 or newer there.
"""

EXAMPLES = r"""
- name: Put everything back
  gpuctl.fleet.host_rollback:

- name: Put the sysctls back, whoever changed them since
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
  description: The name of the record of this restoration; empty when nothing changed.
  returned: success
  type: str
"""

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.gpuctl.fleet.plugins.module_utils.gpuhost.api import visit
from ansible_collections.gpuctl.fleet.plugins.module_utils.gpuhost.module import ARGUMENTS, result


def main() -> None:
    module = AnsibleModule(argument_spec=ARGUMENTS["undo"], supports_check_mode=True)
    told = visit({**module.params, "action": "undo", "check": module.check_mode})
    strict = bool(module.params.get("strict"))
    end = result(told, check=module.check_mode, strict=strict, with_diff=module._diff)  # noqa: SLF001 - it has no public name
    (module.fail_json if end.get("failed") else module.exit_json)(**end)


if __name__ == "__main__":
    main()
