"""Inventories as ansible-core reads them, with every format and plugin it supports."""

from __future__ import annotations

import json
import os
import re
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from gpuctl.core.errors import InvalidInput
from gpuctl.edges import inventory_program
from gpuctl.edges.processes import Done, Processes

Variables = dict[str, Any]

LIMIT_S = 120.0  # an inventory plugin may query a cloud with thousands of machines
WITH_PIPE_S = 15.0  # for an inventory with a pipe, which Ansible waits for unless it ignores its name
MOST_MEMORY = 2**30  # bytes; enough for the variables of some 10,000 hosts

_DENIED, _DANGLING = ": permission denied", ": a link to a missing file"
_MAKE_READABLE = "make it readable for you, or move it out of the inventory"
_SOURCE = re.compile(r"inventory source (/.+)$")

# Connection settings of ansible.cfg, each with the variables that override it for a host.
_CONFIGURED = {
    "DEFAULT_REMOTE_USER": ("ansible_user", "ansible_ssh_user"),
    "DEFAULT_REMOTE_PORT": ("ansible_port", "ansible_ssh_port"),
    "DEFAULT_PRIVATE_KEY_FILE": ("ansible_private_key_file", "ansible_ssh_private_key_file"),
    "DEFAULT_TRANSPORT": ("ansible_connection",),
    "DEFAULT_BECOME": ("ansible_become",),
    "DEFAULT_BECOME_METHOD": ("ansible_become_method",),
    "DEFAULT_BECOME_USER": ("ansible_become_user",),
    "INTERPRETER_PYTHON": ("ansible_python_interpreter",),
    "BECOME_PASSWORD_FILE": ("ansible_become_password_file",),
    "CONNECTION_PASSWORD_FILE": ("ansible_password_file",),
    "DEFAULT_ASK_PASS": ("ansible_ask_pass",),
    "DEFAULT_BECOME_ASK_PASS": ("ansible_become_ask_pass",),
    "DEFAULT_BECOME_EXE": ("ansible_become_exe",),
    "DEFAULT_BECOME_FLAGS": ("ansible_become_flags",),
}
_CONFIGURED_SSH = {
    "ssh_executable": ("ansible_ssh_executable",),
    "ssh_args": ("ansible_ssh_args",),
    "ssh_common_args": ("ansible_ssh_common_args",),
    "ssh_extra_args": ("ansible_ssh_extra_args",),
}


def read(source: Path, limit: str, *, limit_s: float = LIMIT_S, most_memory: int = MOST_MEMORY) -> dict[str, Variables]:
    """Host -> its variables as written (templates unresolved), in the inventory's order; only hosts of `limit`.

    The variables include `group_names`. Connection settings of the user's ansible.cfg apply unless a host's own
    variables override them. `InvalidInput` if the inventory cannot be used; also if a script or plugin of it takes
    longer than `limit_s`, or Ansible needs more than `most_memory` bytes for it.
    """
    doing, hint = f"read the inventory {source}", f"try it alone: ansible-inventory --list -i {source}"
    pipe = _pipe_in(source)
    limit_s = min(limit_s, WITH_PIPE_S) if pipe else limit_s
    done = _run_ansible(source, limit, limit_s, most_memory)
    wrong = _failure(done, limit_s, most_memory)
    if pipe and done.code is None and not done.excess:
        raise InvalidInput(doing, f"{pipe} is a pipe, which was waited for in vain", "move it out of the inventory")
    if wrong:
        raise InvalidInput(doing, wrong, _MAKE_READABLE if wrong.endswith((_DENIED, _DANGLING)) else hint)
    listed, _, configured = done.out.rstrip().rpartition(b"\n")
    try:
        hosts, defaults = _hosts(json.loads(listed)), json.loads(configured)
    except (ValueError, RecursionError) as error:
        raise InvalidInput(doing, "ansible-inventory printed no JSON", hint) from error
    if not hosts:
        wrong = f"no host in it matches {limit!r}" if limit else "it has no hosts"
        raise InvalidInput(doing, wrong, "`ansible-inventory --graph -i INVENTORY` shows hosts and groups")
    return {host: _with_defaults(variables, defaults) for host, variables in hosts.items()}


def _pipe_in(folder: Path) -> Path | None:
    """The first pipe in an inventory's folder, or the inventory itself if it is one; None if there is none."""
    paths = (Path(parent, name) for parent, _, names in os.walk(folder) for name in sorted(names))
    return next((path for path in (folder, *paths) if path.is_fifo()), None)


def _run_ansible(source: Path, limit: str, limit_s: float, most_memory: int) -> Done:
    """Run inventory_program.py; on Ctrl-C it ends, with the inventory scripts that it started."""
    # The program uses the ansible-core that gpuctl was installed with, whatever else is on the PATH.
    start = [sys.executable, "-P", "-m", inventory_program.__name__]
    settings = json.dumps([list(_CONFIGURED), list(_CONFIGURED_SSH)])
    listing = ["inventory", "--list", "--inventory", str(source), *(["--limit", limit] if limit else [])]
    argv = [*start, str(most_memory), settings, *listing]
    return Processes(most_memory).run(argv, b"", limit_s, _environment())


def _with_defaults(variables: Variables, configured: Variables) -> Variables:
    defaults = {
        names[0]: configured[setting]
        for setting, names in {**_CONFIGURED, **_CONFIGURED_SSH}.items()
        if setting in configured and not any(name in variables for name in names)
    }
    return {**defaults, **variables}


def _environment() -> dict[str, str]:
    quiet = {
        "ANSIBLE_NOCOLOR": "1",
        "ANSIBLE_DEPRECATION_WARNINGS": "False",
        "ANSIBLE_LOCALHOST_WARNING": "False",
        "ANSIBLE_DEBUG": "False",
        "ANSIBLE_VERBOSITY": "0",
    }
    return {**os.environ, **quiet, "ANSIBLE_INVENTORY_ANY_UNPARSED_IS_FAILED": "True"}


def _failure(listed: Done, limit_s: float, most_memory: int) -> str:
    """Why an inventory cannot be used, else "". Ansible's parse warnings count as failures."""
    if listed.excess or inventory_program.TOO_LARGE in listed.err:
        return f"it needs more than {most_memory // 2**20} MiB of memory: does one of its scripts print endlessly?"
    if listed.code is None:
        return f"it was not read within {limit_s:g} s: does one of its scripts or plugins hang?"
    lines = [line.strip() for line in listed.err.splitlines() if line.strip()]
    failures = [line for line in lines if "arse" in line and ("Failed to" in line or "Unable to" in line)]
    # For a YAML file, the messages of the other plugins mislead.
    yaml_failures = [line for line in failures if "'yaml' plugin" in line]
    if failures or listed.code:
        unreadable = _unreadable(lines)
        if unreadable:
            return unreadable
        failures = yaml_failures or failures
        return " ".join((failures or lines or ["ansible-inventory failed"])[-2:]).replace("[WARNING]: ", "")
    return ""


def _unreadable(lines: list[str]) -> str:
    """The file among Ansible's failed sources that cannot be read, with the reason that Ansible leaves out; or ""."""
    sources = [Path(match[1]) for line in lines if (match := _SOURCE.search(line))]
    reasons = (f"{path}{reason}" for path in sources if (reason := _why_unreadable(path)))
    return next(reasons, "")


def _why_unreadable(path: Path) -> str:
    if path.is_symlink() and not path.exists():
        return _DANGLING
    return _DENIED if path.exists() and not os.access(path, os.R_OK) else ""


def _hosts(listed: Mapping[str, Any]) -> dict[str, Variables]:
    variables: dict[str, Variables] = listed.get("_meta", {}).get("hostvars", {})
    of_group = {group: _members(listed, group, set()) for group in listed if group != "_meta"}
    return {
        host: {
            **variables.get(host, {}),
            "group_names": [name for name, hosts in of_group.items() if host in hosts and name != "all"],
        }
        for host in of_group.get("all", [])
    }


def _members(listed: Mapping[str, Any], group: str, visited: set[str]) -> list[str]:
    """The hosts of a group and its child groups, without duplicates, in the inventory's order."""
    if group in visited:
        return []
    visited.add(group)
    content = listed.get(group, {})
    below = [host for child in content.get("children", []) for host in _members(listed, child, visited)]
    return list(dict.fromkeys([*content.get("hosts", []), *below]))
