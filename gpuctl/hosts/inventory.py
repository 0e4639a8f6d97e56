"""Which inventory a name means, and how each of its hosts is reached."""

from __future__ import annotations

import getpass
import shlex
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from gpuctl.core import file_lookup
from gpuctl.core.errors import InvalidInput
from gpuctl.core.paths import collection_dir
from gpuctl.hosts.model import Target

DEFAULT = "localhost"
ENDINGS = ("", ".yml", ".yaml", ".ini")
# Ansible's own expression for "the Python that runs Ansible", which is the one that runs us.
THIS_PYTHON = "{{ ansible_playbook_python }}"
REACHABLE = ("", "ssh", "ansible.builtin.ssh", "smart", "local", "ansible.builtin.local")
# What the direct carrier does not do, and Ansible does.
ANSIBLE_ALONE = (
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
ELSEWHERE = frozenset({"ansible_host", "ansible_ssh_host", "ansible_port", "ansible_ssh_port", "ansible_user"})
USED = (
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
    """The inventory of a name or path; `localhost` is always the one that comes with gpuctl."""
    if name == DEFAULT:
        return collection_dir() / "inventories" / DEFAULT
    return file_lookup.find("inventory", name, "inventories", ENDINGS)


def target(name: str, variables: Mapping[str, Any]) -> Target:
    """How the direct carrier reaches a host, or why only Ansible can."""
    mine = {key: variables[key] for key in USED if variables.get(key) is not None}
    if mine.get("ansible_python_interpreter") == THIS_PYTHON:
        mine["ansible_python_interpreter"] = sys.executable
    profile = str(variables.get("host_profile_name") or "")
    why = _needs_ansible(mine, variables)
    if why:
        return Target(name, profile=profile, needs_ansible=why)
    try:
        return _direct(name, mine, profile)
    except ValueError as error:
        raise InvalidInput(
            f"reach {name} as the inventory says", str(error), "look at its ansible_port and ssh arguments"
        ) from error


def _direct(name: str, mine: Mapping[str, Any], profile: str) -> Target:
    connection = str(mine.get("ansible_connection", ""))
    python = str(mine.get("ansible_python_interpreter", ""))
    # Ansible takes a bare "localhost" for this machine; one with an address or a port is reached like any other.
    bare = name == "localhost" and not connection and not mine.keys() & ELSEWHERE
    local = connection.rpartition(".")[2] == "local" or bare
    user = str(mine.get("ansible_user", mine.get("ansible_ssh_user", "")))
    become_user = str(mine.get("ansible_become_user", "root"))
    return Target(
        name=name,
        address=str(mine.get("ansible_host", mine.get("ansible_ssh_host", name))),
        port=int(mine["ansible_port"]) if "ansible_port" in mine else _port(mine),
        user=user,
        key=str(mine.get("ansible_private_key_file", mine.get("ansible_ssh_private_key_file", ""))),
        ssh_args=tuple(word for name in SSH_ARGS for word in _words(mine, name)),
        # As Ansible does: whoever is that user already needs no sudo, which may not even be installed.
        become=_true(mine.get("ansible_become", False)) and become_user != (getpass.getuser() if local else user),
        become_user=become_user,
        profile=profile,
        python="" if python.startswith("auto") else python,
        local=local,
    )


def _port(mine: Mapping[str, Any]) -> int | None:
    return int(mine["ansible_ssh_port"]) if "ansible_ssh_port" in mine else None


def _words(mine: Mapping[str, Any], name: str) -> list[str]:
    return shlex.split(str(mine.get(name, "")))


def _true(value: object) -> bool:
    return str(value).lower() in ("true", "yes", "on", "1", "y", "t")


def _needs_ansible(mine: Mapping[str, Any], every: Mapping[str, Any]) -> str:
    for key, value in mine.items():
        if not isinstance(value, (str, int, bool)) or "{{" in str(value) or "{%" in str(value):
            return f"{key} is computed"
    if str(mine.get("ansible_connection", "")) not in REACHABLE:
        return f"ansible_connection is {mine['ansible_connection']}"
    if str(every.get("ansible_become_method", "sudo")) not in ("sudo", "ansible.builtin.sudo"):
        return f"ansible_become_method is {every['ansible_become_method']}"
    return next((f"{key} is set" for key in ANSIBLE_ALONE if every.get(key)), "")
