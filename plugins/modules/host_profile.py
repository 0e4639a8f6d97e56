#!/usr/bin/python
"""Tune this host to a profile in one trip: read everything, change only what differs, read back."""

from __future__ import annotations

DOCUMENTATION = r"""
module: host_profile
short_description: Tune a GPU host to a profile, in one trip
description:
  - Reads what a host runs with and what it keeps over a reboot, compares both with a profile, writes only what differs
    and reads it back. Every change is recorded on the host, so that M(gpuctl.fleet.host_rollback) can take it back.
  - In check mode nothing is written; what is reported is what a run would change.
options:
  profile:
    description:
      - The name of a profile (C(minimal), C(training), C(inference), C(latency), or one of your own in
        C(~/.config/gpuctl/profiles)), the path of a profile file on the controller, or a profile written here as a
        mapping with C(name), C(knobs) and whatever else a profile file may hold.
    type: raw
    required: true
  scope:
    description:
      - Whose settings these are. A knob that is missing from the profile is put back to what it was only when it was
        set in the same scope.
    type: str
    default: profile
  allow_busy:
    description: Carry out changes that disturb running jobs even where GPU processes or a scheduler's jobs are found.
    type: bool
    default: false
  strict:
    description: Fail where a setting is one that this host cannot have.
    type: bool
    default: false
  by:
    description: Who asks, for the record and the lock on the host. Empty for the user who runs Ansible.
    type: str
    default: ""
author: The gpuctl authors
attributes:
  check_mode:
    description: Reports truthfully what would be changed.
    support: full
  diff_mode:
    description: Shows each changed setting before and after, now and after a reboot.
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
  description: One entry for each setting, with C(knob), C(wanted), C(now), C(boot), C(state), C(reason) and C(changed).
  returned: success
  type: list
  elements: dict
record:
  description: The name of the record on the host that holds what was there before; empty when nothing changed.
  returned: success
  type: str
reboot_required:
  description: Whether a setting takes effect only after a reboot.
  returned: success
  type: bool
busy:
  description: Who keeps the host busy, asked only where that matters.
  returned: success
  type: list
  elements: str
machine:
  description: What the host is, as the profile's overlays see it.
  returned: success
  type: dict
"""

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.gpuctl.fleet.plugins.module_utils.gpuhost.api import visit
from ansible_collections.gpuctl.fleet.plugins.module_utils.gpuhost.module import ARGUMENTS, result


def main() -> None:
    module = AnsibleModule(argument_spec=ARGUMENTS["tune"], supports_check_mode=True)
    told = visit({**module.params, "action": "tune", "check": module.check_mode})
    strict = bool(module.params.get("strict"))
    end = result(told, check=module.check_mode, strict=strict, with_diff=module._diff)  # noqa: SLF001 - it has no public name
    (module.fail_json if end.get("failed") else module.exit_json)(**end)


if __name__ == "__main__":
    main()
