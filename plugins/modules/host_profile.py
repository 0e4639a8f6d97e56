#!/usr/bin/python
"""Tune this host to a profile in one run: read everything, change what differs, read back."""

from __future__ import annotations

DOCUMENTATION = r"""
module: host_profile
short_description: Tune a GPU host to a profile, in one run
description:
  - Compares a host with a profile, both its current settings and those after a reboot, changes only what differs, and
    reads it back. Every change is recorded on the host, so that M(gpuctl.fleet.host_rollback) can undo it.
  - In check mode nothing is written; the result shows what a run would change.
options:
  profile:
    description:
      - The name of a profile (C(minimal), C(training), C(inference), C(latency), or your own in
        C(~/.config/gpuctl/profiles)), the path of a profile file on the controller, or a profile as a mapping with
        C(name), C(knobs) and the other keys of a profile file.
    type: raw
    required: true
  scope:
    description:
      - A name for the origin of the settings. A knob that is no longer in the profile is undone only if it was set
        in the same scope.
    type: str
    default: profile
  allow_busy:
    description: Also apply changes that disturb running jobs if the host has GPU processes or jobs of a scheduler.
    type: bool
    default: false
  strict:
    description: Also fail if this host does not support a setting.
    type: bool
    default: false
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
extends_documentation_fragment: []
notes:
  - Needs root on the host (C(become)) and Python 3.9 or newer there.
"""

EXAMPLES = r"""
- name: Tune for training
  gpuctl.fleet.host_profile:
    profile: training

- name: Set two things only
  gpuctl.fleet.host_profile:
    profile:
      name: site
      knobs:
        sysctl.vm.swappiness: {value: 0, why: keep the working set in memory, source: site}
        thp.enabled: {value: madvise, why: let each program choose, source: site}
    scope: site
"""

RETURN = r"""
knobs:
  description: One entry per setting, with C(knob), C(desired), C(now), C(boot), C(state), C(reason) and C(changed).
  returned: success
  type: list
  elements: dict
record:
  description: Name of the record on the host with the values before the run; empty if nothing changed.
  returned: success
  type: str
reboot_required:
  description: Whether a setting takes effect only after a reboot.
  returned: success
  type: bool
busy:
  description: Why the host is busy; read only if a change would disturb jobs or needs a reboot.
  returned: success
  type: list
  elements: str
machine:
  description: Facts of the host by which the profile's overlays choose.
  returned: success
  type: dict
"""

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.gpuctl.fleet.plugins.module_utils.gpuhost.api import visit
from ansible_collections.gpuctl.fleet.plugins.module_utils.gpuhost.module import ARGUMENTS, result


def main() -> None:
    module = AnsibleModule(argument_spec=ARGUMENTS["tune"], supports_check_mode=True)
    answer = visit({**module.params, "action": "tune", "check": module.check_mode})
    strict = bool(module.params.get("strict"))
    outcome = result(answer, check=module.check_mode, strict=strict, with_diff=module._diff)  # noqa: SLF001 - it has no public name
    (module.fail_json if outcome.get("failed") else module.exit_json)(**outcome)


if __name__ == "__main__":
    main()
