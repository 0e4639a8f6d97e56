"""Inventories as ansible-core reads them, with every format and plugin it supports."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from gpuctl.core.errors import InvalidInput

Variables = dict[str, Any]

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
    "ssh_executable": ("ansible_ssh_executable",),
    "ssh_args": ("ansible_ssh_args",),
    "ssh_common_args": ("ansible_ssh_common_args",),
    "ssh_extra_args": ("ansible_ssh_extra_args",),
}


def read(source: Path, limit: str) -> dict[str, Variables]:
    """Host -> its variables as written (templates unresolved), in the inventory's order; only hosts of `limit`.

    The variables include `group_names`. Connection settings of the user's ansible.cfg apply unless a host's own
    variables override them.
    """
    listing = ["inventory", "--list", "--inventory", str(source), *(["--limit", limit] if limit else [])]
    configuration = ["config", "dump", "--type", "all", "--only-changed", "--format", "json"]
    # Both at the same time: each takes most of a second, nearly all of it Ansible's start.
    with _ansible(*listing) as inventory, _ansible(*configuration) as config:
        (listed, errors), (settings, _) = inventory.communicate(), config.communicate()
    doing = f"read the inventory {source}"
    wrong = _failure(errors, inventory.returncode)
    if wrong:
        raise InvalidInput(doing, wrong, f"try it alone: ansible-inventory --list -i {source}")
    hosts = _hosts(json.loads(listed))
    if not hosts:
        wrong = f"no host in it matches {limit!r}" if limit else "it has no hosts"
        raise InvalidInput(doing, wrong, "`ansible-inventory --graph -i INVENTORY` shows hosts and groups")
    if config.returncode:
        raise InvalidInput("read Ansible's configuration", "ansible-config failed", "try it alone: ansible-config dump")
    configured = _configured(json.loads(settings))
    return {host: _with_defaults(variables, configured) for host, variables in hosts.items()}


def _ansible(*arguments: str) -> subprocess.Popen[str]:
    # -m ansible uses the ansible-core that gpuctl was installed with, whatever else is on the PATH.
    return subprocess.Popen(
        [sys.executable, "-m", "ansible", *arguments],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=_environment(),
    )


def _configured(dumped: object) -> Variables:
    """Name -> value of settings from a file or the environment, at any depth of Ansible's listing."""
    settings: Variables = {}
    if isinstance(dumped, list):
        for entry in dumped:
            settings.update(_configured(entry))
    elif isinstance(dumped, dict) and "name" in dumped:
        settings[dumped["name"]] = dumped["value"]
    elif isinstance(dumped, dict):  # of all plugins, only ssh matters here
        settings.update(_configured(dumped.get("CONNECTION_PLUGINS", dumped.get("ssh"))))
    return settings


def _with_defaults(variables: Variables, configured: Variables) -> Variables:
    defaults = {
        names[0]: configured[setting]
        for setting, names in _CONFIGURED.items()
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


def _failure(stderr: str, code: int) -> str:
    """Why an inventory cannot be used, else "". Ansible's parse warnings count as failures."""
    lines = [line.strip() for line in stderr.splitlines() if line.strip()]
    failures = [line for line in lines if "arse" in line and ("Failed to" in line or "Unable to" in line)]
    # For a YAML file, the messages of the other plugins mislead.
    yaml_failures = [line for line in failures if "'yaml' plugin" in line]
    if failures or code:
        failures = yaml_failures or failures
        return " ".join((failures or lines or ["ansible-inventory failed"])[-2:]).replace("[WARNING]: ", "")
    return ""


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
