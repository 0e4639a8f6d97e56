"""Inventories, as ansible-core reads them: every format and plugin of its works, because it does the reading."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from gpuctl.core.errors import Unusable

Variables = dict[str, Any]


def read(source: Path, limit: str) -> dict[str, Variables]:
    """Host -> its variables as written (templates unresolved), in the inventory's order; only those `limit` names."""
    # -m ansible keeps to the ansible-core gpuctl was installed with, whatever else is on the PATH.
    argv = [sys.executable, "-m", "ansible", "inventory", "--list", "--inventory", str(source)]
    if limit:
        argv += ["--limit", limit]
    done = subprocess.run(
        argv, capture_output=True, text=True, env=_environment(), stdin=subprocess.DEVNULL, check=False
    )
    doing = f"read the inventory {source}"
    wrong = _complaint(done.stderr, done.returncode)
    if wrong:
        raise Unusable(doing, wrong, f"try it alone: ansible-inventory --list -i {source}")
    hosts = _hosts(json.loads(done.stdout))
    if not hosts:
        wrong = f"no host in it matches {limit!r}" if limit else "it has no hosts"
        raise Unusable(doing, wrong, "`ansible-inventory --graph -i INVENTORY` shows hosts and groups")
    return hosts


def _environment() -> dict[str, str]:
    quiet = {
        "ANSIBLE_NOCOLOR": "1",
        "ANSIBLE_DEPRECATION_WARNINGS": "False",
        "ANSIBLE_LOCALHOST_WARNING": "False",
        "ANSIBLE_DEBUG": "False",
        "ANSIBLE_VERBOSITY": "0",
    }
    return {**os.environ, **quiet, "ANSIBLE_INVENTORY_ANY_UNPARSED_IS_FAILED": "True"}


def _complaint(stderr: str, code: int) -> str:
    """Why an inventory cannot be used. A source that ansible only warns of is no inventory to act on."""
    lines = [line.strip() for line in stderr.splitlines() if line.strip()]
    told = [line for line in lines if "arse" in line and ("Failed to" in line or "Unable to" in line)]
    if told or code:
        return " ".join((told or lines or ["ansible-inventory failed"])[-2:]).replace("[WARNING]: ", "")
    return ""


def _hosts(listed: Mapping[str, Any]) -> dict[str, Variables]:
    variables: dict[str, Variables] = listed.get("_meta", {}).get("hostvars", {})
    found: dict[str, Variables] = {}
    groups, seen = ["all"], set()
    while groups:
        group = groups.pop(0)
        if group not in seen:
            seen.add(group)
            groups[:0] = listed.get(group, {}).get("children", [])
            found.update(
                {host: variables.get(host, {}) for host in listed.get(group, {}).get("hosts", []) if host not in found}
            )
    return found
