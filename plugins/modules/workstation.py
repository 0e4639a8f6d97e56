#!/usr/bin/python
"""Install an operator's tools and shell configuration, or restore the previous state."""

from __future__ import annotations

DOCUMENTATION = r"""
module: workstation
short_description: Install an operator's tools, reversibly
description:
  - Installs each tool from the distribution if its package is new enough, else from its release archive with a pinned
    sha256, or from PyPI or npm into a separate folder.
  - Keeps what it replaces, and restores it with O(undo).
options:
  tools:
    description: The tool rows, as in the role's C(files/tools.yml); of two rows with the same name, the later one wins.
    type: list
    elements: dict
    default: []
  only:
    description: Names of the tools to install. Empty for all.
    type: list
    elements: str
    default: []
  mirror:
    description: URL to download release archives from instead of the internet, each under its original host and path.
    type: str
    default: ""
  packages:
    description: Whether packages of the distribution may be installed.
    type: bool
    default: true
  shell:
    description:
      - Whether to write the marked block to C(~/.bashrc), C(~/.zshrc) (in zsh's C(ZDOTDIR), if set) and fish's
        C(config.fish), where these shells are used.
    type: bool
    default: true
  start_tmux:
    description: Whether a new terminal starts or attaches to the session tmux-main.
    type: bool
    default: false
  strict:
    description: Also fail if a tool is missing that is not required.
    type: bool
    default: false
  undo:
    description: Restore the previous state instead of installing anything.
    type: bool
    default: false
  remove:
    description: Names of tools to remove, with all their versions, instead of installing any. Packages stay.
    type: list
    elements: str
    default: []
  force:
    description:
      - With O(undo) or O(remove), also replace what the user changed since; a copy is kept in the state folder.
    type: bool
    default: false
  bin:
    description: Folder for the links. Empty for C(~/.local/bin), or C(/usr/local/bin) for root.
    type: path
    default: ""
  folder:
    description: Folder for the versions. Empty for C(~/.local/share/gpuctl/tools), or C(/opt/gpuctl/tools) for root.
    type: path
    default: ""
  gpuctl:
    description: The gpuctl command to link if none is on the PATH. Empty for no link.
    type: path
    default: ""
  state:
    description: Folder for the record. Empty for C(~/.local/state/gpuctl).
    type: path
    default: ""
author: The gpuctl authors
attributes:
  check_mode:
    description:
      - Reports what would be done. Archives are downloaded, verified and discarded; pip and npm install into a
        temporary folder.
    support: full
  diff_mode:
    description: Shows the shell files before and after.
    support: full
"""

EXAMPLES = r"""
- name: Install kubectl and k9s
  gpuctl.fleet.workstation:
    tools: "{{ lookup('ansible.builtin.file', 'tools.yml') | from_yaml }}"
    only: [kubectl, k9s]

- name: Restore everything
  gpuctl.fleet.workstation:
    undo: true
"""

RETURN = r"""
tools:
  description: One entry for each tool, with C(tool), C(state), C(version), C(source), C(why) and C(changed).
  returned: always
  type: list
  elements: dict
undone:
  description: With O(undo) or O(remove), one entry for each file, with C(path), C(state) and C(why).
  returned: with O(undo) or O(remove)
  type: list
  elements: dict
"""

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.gpuctl.fleet.plugins.module_utils.workstation.interruption import clean_up_on_signals
from ansible_collections.gpuctl.fleet.plugins.module_utils.workstation.model import WorkstationError
from ansible_collections.gpuctl.fleet.plugins.module_utils.workstation.run import run

ARGUMENTS = {
    "tools": {"type": "list", "elements": "dict", "default": []},
    "only": {"type": "list", "elements": "str", "default": []},
    "mirror": {"type": "str", "default": ""},
    "packages": {"type": "bool", "default": True},
    "shell": {"type": "bool", "default": True},
    "start_tmux": {"type": "bool", "default": False},
    "strict": {"type": "bool", "default": False},
    "undo": {"type": "bool", "default": False},
    "remove": {"type": "list", "elements": "str", "default": []},
    "force": {"type": "bool", "default": False},
    "bin": {"type": "path", "default": ""},
    "folder": {"type": "path", "default": ""},
    "gpuctl": {"type": "path", "default": ""},
    "state": {"type": "path", "default": ""},
}


def main() -> None:
    module = AnsibleModule(argument_spec=ARGUMENTS, supports_check_mode=True)
    clean_up_on_signals()
    try:
        result = run(module.params, module.check_mode)
    except WorkstationError as wrong:
        module.fail_json(msg=str(wrong))
    files = [f for f in result.get("files", []) if f["changed"]]
    result["diff"] = [{"before_header": f["path"], "after_header": f["path"], **_sides(f)} for f in files]
    if result.get("failed_tools"):
        module.fail_json(msg=f"missing: {', '.join(result['failed_tools'])}", **result)
    if result.get("conflicts"):
        module.fail_json(msg=f"left alone: {_reasons(result['undone'], result['conflicts'])}", **result)
    module.exit_json(**result)


def _reasons(rows: list[dict[str, str]], conflicts: list[str]) -> str:
    return "; ".join(f"{row['path']} ({row['why']})" for row in rows if row["path"] in conflicts)


def _sides(file: dict[str, str]) -> dict[str, str]:
    return {"before": file["before"], "after": file["after"]}


if __name__ == "__main__":
    main()
