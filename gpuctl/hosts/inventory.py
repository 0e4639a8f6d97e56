"""Find inventories by name, and turn a host's Ansible variables into a connection."""

from __future__ import annotations

import getpass
import shlex
import sys
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from gpuctl.core import file_lookup
from gpuctl.core.errors import InvalidInput
from gpuctl.core.paths import collection_dir
from gpuctl.engine import printable
from gpuctl.hosts.inventory_settings import NAMES
from gpuctl.hosts.model import Target

DEFAULT = "localhost"
ENDINGS = ("", ".yml", ".yaml", ".ini")
# Ansible's expression for the Python that runs Ansible, which also runs gpuctl.
THIS_PYTHON = "{{ ansible_playbook_python }}"
REACHABLE = ("", "ssh", "ansible.builtin.ssh", "smart", "local", "ansible.builtin.local")
# Variables that only Ansible implements.
ANSIBLE_ONLY = (
    "ansible_become_password_file",
    "ansible_password_file",
    "ansible_ask_pass",
    "ansible_become_ask_pass",
    "ansible_become_exe",
    "ansible_become_flags",
    "ansible_ssh_executable",
    "ansible_password",
    "ansible_ssh_pass",
    "ansible_ssh_password",
    "ansible_become_password",
    "ansible_become_pass",
    "ansible_sudo_pass",
)
SSH_ARGS = ("ansible_ssh_args", "ansible_ssh_common_args", "ansible_ssh_extra_args")
REMOTE_VARIABLES = frozenset({"ansible_host", "ansible_ssh_host", "ansible_port", "ansible_ssh_port", "ansible_user"})
CONNECTION_VARIABLES = (
    "ansible_host",
    "ansible_ssh_host",
    "ansible_port",
    "ansible_ssh_port",
    "ansible_user",
    "ansible_ssh_user",
    "ansible_private_key_file",
    "ansible_ssh_private_key_file",
    *SSH_ARGS,
    "ansible_become",
    "ansible_become_user",
    "ansible_python_interpreter",
    "ansible_connection",
)


def find(name: str) -> Path:
    """The inventory of a name or path; `localhost` is always the one shipped with gpuctl."""
    if name == DEFAULT:
        return collection_dir() / "inventories" / DEFAULT
    return file_lookup.find("inventory", name, "inventories", ENDINGS)


def target(name: str, variables: Mapping[str, Any]) -> Target:
    """Turn Ansible variables into a connection; `InvalidInput` for values that make no sense, such as port 22a."""
    connection = {key: variables[key] for key in CONNECTION_VARIABLES if variables.get(key) is not None}
    # Inventories come from other programs, too, and these texts reach terminals and messages.
    strange = [] if name.isprintable() else ["its name"]
    strange += [key for key, text in connection.items() if not _is_printable(text)]
    if strange:
        wrong, hint = f"{strange[0]} has control characters", "take them out of the inventory"
        raise InvalidInput(f"reach {printable(name)} as the inventory says", wrong, hint)
    if connection.get("ansible_python_interpreter") == THIS_PYTHON:
        connection["ansible_python_interpreter"] = sys.executable
    profile = str(variables.get("host_profile_name") or "")
    settings: dict[str, Any] = {name: variables.get(name) for name in NAMES}
    why = _needs_ansible(connection, variables)
    if why:
        return Target(name, profile=profile, needs_ansible=why, **settings)
    try:
        return replace(_direct(name, connection, profile), **settings)
    except ValueError as error:
        hint = "check its ansible_port and ssh arguments in the inventory"
        raise InvalidInput(f"reach {name} as the inventory says", str(error), hint) from error


def _is_printable(value: object) -> bool:
    return not isinstance(value, str) or printable(value) == value


def _direct(name: str, variables: Mapping[str, Any], profile: str) -> Target:
    plugin = str(variables.get("ansible_connection", ""))
    python = str(variables.get("ansible_python_interpreter", ""))
    # Ansible takes a bare "localhost" for this machine; with an address or a port it is a host like any other.
    bare = name == "localhost" and not plugin and not variables.keys() & REMOTE_VARIABLES
    local = plugin.rpartition(".")[2] == "local" or bare
    user = str(variables.get("ansible_user", variables.get("ansible_ssh_user", "")))
    become_user = str(variables.get("ansible_become_user", "root"))
    return Target(
        name=name,
        address=str(variables.get("ansible_host", variables.get("ansible_ssh_host", name))),
        port=int(variables["ansible_port"]) if "ansible_port" in variables else _port(variables),
        user=user,
        key=str(variables.get("ansible_private_key_file", variables.get("ansible_ssh_private_key_file", ""))),
        ssh_args=tuple(arg for name in SSH_ARGS for arg in shlex.split(str(variables.get(name, "")))),
        # As Ansible does it: a login as that user needs no sudo, which may not even be installed.
        become=_true(variables.get("ansible_become", False)) and become_user != (getpass.getuser() if local else user),
        become_user=become_user,
        profile=profile,
        python="" if python.startswith("auto") else python,
        local=local,
    )


def _port(variables: Mapping[str, Any]) -> int | None:
    return int(variables["ansible_ssh_port"]) if "ansible_ssh_port" in variables else None


def _true(value: object) -> bool:
    return str(value).lower() in ("true", "yes", "on", "1", "y", "t")


def _needs_ansible(connection: Mapping[str, Any], variables: Mapping[str, Any]) -> str:
    for key, value in connection.items():
        if not isinstance(value, (str, int, bool)) or "{{" in str(value) or "{%" in str(value):
            return f"{key} is computed"
    if str(connection.get("ansible_connection", "")) not in REACHABLE:
        return f"ansible_connection is {connection['ansible_connection']}"
    if str(variables.get("ansible_become_method", "sudo")) not in ("sudo", "ansible.builtin.sudo"):
        return f"ansible_become_method is {variables['ansible_become_method']}"
    return next((f"{key} is set" for key in ANSIBLE_ONLY if variables.get(key)), "")
